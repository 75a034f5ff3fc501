/* The replay of a machine's record (core/epoch/replay.h), for hivemind_c/doctor/replays.py. */
#include "epoch.h"

#include "core/epoch/replay.h"

static PyObject *text_of(const char *text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *found_dict(const hv_replay_found *found) {
  return Py_BuildValue("{sKsKsNsNsN}", "events", (unsigned long long)found->events, "differing",
                       (unsigned long long)found->differing, "first", text_of(found->first), "end", text_of(found->end), "unknown",
                       text_of(found->unknown));
}

static PyObject *replay(PyObject *module, PyObject *args) {
  bind_state *state = PyModule_GetState(module);
  Py_buffer record;
  hv_env env = bind_hashing();
  hv_error err = {0};
  if (!PyArg_ParseTuple(args, "y*:replay", &record))
    return NULL;
  hv_status status = HV_NOMEM;
  hv_replay *r = hv_replay_new(state->mem, &env);
  if (r)
    status = hv_replay_feed(r, hv_span_of(record.buf, (size_t)record.len), &err);
  PyBuffer_Release(&record);
  PyObject *result = NULL;
  if (status == HV_OK)
    result = found_dict(hv_replay_look(r));
  else if (status == HV_MALFORMED)
    PyErr_SetString(PyExc_ValueError, err.text);
  else
    PyErr_NoMemory();
  hv_replay_free(r);
  return result;
}

static PyMethodDef functions[] = {
    {"replay", replay, METH_VARARGS,
     "replay(record) -> {events, differing, first, end, unknown}: gives the events of a record to a machine of this build, and\n"
     "compares its decisions. ValueError: these bytes are no record."},
    {NULL, NULL, 0, NULL}};

int hv_py_replay_init(PyObject *module) {
  return PyModule_AddFunctions(module, functions);
}
