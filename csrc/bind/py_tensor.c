#include "tensor.h"

#include "dlpack.h"

#include <string.h>

#ifndef PyBUF_WRITABLE
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_STRIDES 0x0018
#endif

static int refuse(bind_state *state, hv_status status, const char *text) {
  bind_raise(state, status, text);
  return -1;
}

/* ---- what all three ways end in ---- */

/* Counts the elements and looks at the strides; needs n_dims, shape, strides, dtype and data. */
static int finish(bind_state *state, bind_tensor *t) {
  uint64_t count = 1;
  size_t size = hv_dtype_size(t->dtype);
  for (int i = 0; i < t->n_dims; i++) {
    if (t->shape[i] < 0 || (t->shape[i] && count > (uint64_t)INT64_MAX / 16 / (uint64_t)t->shape[i]))
      return refuse(state, HV_INVALID, "the array's shape is negative or too large");
    count *= (uint64_t)t->shape[i];
  }
  t->count = count;
  t->contiguous = !size || !((uintptr_t)t->data % size);
  int64_t want = 1;
  for (int i = t->n_dims; count && i-- > 0; want *= t->shape[i])
    if (t->shape[i] != 1 && t->strides[i] != want)
      t->contiguous = 0;
  return 0;
}

static int dims_fit(bind_state *state, int n_dims) {
  if (n_dims < 0 || n_dims > BIND_TENSOR_DIMS_MAX)
    return refuse(state, HV_INVALID, "the array has more dimensions than 64");
  return 0;
}

/* ---- DLPack ---- */

static int from_dlpack(bind_state *state, const dlpack_tensor *d, bind_tensor *t) {
  static const struct {
    uint8_t code, bits, dtype;
  } kinds[] = {{DLPACK_FLOAT, 32, HV_DTYPE_FLOAT32},
               {DLPACK_FLOAT, 16, HV_DTYPE_FLOAT16},
               {DLPACK_BFLOAT, 16, HV_DTYPE_BFLOAT16},
               {DLPACK_FLOAT, 64, HV_DTYPE_FLOAT64}};
  if (dims_fit(state, d->n_dims) < 0)
    return -1;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (d->dtype.code == kinds[i].code && d->dtype.bits == kinds[i].bits && d->dtype.lanes == 1)
      t->dtype = kinds[i].dtype;
  t->n_dims = d->n_dims;
  t->data = d->data ? (char *)d->data + d->byte_offset : NULL;
  t->device_type = d->device.type, t->device_index = d->device.index;
  t->on_cpu = d->device.type == DLPACK_CPU || d->device.type == DLPACK_CUDA_HOST || d->device.type == DLPACK_ROCM_HOST;
  int64_t stride = 1;
  for (int i = t->n_dims; i-- > 0; stride *= t->shape[i]) {
    t->shape[i] = d->shape[i];
    t->strides[i] = d->strides ? d->strides[i] : stride;
  }
  return finish(state, t);
}

/* The table on the object's type, or NULL without an exception. The type keeps the capsule alive. */
static const dlpack_exchange *exchange_of(PyObject *object) {
  PyObject *capsule = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__dlpack_c_exchange_api__");
  const dlpack_exchange *table = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
  Py_XDECREF(capsule);
  PyErr_Clear();
  while (table && table->version.major != DLPACK_MAJOR)
    table = table->older;
  return table && table->managed_from && table->stream_of ? table : NULL;
}

/* Through the table's managed form: it holds the memory itself, whatever another thread does to the object meanwhile. */
static int by_exchange(bind_state *state, const dlpack_exchange *table, PyObject *object, int writable, bind_tensor *t) {
  dlpack_versioned *managed = NULL;
  if (table->managed_from(object, &managed) != 0 || !managed) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_BufferError, "the array cannot be borrowed: it must be a contiguous buffer");
    return -1;
  }
  t->managed = managed;
  t->versioned = 1;
  if (writable && managed->flags & DLPACK_READ_ONLY)
    return refuse(state, HV_INVALID, "the array is read-only: give one that may be written");
  if (from_dlpack(state, &managed->tensor, t) < 0)
    return -1;
  t->knows_stream = !t->on_cpu && table->stream_of(managed->tensor.device.type, managed->tensor.device.index, &t->stream) == 0;
  if (!t->on_cpu && !t->knows_stream)
    PyErr_Clear();
  return 0;
}

static int by_capsule(bind_state *state, PyObject *object, int writable, bind_tensor *t) {
  PyObject *capsule = PyObject_CallMethod(object, "__dlpack__", NULL);
  if (!capsule)
    return -1;
  dlpack_tensor *d = NULL;
  int read_only = 0;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    dlpack_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed && managed->version.major == DLPACK_MAJOR && PyCapsule_SetName(capsule, "used_dltensor_versioned") == 0) {
      t->managed = managed;
      t->versioned = 1;
      d = &managed->tensor;
      read_only = (managed->flags & DLPACK_READ_ONLY) != 0;
    }
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    dlpack_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (managed && PyCapsule_SetName(capsule, "used_dltensor") == 0) {
      t->managed = managed;
      d = &managed->tensor;
    }
  }
  Py_DECREF(capsule);
  if (!d)
    return PyErr_Occurred() ? -1 : refuse(state, HV_UNSUPPORTED, "__dlpack__ gave something that is not DLPack 0.x or 1.x");
  if (writable && read_only)
    return refuse(state, HV_INVALID, "the array is read-only: give one that may be written");
  return from_dlpack(state, d, t);
}

/* ---- the buffer protocol ---- */

static int dtype_of_format(const char *format, Py_ssize_t itemsize) {
  const uint16_t one = 1;
  const int little = *(const uint8_t *)&one;
  if (!format || !*format)
    return 0;
  if (*format == '@' || *format == '=' || *format == (little ? '<' : '>'))
    format++;
  if (format[0] && format[1])
    return 0;
  int dtype = *format == 'f' ? HV_DTYPE_FLOAT32 : *format == 'd' ? HV_DTYPE_FLOAT64 : *format == 'e' ? HV_DTYPE_FLOAT16 : 0;
  return (Py_ssize_t)hv_dtype_size(dtype) == itemsize ? dtype : 0;
}

static int by_buffer(bind_state *state, PyObject *object, int writable, bind_tensor *t) {
  if (PyObject_GetBuffer(object, &t->view, PyBUF_FORMAT | PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0)) < 0)
    return -1;
  t->has_view = 1;
  if (dims_fit(state, t->view.ndim) < 0)
    return -1;
  t->dtype = dtype_of_format(t->view.format, t->view.itemsize);
  t->n_dims = t->view.ndim;
  t->data = t->view.buf;
  t->on_cpu = 1;
  t->device_type = DLPACK_CPU;
  int whole = 1;
  for (int i = 0; i < t->n_dims; i++) {
    t->shape[i] = t->view.shape[i];
    t->strides[i] = t->view.itemsize ? t->view.strides[i] / t->view.itemsize : 0;
    whole &= !t->view.itemsize || t->view.strides[i] % t->view.itemsize == 0 || t->shape[i] <= 1;
  }
  if (finish(state, t) < 0)
    return -1;
  t->contiguous &= whole;
  return 0;
}

/* 1 when the object has a buffer to lend. */
static int has_buffer(PyObject *object) {
  Py_buffer view;
  if (PyObject_GetBuffer(object, &view, PyBUF_FORMAT | PyBUF_STRIDES) == 0) {
    PyBuffer_Release(&view);
    return 1;
  }
  PyErr_Clear();
  return 0;
}

/* ---- the doors ---- */

int bind_tensor_borrow(bind_state *state, PyObject *object, int writable, bind_tensor *out) {
  memset(out, 0, sizeof *out);
  const dlpack_exchange *table = exchange_of(object);
  int rc;
  if (table)
    rc = by_exchange(state, table, object, writable, out);
  else if (has_buffer(object))
    rc = by_buffer(state, object, writable, out);
  else if (PyObject_HasAttrString(object, "__dlpack__"))
    rc = by_capsule(state, object, writable, out);
  else {
    PyErr_Format(PyExc_TypeError, "a torch tensor or a NumPy array is needed, not %R", (PyObject *)Py_TYPE(object));
    return -1;
  }
  if (rc == 0)
    out->owner = Py_NewRef(object);
  else
    bind_tensor_return(out);
  return rc;
}

int bind_tensor_refuse(bind_state *state, bind_tensor *tensor, const char *what, const char *wrong) {
  char text[200];
  PyOS_snprintf(text, sizeof text, "%s %s", what, wrong);
  bind_tensor_return(tensor);
  return refuse(state, HV_INVALID, text);
}

int bind_tensor_borrow_plain(bind_state *state, PyObject *object, int writable, const char *what, bind_tensor *out) {
  if (bind_tensor_borrow(state, object, writable, out) < 0)
    return -1;
  const char *wrong = !out->dtype        ? "must hold float32, float16, bfloat16 or float64"
                      : !out->on_cpu     ? "must be on the CPU: call .cpu() first"
                      : !out->contiguous ? "must be contiguous: call .contiguous() (NumPy: numpy.ascontiguousarray) first"
                                         : NULL;
  return wrong ? bind_tensor_refuse(state, out, what, wrong) : 0;
}

void bind_tensor_return(bind_tensor *tensor) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (tensor->has_view)
    PyBuffer_Release(&tensor->view);
  if (tensor->managed && tensor->versioned) {
    dlpack_versioned *managed = tensor->managed;
    if (managed->deleter)
      managed->deleter(managed);
  } else if (tensor->managed) {
    dlpack_managed *managed = tensor->managed;
    if (managed->deleter)
      managed->deleter(managed);
  }
  Py_CLEAR(tensor->owner);
  tensor->has_view = 0;
  tensor->managed = NULL;
  PyErr_Restore(type, value, trace);
}
