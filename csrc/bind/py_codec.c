/* The functions of _hivemind_c over kern/codec.h: plain arrays in, chunks out, and back. The classes that people use are Python's
 * (hivemind_c/compression); these take what is contiguous and on the CPU, and let the GIL go while a kernel runs. */
#include "tensor.h"

#include "kern/codec.h"
#include "kern/reduce.h"

static bind_state *state_of(PyObject *module) {
  return PyModule_GetState(module);
}

/* Raises what a kernel answered, with a sentence of its own. */
static PyObject *raise(PyObject *module, hv_status status) {
  static const struct {
    hv_status status;
    const char *text;
  } sentences[] = {
      {HV_MALFORMED,
       "these bytes are not a complete chunk of a compressed tensor: they were cut, damaged, or written by another program"},
      {HV_CORRUPT, "the chunk's checksum does not match: its bytes were damaged on the way"},
      {HV_VERSION, "the chunk was made by another version of hivemind_c: use the same one on both sides"},
      {HV_UNSUPPORTED, "the chunk names a codec or a dtype that this version of hivemind_c does not know"},
      {HV_NOT_FINITE, "the chunk holds NaN or Inf: it was not added"},
      {HV_TOO_LARGE, "the array is too large for one chunk: split it"},
  };
  for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++)
    if (sentences[i].status == status) /* a chunk's version is nothing about a connection */
      return bind_raise(state_of(module), status == HV_VERSION ? HV_UNSUPPORTED : status, sentences[i].text);
  return bind_raise(state_of(module), status, NULL);
}

static PyObject *encode(PyObject *module, PyObject *args) {
  int codec;
  unsigned long long width = 0;
  PyObject *array, *residual = Py_None, *bytes = NULL;
  bind_tensor source, rest = {0};
  if (!PyArg_ParseTuple(args, "iO|OK:codec_encode", &codec, &array, &residual, &width) ||
      bind_tensor_borrow_plain(state_of(module), array, 0, "the array", &source) < 0)
    return NULL;
  if (residual != Py_None) {
    if (bind_tensor_borrow_plain(state_of(module), residual, 1, "the residual", &rest) < 0)
      goto out;
    if (rest.dtype != HV_DTYPE_FLOAT32 || rest.count != source.count) {
      bind_raise(state_of(module), HV_INVALID, "the residual must be float32 and have as many elements as the array");
      goto out;
    }
  }
  hv_rows rows = {width, width};
  uint64_t size = hv_codec_bound_rows(codec, source.dtype, source.count, rows);
  if (!size || size > (uint64_t)PY_SSIZE_T_MAX) {
    bind_raise(state_of(module), HV_INVALID,
               hv_codec_name(codec) ? "the array is too large for one chunk: split it" : "there is no codec with this number");
    goto out;
  }
  bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
  if (!bytes)
    goto out;
  uint8_t *room = (uint8_t *)PyBytes_AsString(bytes);
  hv_status status;
  Py_BEGIN_ALLOW_THREADS
  status = hv_codec_encode_rows(hv_cpu_best(), (hv_codec)codec, (hv_dtype)source.dtype, source.data, source.count, rows, rest.data,
                                room, size, &size);
  Py_END_ALLOW_THREADS
  if (status != HV_OK) {
    Py_CLEAR(bytes);
    raise(module, status);
  }
out:
  bind_tensor_return(&source);
  bind_tensor_return(&rest);
  return bytes;
}

static PyObject *bound(PyObject *module, PyObject *args) {
  int codec, dtype;
  unsigned long long count;
  if (!PyArg_ParseTuple(args, "iiK:codec_bound", &codec, &dtype, &count))
    return NULL;
  uint64_t size = hv_codec_bound(codec, dtype, count);
  if (!size)
    return bind_raise(state_of(module), HV_INVALID, "there is no chunk of this codec, dtype and count");
  return PyLong_FromUnsignedLongLong(size);
}

static PyObject *peek(PyObject *module, PyObject *bytes) {
  Py_buffer view;
  hv_codec_info info;
  if (PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) < 0)
    return NULL;
  hv_span part = hv_span_of(view.buf, (size_t)view.len);
  hv_status status = hv_codec_peek(&part, 1, &info);
  PyBuffer_Release(&view);
  return status == HV_OK ? Py_BuildValue("(iiK)", (int)info.codec, (int)info.dtype, (unsigned long long)info.count)
                         : raise(module, status);
}

static PyObject *check(PyObject *module, PyObject *bytes) {
  Py_buffer view;
  hv_codec_info info;
  hv_status status;
  int finite = 0;
  if (PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) < 0)
    return NULL;
  hv_span part = hv_span_of(view.buf, (size_t)view.len);
  Py_BEGIN_ALLOW_THREADS
  status = hv_codec_check(hv_cpu_best(), &part, 1, &info, &finite);
  Py_END_ALLOW_THREADS
  PyBuffer_Release(&view);
  return status == HV_OK ? PyBool_FromLong(finite) : raise(module, status);
}

/* Decodes (weight NULL) or accumulates into the array. */
static PyObject *into(PyObject *module, PyObject *bytes, PyObject *array, const float *weight) {
  bind_tensor target;
  Py_buffer view;
  if (bind_tensor_borrow_plain(state_of(module), array, 1, "the output", &target) < 0)
    return NULL;
  if (PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) < 0) {
    bind_tensor_return(&target);
    return NULL;
  }
  hv_span part = hv_span_of(view.buf, (size_t)view.len);
  hv_status status = HV_INVALID;
  int fits = !weight || target.dtype == HV_DTYPE_FLOAT32;
  Py_BEGIN_ALLOW_THREADS
  if (!weight)
    status = hv_codec_decode(hv_cpu_best(), &part, 1, (hv_dtype)target.dtype, target.data, target.count);
  else if (fits)
    status = hv_codec_accumulate(hv_cpu_best(), &part, 1, *weight, target.data, target.count);
  Py_END_ALLOW_THREADS
  PyBuffer_Release(&view);
  bind_tensor_return(&target);
  if (status == HV_OK)
    Py_RETURN_NONE;
  if (status != HV_INVALID)
    return raise(module, status);
  return bind_raise(state_of(module), status,
                    !fits    ? "the accumulator must be float32"
                    : weight ? "the chunk holds another number of elements than the accumulator, or the weight is not in [0, 2^64]"
                             : "the chunk holds another number of elements than the output");
}

static PyObject *decode(PyObject *module, PyObject *args) {
  PyObject *bytes, *array;
  if (!PyArg_ParseTuple(args, "OO:codec_decode", &bytes, &array))
    return NULL;
  return into(module, bytes, array, NULL);
}

static PyObject *accumulate(PyObject *module, PyObject *args) {
  PyObject *bytes, *array;
  float weight;
  if (!PyArg_ParseTuple(args, "OfO:codec_accumulate", &bytes, &weight, &array))
    return NULL;
  return into(module, bytes, array, &weight);
}

static PyObject *all_finite(PyObject *module, PyObject *array) {
  bind_tensor source;
  int yes = 0;
  hv_status status;
  if (bind_tensor_borrow_plain(state_of(module), array, 0, "the array", &source) < 0)
    return NULL;
  Py_BEGIN_ALLOW_THREADS
  status = hv_reduce_finite(hv_cpu_best(), (hv_dtype)source.dtype, source.data, source.count, &yes);
  Py_END_ALLOW_THREADS
  bind_tensor_return(&source);
  return status == HV_OK ? PyBool_FromLong(yes) : raise(module, status);
}

static PyMethodDef functions[] = {
    {"codec_encode", encode, METH_VARARGS, "codec_encode(codec, array, residual=None, width=0) -> bytes; width: of a row, 0: all"},
    {"codec_decode", decode, METH_VARARGS, "codec_decode(chunk, out)"},
    {"codec_accumulate", accumulate, METH_VARARGS, "codec_accumulate(chunk, weight, out)"},
    {"codec_bound", bound, METH_VARARGS, "codec_bound(codec, dtype, count) -> int"},
    {"codec_peek", peek, METH_O, "codec_peek(chunk) -> (codec, dtype, count)"},
    {"codec_check", check, METH_O, "codec_check(chunk) -> whether all its values are finite"},
    {"codec_finite", all_finite, METH_O, "codec_finite(array) -> bool"},
    {NULL, NULL, 0, NULL},
};

int hv_py_codec_init(PyObject *module) {
  PyObject *names = PyTuple_New(HV_CODEC_COUNT);
  for (int i = 0; names && i < HV_CODEC_COUNT; i++) {
    PyObject *name = PyUnicode_FromString(hv_codec_name(i));
    if (!name || PyTuple_SetItem(names, i, name) < 0)
      Py_CLEAR(names);
  }
  int rc = names ? PyModule_AddObjectRef(module, "CODECS", names) : -1;
  Py_XDECREF(names);
  return rc < 0 ? rc : PyModule_AddFunctions(module, functions);
}
