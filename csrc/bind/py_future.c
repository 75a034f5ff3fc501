#include "bind.h"

#include <sys/syscall.h>
#include <unistd.h>

/* How long a wait lasts before signals are looked at: what Ctrl-C takes at most. Python handles signals in the process's main
 * thread alone, unless it is embedded; so other threads sleep longer. */
#define SLICE_MS 50u
#define SLICE_ASIDE_MS 1000u

typedef struct py_future {
  PyObject_HEAD
  bind_node *node; /* kept: a node lives as long as somebody may wait for it */
  hv_future *future;
  bind_loan *loan; /* of a send, else NULL */
  const bind_future_kind *kind;
  PyObject *value; /* the result, once made; never refers back here */
} py_future;

static bind_state *state_of(py_future *self) {
  return PyType_GetModuleState(Py_TYPE(self));
}

PyObject *bind_future_new(bind_state *state, bind_node *node, const bind_future_kind *kind, hv_future *future, bind_loan *loan) {
  py_future *self = (py_future *)PyType_GenericAlloc(state->future, 0);
  if (!self) {
    hv_future_release(future);
    bind_loan_release(loan);
    return NULL;
  }
  Py_INCREF(node);
  self->node = node;
  self->future = future;
  self->loan = loan;
  self->kind = kind;
  return (PyObject *)self;
}

PyObject *bind_future_bytes(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *peer) {
  (void)state, (void)future, (void)peer;
  return PyBytes_FromStringAndSize((const char *)bytes.data, (Py_ssize_t)bytes.size);
}

static int is_forked(py_future *self) {
  return getpid() != self->node->pid;
}

/* 0, or -1 with the error raised that this future cannot be used here. */
static int check_usable(py_future *self) {
  if (!self->node || !self->future)
    bind_raise(state_of(self), HV_STATE, "cannot use this future: it was finalized");
  else if (is_forked(self))
    bind_raise(state_of(self), HV_FORKED, "cannot use this future: it was made before fork(); wait for it in the parent process");
  else
    return 0;
  return -1;
}

hv_future *bind_future_inner(bind_state *state, PyObject *object) {
  if (!PyObject_TypeCheck(object, state->future)) {
    PyErr_Format(PyExc_TypeError, "a Future of this averager's step is needed, not %R", object);
    return NULL;
  }
  return check_usable((py_future *)object) < 0 ? NULL : ((py_future *)object)->future;
}

static int is_done(py_future *self) {
  return hv_future_done(self->future) && (!self->loan || atomic_load(&self->loan->back));
}

/* Without the GIL: waits for the future, then until its bytes are Python's again. */
static int wait_slice(py_future *self, uint32_t slice_ms) {
  int done;
  Py_BEGIN_ALLOW_THREADS
  done = hv_future_wait(self->future, slice_ms) && (!self->loan || bind_loan_wait(self->loan, slice_ms));
  Py_END_ALLOW_THREADS
  return done;
}

static uint32_t slice_here(void) {
  return syscall(SYS_gettid) == getpid() ? SLICE_MS : SLICE_ASIDE_MS;
}

static int monotonic(bind_state *state, double *out) {
  PyObject *now = PyObject_CallNoArgs(state->monotonic);
  *out = now ? PyFloat_AsDouble(now) : -1;
  Py_XDECREF(now);
  return PyErr_Occurred() ? -1 : 0;
}

/* 1: done; 0: not within the time; -1: an exception (KeyboardInterrupt, for one). */
static int wait_done(py_future *self, uint32_t timeout_ms) {
  double start, now;
  if (is_done(self))
    return 1;
  uint32_t slice_ms = slice_here();
  if (monotonic(state_of(self), &start) < 0)
    return -1;
  for (now = start;;) {
    double left_ms = timeout_ms == UINT32_MAX ? slice_ms : timeout_ms - (now - start) * 1000;
    if (left_ms <= 0)
      return is_done(self);
    if (wait_slice(self, left_ms < slice_ms ? (uint32_t)left_ms + 1 : slice_ms))
      return 1;
    if (PyErr_CheckSignals() < 0 || monotonic(state_of(self), &now) < 0)
      return -1;
  }
}

/* ---- the result ---- */

static PyObject *convert(py_future *self, hv_span bytes, const hv_peer_id *peer) {
  if (!self->kind->convert)
    Py_RETURN_NONE;
  return self->kind->convert(state_of(self), self->future, bytes, peer);
}

/* The result or the error of a future that is done: exactly one of them, new; both NULL with an exception set. */
static void outcome(py_future *self, PyObject **value, PyObject **error) {
  hv_span bytes = {0};
  hv_peer_id peer = {0};
  hv_error err = {0};
  *value = *error = NULL;
  if (self->loan)
    bind_loan_settle(self->loan);
  hv_status status = hv_future_result(self->future, &bytes, &peer, &err);
  if (status != HV_OK) {
    *error = bind_error(state_of(self), &err);
    return;
  }
  *value = self->value;
  if (*value) {
    Py_INCREF(*value);
    return;
  }
  *value = convert(self, bytes, &peer);
  if (!self->value && *value) { /* another thread may have been here meanwhile */
    Py_INCREF(*value);
    self->value = *value;
  }
}

/* ---- methods ---- */

/* Waits as the caller says. 0 when done, -1 with an exception set (a timeout among them). */
static int wait_or_raise(py_future *self, PyObject *args, PyObject *kwargs, const char *format) {
  static const char *const names[] = {"timeout", NULL};
  PyObject *timeout = Py_None;
  uint32_t timeout_ms;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, (char **)names, &timeout) || bind_timeout(timeout, &timeout_ms) < 0 ||
      check_usable(self) < 0)
    return -1;
  int done = wait_done(self, timeout_ms);
  if (done == 0) {
    char text[96];
    PyOS_snprintf(text, sizeof text, "timed out after %.3g s of waiting for %s", timeout_ms / 1000.0, self->kind->awaited);
    bind_raise(state_of(self), HV_TIMEOUT, text);
  }
  return done == 1 ? 0 : -1;
}

static PyObject *future_result(PyObject *object, PyObject *args, PyObject *kwargs) {
  PyObject *value, *error;
  if (wait_or_raise((py_future *)object, args, kwargs, "|O:result") < 0)
    return NULL;
  outcome((py_future *)object, &value, &error);
  return error ? bind_raise_error(state_of((py_future *)object), error) : value;
}

static PyObject *future_exception(PyObject *object, PyObject *args, PyObject *kwargs) {
  PyObject *value, *error;
  if (wait_or_raise((py_future *)object, args, kwargs, "|O:exception") < 0)
    return NULL;
  outcome((py_future *)object, &value, &error);
  if (!value)
    return error;
  Py_DECREF(value);
  Py_RETURN_NONE;
}

static PyObject *future_done(PyObject *object, PyObject *ignored) {
  py_future *self = (py_future *)object;
  (void)ignored;
  return check_usable(self) < 0 ? NULL : PyBool_FromLong(is_done(self));
}

static PyObject *future_cancel(PyObject *object, PyObject *ignored) {
  py_future *self = (py_future *)object;
  (void)ignored;
  if (check_usable(self) < 0)
    return NULL;
  int pending = !hv_future_done(self->future);
  if (pending)
    hv_future_cancel(self->future);
  return PyBool_FromLong(pending);
}

static PyObject *future_repr(PyObject *object) {
  py_future *self = (py_future *)object;
  const char *state = !self->future ? "finalized" : is_forked(self) ? "of another process" : is_done(self) ? "done" : "pending";
  return PyUnicode_FromFormat("<hivemind_c.Future of %s, %s>", self->kind->awaited, state);
}

/* Nothing reads a dropped future: see bind_future_kind for what is cancelled then, and which results are given back. */
static void future_finalize(PyObject *object) {
  py_future *self = (py_future *)object;
  if (self->future && !is_forked(self)) {
    int pending = self->kind->cancel_when_dropped && hv_future_cancel(self->future);
    hv_hive *hive = self->node ? ((bind_node *)self->node)->hive : NULL;
    if (self->kind->give_back && !pending && !self->value && hive)
      self->kind->give_back(hive, self->future);
    hv_future_release(self->future);
  }
  self->future = NULL;
  if (self->loan) {
    bind_loan_settle(self->loan);
    bind_loan_release(self->loan);
  }
  self->loan = NULL;
  Py_CLEAR(self->value);
  Py_CLEAR(self->node);
}

static const PyMethodDef methods[] = {{"result", (PyCFunction)(void (*)(void))future_result, METH_VARARGS | METH_KEYWORDS,
                                       "result(timeout=None): waits, then gives the result or raises what went wrong."},
                                      {"exception", (PyCFunction)(void (*)(void))future_exception, METH_VARARGS | METH_KEYWORDS,
                                       "exception(timeout=None): waits, then gives what went wrong, or None."},
                                      {"done", future_done, METH_NOARGS, "Whether result() would answer at once."},
                                      {"cancel", future_cancel, METH_NOARGS, "Asks for the end; False when it was done already."},
                                      {NULL, NULL, 0, NULL}};

PyTypeObject *bind_future_type(PyObject *module) {
  PyType_Slot slots[] = {{Py_tp_doc, (void *)"What will be known: wait with result(), from any thread."},
                         {Py_tp_finalize, (void *)future_finalize},
                         {Py_tp_repr, (void *)future_repr},
                         {Py_tp_methods, (void *)methods},
                         {0, NULL}};
  PyType_Spec spec = {.name = "hivemind_c.Future",
                      .basicsize = sizeof(py_future),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
