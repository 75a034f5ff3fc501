#include "bind.h"

typedef struct py_parcel {
  PyObject_HEAD
  hv_future *future; /* kept: the bytes are its */
  hv_span bytes;
  int writable;
  pid_t pid;
} py_parcel;

PyObject *bind_parcel_new(bind_state *state, hv_future *future, hv_span bytes, int writable) {
  py_parcel *self = (py_parcel *)PyType_GenericAlloc(state->parcel, 0);
  if (!self)
    return NULL;
  self->future = hv_future_keep(future);
  self->bytes = bytes;
  self->writable = writable;
  self->pid = getpid();
  return (PyObject *)self;
}

static int parcel_buffer(PyObject *object, Py_buffer *view, int flags) {
  py_parcel *self = (py_parcel *)object;
  static const char nothing[1] = "";
  const void *bytes = self->bytes.size ? (const void *)self->bytes.data : nothing;
  return PyBuffer_FillInfo(view, object, (void *)bytes, (Py_ssize_t)self->bytes.size, !self->writable, flags);
}

static void parcel_finalize(PyObject *object) {
  py_parcel *self = (py_parcel *)object;
  if (getpid() == self->pid)
    hv_future_release(self->future);
  self->future = NULL;
  self->bytes = (hv_span){0};
}

PyTypeObject *bind_parcel_type(PyObject *module) {
  PyType_Slot slots[] = {{Py_tp_doc, (void *)"Bytes that a peer sent, where they arrived."},
                         {Py_tp_finalize, (void *)parcel_finalize},
                         {Py_bf_getbuffer, (void *)parcel_buffer},
                         {0, NULL}};
  PyType_Spec spec = {.name = "_hivemind_c.Parcel",
                      .basicsize = sizeof(py_parcel),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
