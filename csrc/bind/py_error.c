#include "bind.h"

#include <math.h>

/* The builtin that each class is one of, besides HivemindError; found by name in builtins or concurrent.futures. */
static const struct {
  const char *name, *base;
  hv_status status; /* of an error that Python raised without one */
  const char *doc;
} classes[BIND_ERROR_COUNT] = {
    [BIND_ERROR_GENERAL] =
        {"hivemind_c.HivemindError", "RuntimeError", HV_INTERNAL,
         "What went wrong, and what to do. .status is the kind of error and .cause its cause, one of _hivemind_c.CAUSES."},
    [BIND_ERROR_TIMEOUT] = {"hivemind_c.HivemindTimeoutError", "TimeoutError", HV_TIMEOUT, "It took longer than allowed."},
    [BIND_ERROR_CONNECTION] = {"hivemind_c.HivemindConnectionError", "ConnectionError", HV_UNREACHABLE,
                               "A peer cannot be reached, or is gone."},
    [BIND_ERROR_PERMISSION] = {"hivemind_c.HivemindPermissionError", "PermissionError", HV_DENIED,
                               "An identity, a file or a membership was refused."},
    [BIND_ERROR_VALUE] = {"hivemind_c.HivemindValueError", "ValueError", HV_INVALID,
                          "An argument, or what bytes hold, has no meaning."},
    [BIND_ERROR_MEMORY] = {"hivemind_c.HivemindMemoryError", "MemoryError", HV_NOMEM, "Out of memory, or over its limit."},
    [BIND_ERROR_OS] = {"hivemind_c.HivemindOSError", "OSError", HV_IO,
                       "The system refused: an address in use, a file that cannot be read."},
    [BIND_ERROR_LOOKUP] = {"hivemind_c.HivemindLookupError", "LookupError", HV_NOT_FOUND,
                           "There is no such thing, or no such peer."},
    [BIND_ERROR_CANCELLED] = {"hivemind_c.HivemindCancelledError", "CancelledError", HV_CANCELLED,
                              "It was cancelled, or its node stopped."},
    [BIND_ERROR_UNSUPPORTED] = {"hivemind_c.HivemindUnsupportedError", "NotImplementedError", HV_UNSUPPORTED,
                                "This is not supported."},
};

static bind_error_kind kind_of(hv_status status) {
  switch (status) {
  case HV_NOMEM:
  case HV_BUDGET:
    return BIND_ERROR_MEMORY;
  case HV_INVALID:
  case HV_MALFORMED:
  case HV_CORRUPT:
  case HV_NOT_FINITE:
  case HV_TOO_LARGE:
    return BIND_ERROR_VALUE;
  case HV_DENIED:
  case HV_PERMISSION:
  case HV_NOT_ADMITTED:
    return BIND_ERROR_PERMISSION;
  case HV_REFUSED:
  case HV_UNREACHABLE:
  case HV_CLOSED:
  case HV_VERSION:
    return BIND_ERROR_CONNECTION;
  case HV_TIMEOUT:
    return BIND_ERROR_TIMEOUT;
  case HV_CANCELLED:
    return BIND_ERROR_CANCELLED;
  case HV_NOT_FOUND:
    return BIND_ERROR_LOOKUP;
  case HV_IN_USE:
  case HV_IO:
    return BIND_ERROR_OS;
  case HV_UNSUPPORTED:
    return BIND_ERROR_UNSUPPORTED;
  default:
    return BIND_ERROR_GENERAL;
  }
}

/* "(HivemindError, TimeoutError)", or just the builtin for HivemindError itself. New, or NULL. */
static PyObject *bases_of(bind_state *state, int kind, PyObject *builtins, PyObject *futures) {
  PyObject *from = kind == BIND_ERROR_CANCELLED ? futures : builtins;
  PyObject *base = PyObject_GetAttrString(from, classes[kind].base);
  if (!base || kind == BIND_ERROR_GENERAL)
    return base;
  PyObject *both = PyTuple_Pack(2, state->errors[BIND_ERROR_GENERAL], base);
  Py_DECREF(base);
  return both;
}

static int make_class(PyObject *module, bind_state *state, int kind, PyObject *builtins, PyObject *futures) {
  static const char *const names[BIND_ERROR_COUNT] = {
#define BIND_ERROR_NAME(kind, name) [BIND_ERROR_##kind] = name,
      BIND_ERROR_MAP(BIND_ERROR_NAME)
#undef BIND_ERROR_NAME
  };
  PyObject *bases = bases_of(state, kind, builtins, futures);
  if (!bases)
    return -1;
  PyObject *dict = Py_BuildValue("{s:s,s:s}", "status", hv_status_name(classes[kind].status), "cause",
                                 hv_cause_name(hv_cause_of(classes[kind].status)));
  if (dict)
    state->errors[kind] = PyErr_NewExceptionWithDoc(classes[kind].name, classes[kind].doc, bases, dict);
  Py_XDECREF(dict);
  Py_DECREF(bases);
  return state->errors[kind] ? PyModule_AddObjectRef(module, names[kind], state->errors[kind]) : -1;
}

int bind_errors_init(PyObject *module, bind_state *state) {
  PyObject *builtins = PyImport_ImportModule("builtins");
  PyObject *futures = builtins ? PyImport_ImportModule("concurrent.futures") : NULL;
  int rc = futures ? 0 : -1;
  for (int kind = 0; kind < BIND_ERROR_COUNT && rc == 0; kind++)
    rc = make_class(module, state, kind, builtins, futures);
  Py_XDECREF(builtins);
  Py_XDECREF(futures);
  return rc;
}

static int set_name(PyObject *error, const char *attribute, const char *name) {
  PyObject *text = PyUnicode_FromString(name);
  int rc = text ? PyObject_SetAttrString(error, attribute, text) : -1;
  Py_XDECREF(text);
  return rc;
}

PyObject *bind_error(bind_state *state, const hv_error *why) {
  const char *text = why->text[0] ? why->text : hv_status_text(why->status);
  PyObject *error = PyObject_CallFunction(state->errors[kind_of(why->status)], "s", text);
  if (error &&
      (set_name(error, "status", hv_status_name(why->status)) < 0 || set_name(error, "cause", hv_cause_name(why->cause)) < 0))
    Py_CLEAR(error);
  return error;
}

/* A daemon thread that used a node when the program ended has done nothing wrong: it ends without a word. */
PyObject *bind_raise_error(bind_state *state, PyObject *error) {
  if (error && state->ending && PyThread_get_thread_ident() != state->ending_thread)
    PyErr_SetNone(PyExc_SystemExit);
  else if (error)
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  return NULL;
}

PyObject *bind_raise_why(bind_state *state, hv_status status, const hv_error *why) {
  hv_error whole;
  hv_fail_by(&whole, status, why->cause, "%s", why->text);
  return bind_raise_error(state, bind_error(state, &whole));
}

PyObject *bind_raise(bind_state *state, hv_status status, const char *text) {
  hv_error why;
  hv_fail(&why, status, "%s", text ? text : "");
  return bind_raise_error(state, bind_error(state, &why));
}

int bind_timeout(PyObject *seconds, uint32_t *out_ms) {
  *out_ms = UINT32_MAX;
  if (!seconds || seconds == Py_None)
    return 0;
  double value = PyFloat_AsDouble(seconds);
  if (value == -1 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_Format(PyExc_TypeError, "timeout is %R: give seconds as a number, or None for no limit", seconds);
    return -1;
  }
  if (!(value >= 0)) {
    PyErr_Format(PyExc_ValueError, "timeout is %R: give seconds from 0 up, or None for no limit", seconds);
    return -1;
  }
  double ms = ceil(value * 1000);
  if (ms < UINT32_MAX)
    *out_ms = (uint32_t)ms;
  return 0;
}

int bind_peer(bind_state *state, PyObject *text, hv_peer_id *out) {
  Py_ssize_t size = 0;
  if (!PyUnicode_Check(text)) {
    PyErr_Format(PyExc_TypeError, "a peer ID must be text like '12D3KooW...', not %R", text);
    return -1;
  }
  const char *chars = PyUnicode_AsUTF8AndSize(text, &size);
  if (!chars)
    return -1;
  hv_error err = {0};
  hv_status status = hv_peer_parse(hv_span_of(chars, (size_t)size), out, &err);
  if (status != HV_OK)
    bind_raise_why(state, status, &err);
  return status == HV_OK ? 0 : -1;
}

PyObject *bind_peer_text(const hv_peer_id *peer) {
  char text[HV_PEER_TEXT_MAX];
  return PyUnicode_FromString(hv_peer_print(peer, text));
}

int bind_whole_number(PyObject *object, void *out) {
  unsigned long long *number = out;
  *number = PyLong_AsUnsignedLongLong(object);
  return !(*number == (unsigned long long)-1 && PyErr_Occurred());
}

int bind_type_add(PyObject *module, PyType_Spec *spec, const char *name) {
  PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
  int rc = type ? PyModule_AddObjectRef(module, name, type) : -1;
  Py_XDECREF(type);
  return rc;
}
