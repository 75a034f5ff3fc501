/* The numbers of a Python array as plain memory: of a torch tensor, a NumPy array, or anything with DLPack or a buffer.
 *
 * Room: bind (uses bind.h, kern/dtype.h). Used by py_codec.c, and by whatever takes tensors from Python later.
 * Nothing is copied. Asked in this order, the first that the object has counts:
 *   1. the C exchange table of DLPack 1.x on its type (torch 2.10 and later, tensors and parameters), which also tells the stream
 *   2. the buffer protocol (NumPy, array.array, memoryview)
 *   3. __dlpack__ (older torch, and others)
 * A loan is good until bind_tensor_return; both under the GIL, which may be let go in between. Whoever lent the memory may still
 * change the numbers in it meanwhile.
 */
#ifndef HV_BIND_TENSOR_H
#define HV_BIND_TENSOR_H

#include "bind.h"
#include "kern/dtype.h"

#define BIND_TENSOR_DIMS_MAX 64

typedef struct bind_tensor {
  void *data; /* the first element; NULL when there is none */
  int dtype;  /* hv_dtype, or 0 for one that no codec takes */
  int n_dims;
  int contiguous; /* 1: the elements lie one after the other, the last dimension fastest, and are aligned */
  uint64_t count; /* elements */
  int on_cpu;
  int device_type, device_index; /* as DLPack counts; 1 is the CPU, 2 CUDA */
  void *stream;                  /* another device: its current stream, when the exchange table told it */
  int knows_stream;
  int64_t shape[BIND_TENSOR_DIMS_MAX], strides[BIND_TENSOR_DIMS_MAX]; /* in elements */
  PyObject *owner;                                                    /* below: how it is given back */
  Py_buffer view;
  int has_view;
  void *managed;
  int versioned;
} bind_tensor;

/* Borrows the memory of object (kept alive until it is returned). writable: 1 refuses memory that says it is read-only. 0, or -1
 * with an exception set and nothing borrowed. */
int bind_tensor_borrow(bind_state *state, PyObject *object, int writable, bind_tensor *out);

/* The same, and it must be one of the four dtypes, contiguous and on the CPU. `what` names it in the sentence. */
int bind_tensor_borrow_plain(bind_state *state, PyObject *object, int writable, const char *what, bind_tensor *out);

/* What was borrowed will not do: gives it back and raises "what wrong". Returns -1. */
int bind_tensor_refuse(bind_state *state, bind_tensor *tensor, const char *what, const char *wrong);

/* Gives it back; an exception that is set stays so. */
void bind_tensor_return(bind_tensor *tensor);

/* py_cuda.c: adds the functions over cuda/hv_cuda.h, which work where that library and a GPU are. 0, or -1 with an exception set.
 */
int hv_py_cuda_init(PyObject *module);

/* py_cuda.c: borrows a tensor, contiguous and writable, whose values take part in rounds through a transfer pool (cuda_transfers's
 * capsule). The table for them, good as long as the capsule; or NULL with an exception set and nothing borrowed. */
const struct hv_device *bind_transfers_borrow(bind_state *state, PyObject *transfers, PyObject *object, const char *what,
                                              bind_tensor *out);

/* py_codec.c: adds the functions over kern/codec.h to the module. 0, or -1 with an exception set. */
int hv_py_codec_init(PyObject *module);

#endif
