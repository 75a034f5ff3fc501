/* Access to the memory of a Python array without a copy: a torch tensor, a NumPy array, or any object with DLPack or a buffer.
 *
 * Room: bind (uses bind, kern/dtype). Used by py_codec.c, py_cuda.c, py_outer.c and py_average.c.
 * Three ways are tried in this order, and the first that the object has is used:
 *   1. the C exchange table of DLPack 1.x on its type (torch 2.10 and later), which also gives the current stream of a device
 *   2. the buffer protocol (NumPy, array.array, memoryview)
 *   3. __dlpack__ (older torch, and others)
 * Owner: bind_tensor_borrow keeps the object alive until bind_tensor_return.
 * Thread: both are called with the GIL held; it may be released in between. Other code may change the values meanwhile.
 * Errors: as in bind.h; then nothing is borrowed.
 */
#ifndef HV_BIND_TENSOR_H
#define HV_BIND_TENSOR_H

#include "bind.h"
#include "kern/dtype.h"

#define BIND_TENSOR_DIMS_MAX 64

typedef struct bind_tensor {
  void *data; /* the first element; NULL if there is none */
  int dtype;  /* hv_dtype; 0: a type that no codec supports */
  int n_dims;
  int contiguous;                /* True: in C order without gaps, and aligned */
  uint64_t count;                /* elements */
  int on_cpu;                    /* True if this process can read it as plain memory */
  int device_type, device_index; /* numbers of DLPack: type 1 is the CPU, 2 CUDA */
  void *stream;                  /* the current stream of its device */
  int knows_stream;              /* True if `stream` is set: only the exchange table gives it */
  int64_t shape[BIND_TENSOR_DIMS_MAX], strides[BIND_TENSOR_DIMS_MAX]; /* in elements */
  PyObject *owner;                                                    /* this and the fields below serve bind_tensor_return */
  Py_buffer view;
  int has_view;
  void *managed;
  int versioned;
} bind_tensor;

/* Borrows the memory of an object. writable: raises if the object says that its memory is read-only. */
int bind_tensor_borrow(bind_state *state, PyObject *object, int writable, bind_tensor *out);

/* As bind_tensor_borrow, but raises unless the array has one of the four dtypes, is contiguous and on the CPU. what: its name in
 * the error. */
int bind_tensor_borrow_plain(bind_state *state, PyObject *object, int writable, const char *what, bind_tensor *out);

/* Gives an unsuitable tensor back and raises an error with the text "what wrong". Returns -1. */
int bind_tensor_refuse(bind_state *state, bind_tensor *tensor, const char *what, const char *wrong);

/* Gives a tensor back. A pending exception stays set. */
void bind_tensor_return(bind_tensor *tensor);

/* py_cuda.c: adds the functions of cuda/hv_cuda.h to the module. They need that library and a GPU when they are called. */
int hv_py_cuda_init(PyObject *module);

/* py_cuda.c: borrows a contiguous, writable tensor on a device, for rounds of averaging that read and write it through a transfer
 * pool (hv_transfers in cuda/hv_cuda.h). `transfers` is the Python capsule that holds the pool, made by the function cuda_transfers
 * of the module. `what` names the tensor in an error. Returns the pool's table of functions, which is valid as long as the capsule
 * lives, or NULL with an exception. */
const struct hv_device *bind_transfers_borrow(bind_state *state, PyObject *transfers, PyObject *object, const char *what,
                                              bind_tensor *out);

/* py_codec.c: adds the functions of kern/codec.h to the module. */
int hv_py_codec_init(PyObject *module);

/* py_outer.c: adds the function of core/outer/outer.h to the module. */
int hv_py_outer_init(PyObject *module);

#endif
