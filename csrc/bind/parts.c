/* The results of averagings, as py_average.c makes them, on their way back to the core (contract in epoch.h). */
#include "epoch.h"

/* Reads (peer, is it this one, is_client, is_auxiliary, word, share). */
static int read_member(PyObject *object, hv_average_member *out) {
  const char *peer, *word;
  Py_ssize_t peer_size, size;
  hv_error err = {0};
  int me, client, auxiliary;
  if (!PyTuple_Check(object)) {
    PyErr_SetString(PyExc_TypeError, "a member is a tuple, as a step's result has it");
    return -1;
  }
  if (!PyArg_ParseTuple(object, "s#pppy#d", &peer, &peer_size, &me, &client, &auxiliary, &word, &size, &out->share))
    return -1;
  if (hv_peer_parse(hv_span_of(peer, (size_t)peer_size), &out->id, &err) != HV_OK) {
    PyErr_SetString(PyExc_ValueError, err.text);
    return -1;
  }
  out->me = (uint8_t)me;
  out->client = (uint8_t)client;
  out->auxiliary = (uint8_t)auxiliary;
  out->gather = hv_span_of(word, (size_t)size);
  return 0;
}

/* The members of a step's result, its first field; NULL: an exception is set. Its last field is the stamp. */
static PyObject *fields_of(PyObject *part, unsigned long long *stamp) {
  Py_ssize_t n = PyTuple_Check(part) ? PyTuple_Size(part) : 0;
  PyObject *members = n > 1 ? PyTuple_GetItem(part, 0) : NULL;
  if (!members || !PyTuple_Check(members)) {
    PyErr_SetString(PyExc_TypeError, "a part of a round is the tuple of a step's result");
    return NULL;
  }
  return bind_whole_number(PyTuple_GetItem(part, n - 1), stamp) ? members : NULL;
}

int bind_parts_init(PyObject *tuple, bind_parts *out) {
  *out = (bind_parts){0};
  size_t n = (size_t)PyTuple_Size(tuple), n_members = 0;
  unsigned long long stamp;
  for (size_t i = 0; i < n; i++) {
    PyObject *members = fields_of(PyTuple_GetItem(tuple, (Py_ssize_t)i), &stamp);
    if (!members)
      return -1;
    n_members += (size_t)PyTuple_Size(members);
  }
  out->list = PyMem_Calloc(n + 1, sizeof *out->list);
  hv_average_member *at = out->members = PyMem_Calloc(n_members + 1, sizeof *out->members);
  if (!out->list || !at) {
    PyErr_NoMemory();
    return -1;
  }
  for (; out->n < n; out->n++) {
    PyObject *members = fields_of(PyTuple_GetItem(tuple, (Py_ssize_t)out->n), &stamp);
    hv_average_outcome *part = &out->list[out->n];
    *part = (hv_average_outcome){.members = at, .n_members = (size_t)PyTuple_Size(members), .stamp = stamp};
    for (size_t i = 0; i < part->n_members; i++)
      if (read_member(PyTuple_GetItem(members, (Py_ssize_t)i), at++) < 0)
        return -1;
  }
  return 0;
}

void bind_parts_fini(bind_parts *parts) {
  PyMem_Free(parts->list);
  PyMem_Free(parts->members);
}
