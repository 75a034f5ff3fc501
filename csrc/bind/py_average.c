/* A node's averager: tensors that are borrowed as long as it lives, and steps that average them. */
#include "bind.h"
#include "tensor.h"

#include "kern/codec.h"

#include <stddef.h>
#include <string.h>

#define SLICE_MS 50u /* how long a wait lasts before signals are looked at */

typedef struct py_averager {
  PyObject_HEAD
  bind_node *node;            /* kept: the hive outlives its averagers */
  hv_hive_averager *averager; /* NULL: closed */
  bind_tensor *tensors;       /* loans */
  size_t n_tensors;
  PyObject *list; /* keeps the ferries, too */
  bind_users users;
} py_averager;

static bind_state *state_of(py_averager *self) {
  return PyType_GetModuleState(Py_TYPE(self));
}

/* 0, or -1 with the error raised that it cannot be used here. */
static int check_usable(py_averager *self) {
  if (!self->averager) {
    bind_raise(state_of(self), HV_CLOSED, "cannot use this averager: it was shut down");
    return -1;
  }
  return bind_node_check(self->node);
}

hv_hive_averager *bind_averager_of(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  bind_state *state = PyType_GetModuleState(type);
  if (!state || type != state->averager) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%R is no Averager", object);
    return NULL;
  }
  py_averager *self = (py_averager *)object;
  return check_usable(self) == 0 ? self->averager : NULL;
}

hv_hive_averager *bind_averager_enter(PyObject *object) {
  hv_hive_averager *averager = bind_averager_of(object);
  if (averager)
    bind_users_enter(&((py_averager *)object)->users);
  return averager;
}

void bind_averager_leave(PyObject *object) {
  bind_users_leave(&((py_averager *)object)->users);
}

/* ---- settings ---- */

typedef struct setting {
  const char *name;
  size_t offset;
  char kind; /* 's'ize_t, 'u'int32_t, 'd'ouble, 'i'nt */
} setting;

#define AT(name, kind)                                                                                                             \
  { #name, offsetof(hv_hive_averager_config, name), kind }
static const setting settings[] = {AT(part_bytes, 's'), AT(alpha, 'd'),      AT(target_group, 's'), AT(min_group, 's'),
                                   AT(round_ms, 'u'),   AT(stall_ms, 'u'),   AT(request_ms, 'u'),   AT(bandwidth, 'd'),
                                   AT(auxiliary, 'i'),  AT(min_vector, 's'), AT(apart, 'i'),        AT(weight_max, 'd'),
                                   AT(norm_ratio, 'd'), AT(compared, 's')};

static int set_one(hv_hive_averager_config *config, const setting *s, PyObject *value) {
  char *at = (char *)config + s->offset;
  if (s->kind == 'd') {
    double number = PyFloat_AsDouble(value);
    memcpy(at, &number, sizeof number);
    return PyErr_Occurred() ? -1 : 0;
  }
  long long number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred())
    return -1;
  if (number < 0 || number > (s->kind == 'i' ? 1 : UINT32_MAX - 1ll)) {
    PyErr_Format(PyExc_ValueError, "%s cannot be %R", s->name, value);
    return -1;
  }
  size_t wide = (size_t)number;
  uint32_t narrow = (uint32_t)number;
  int choice = (int)number;
  memcpy(at,
         s->kind == 's'   ? (void *)&wide
         : s->kind == 'u' ? (void *)&narrow
                          : (void *)&choice,
         s->kind == 's'   ? sizeof wide
         : s->kind == 'u' ? sizeof narrow
                          : sizeof choice);
  return 0;
}

static int read_settings(PyObject *dict, hv_hive_averager_config *config) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value)) {
    const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, NULL) : NULL;
    const setting *known = NULL;
    for (size_t i = 0; name && i < sizeof settings / sizeof *settings; i++)
      if (strcmp(settings[i].name, name) == 0)
        known = &settings[i];
    if (!known) {
      PyErr_Format(PyExc_TypeError, "an averager has no setting %R", key);
      return -1;
    }
    if (set_one(config, known, value) < 0)
      return -1;
  }
  return 0;
}

/* ---- making one ---- */

/* A layout (dtype number, shape) in place of a tensor: an auxiliary peer holds no values. 0, or -1 with the error raised. */
static int read_layout(bind_state *state, PyObject *layout, bind_tensor *out) {
  PyObject *shape;
  memset(out, 0, sizeof *out);
  if (!PyArg_ParseTuple(layout, "iO!", &out->dtype, &PyTuple_Type, &shape))
    return -1;
  Py_ssize_t n = PyTuple_Size(shape);
  uint64_t values = 1;
  int fits = n <= BIND_TENSOR_DIMS_MAX && hv_dtype_size(out->dtype);
  for (Py_ssize_t i = 0; fits && i < n; i++) {
    long long size = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    if (size == -1 && PyErr_Occurred())
      return -1;
    fits = size >= 0 && (size == 0 || values <= (uint64_t)INT64_MAX / 16 / (uint64_t)size);
    values *= (uint64_t)size;
    out->shape[i] = size;
  }
  if (!fits) {
    bind_raise(state, HV_INVALID, "a layout must have the number of a dtype, and a shape that a tensor may have");
    return -1;
  }
  out->n_dims = (int)n;
  return 0;
}

/* Borrows all of (tensor, codec number, transfers or None, whether it is apart, number of its narrow codec or 0). An auxiliary peer
 * may give layouts instead. */
static int borrow_all(bind_state *state, py_averager *self, PyObject *list, int auxiliary, hv_hive_tensor *out) {
  for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
    PyObject *tensor, *transfers = Py_None;
    const struct hv_device *device = NULL;
    int codec, apart = 0, narrow = 0;
    char what[48];
    PyOS_snprintf(what, sizeof what, "averaged_tensors[%zd]", i);
    if (!PyArg_ParseTuple(PyList_GetItem(list, i), "Oi|Opi", &tensor, &codec, &transfers, &apart, &narrow))
      return -1;
    bind_tensor *loan = &self->tensors[self->n_tensors];
    if (auxiliary && PyTuple_Check(tensor) ? read_layout(state, tensor, loan) < 0
        : transfers != Py_None             ? !(device = bind_transfers_borrow(state, transfers, tensor, what, loan))
                                           : bind_tensor_borrow_plain(state, tensor, 1, what, loan) < 0)
      return -1;
    self->n_tensors++;
    out[i] = (hv_hive_tensor){loan->data, loan->dtype, codec, loan->shape, (size_t)loan->n_dims, device, apart, narrow};
  }
  return 0;
}

static void return_all(py_averager *self) {
  for (size_t i = 0; i < self->n_tensors; i++)
    bind_tensor_return(&self->tensors[i]);
  self->n_tensors = 0;
  hv_mem_free(self->tensors);
  self->tensors = NULL;
  Py_CLEAR(self->list);
}

static int open_averager(bind_state *state, py_averager *self, PyObject *list, hv_hive_averager_config *config) {
  size_t n = (size_t)PyList_Size(list);
  self->list = Py_NewRef(list);
  hv_hive_tensor *tensors = hv_mem_array(state->mem, n + 1, sizeof *tensors);
  self->tensors = hv_mem_array(state->mem, n + 1, sizeof *self->tensors);
  hv_error err = {0};
  hv_status status = HV_NOMEM;
  int rc = -1;
  if (!tensors || !self->tensors)
    PyErr_NoMemory();
  else if (borrow_all(state, self, list, config->auxiliary, tensors) == 0) {
    config->tensors = tensors;
    config->n_tensors = n;
    Py_BEGIN_ALLOW_THREADS
    status = hv_hive_averager_new(self->node->hive, config, &self->averager, &err);
    Py_END_ALLOW_THREADS
    if (status == HV_OK)
      rc = 0;
    else
      bind_raise_why(state, status, &err);
  }
  hv_mem_free(tensors);
  return rc;
}

static PyObject *averager_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {"node", "prefix", "tensors", "group_bits", "settings", NULL};
  bind_state *state = PyType_GetModuleState(type);
  PyObject *node, *list, *dict;
  hv_hive_averager_config config = {.alpha = 1};
  if (!state || !PyArg_ParseTupleAndKeywords(args, kwargs, "O!sO!sO!:Averager", (char **)names, state->node, &node, &config.prefix,
                                             &PyList_Type, &list, &config.group_bits, &PyDict_Type, &dict))
    return NULL;
  if (bind_node_check((bind_node *)node) < 0 || read_settings(dict, &config) < 0)
    return NULL;
  py_averager *self = (py_averager *)PyType_GenericAlloc(type, 0);
  if (!self)
    return NULL;
  Py_INCREF(node);
  self->node = (bind_node *)node;
  int has_users = bind_users_init(&self->users) == 0;
  if (!has_users)
    PyErr_NoMemory();
  if (!has_users || open_averager(state, self, list, &config) < 0)
    Py_CLEAR(self);
  return (PyObject *)self;
}

/* Others that wait in it see within a slice that it is closed. */
static void close_averager(py_averager *self) {
  hv_hive_averager *averager = self->averager;
  self->averager = NULL;
  if (averager) {
    Py_BEGIN_ALLOW_THREADS
    bind_users_wait(&self->users);
    hv_hive_averager_free(averager);
    Py_END_ALLOW_THREADS
    return_all(self);
  }
}

/* In a forked child nothing is touched: the threads that use the tensors stayed behind. */
static void averager_finalize(PyObject *object) {
  py_averager *self = (py_averager *)object;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (self->node && self->node->pid == getpid()) {
    close_averager(self);
    return_all(self);
  }
  bind_users_fini(&self->users);
  Py_CLEAR(self->node);
  PyErr_Restore(type, value, traceback);
}

static PyObject *averager_close(PyObject *object, PyObject *ignored) {
  py_averager *self = (py_averager *)object;
  (void)ignored;
  if (self->node->pid == getpid())
    close_averager(self);
  Py_RETURN_NONE;
}

/* ---- the result of a step's future ---- */

static PyObject *step_tuple(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *peer) {
  (void)state, (void)future, (void)peer;
  const hv_hive_average *a = (const hv_hive_average *)bytes.data;
  PyObject *members = PyTuple_New((Py_ssize_t)a->n_members);
  for (size_t i = 0; members && i < a->n_members; i++) {
    const hv_hive_member *m = &a->members[i];
    PyObject *one =
        Py_BuildValue("(NNNNy#d)", bind_peer_text(&m->id), PyBool_FromLong(m->me), PyBool_FromLong(m->client),
                      PyBool_FromLong(m->auxiliary), (const char *)m->gather.data, (Py_ssize_t)m->gather.size, m->share);
    if (!one || PyTuple_SetItem(members, (Py_ssize_t)i, one) < 0)
      Py_CLEAR(members);
  }
  PyObject *missed = members ? PyTuple_New((Py_ssize_t)a->n_missed) : NULL;
  for (size_t i = 0; missed && i < a->n_missed; i++) {
    PyObject *range = Py_BuildValue("(KK)", (unsigned long long)a->missed[i].at, (unsigned long long)a->missed[i].size);
    if (!range || PyTuple_SetItem(missed, (Py_ssize_t)i, range) < 0)
      Py_CLEAR(missed);
  }
  if (!missed) {
    Py_XDECREF(members);
    return NULL;
  }
  return Py_BuildValue("(NIIKdddINNdK)", members, (unsigned)a->n_chunks, (unsigned)a->averaged, (unsigned long long)a->bytes,
                       a->matching_s, a->waiting_s, a->reducing_s, a->tries, missed, PyBool_FromLong(a->narrow), a->part,
                       (unsigned long long)a->stamp);
}

static const bind_future_kind step_kind = {.awaited = "a round of averaging", .convert = step_tuple};

/* ---- steps ---- */

static PyObject *averager_step(PyObject *object, PyObject *args) {
  py_averager *self = (py_averager *)object;
  bind_state *state = state_of(self);
  Py_buffer gather, epoch;
  PyObject *wait, *timeout;
  double weight;
  Py_ssize_t expected;
  hv_hive_step step = {0};
  hv_future *future = NULL;
  if (!PyArg_ParseTuple(args, "y*y*dOOnpp|ppp:step", &gather, &epoch, &weight, &wait, &timeout, &expected, &step.require_trigger,
                        &step.allow_retries, &step.repeats, &step.keep, &step.listens))
    return NULL;
  hv_status status = HV_INVALID;
  /* usable or not is asked last: a number's __float__ is the program's, and may close this */
  int fine = bind_timeout(wait, &step.wait_ms) == 0 && bind_timeout(timeout, &step.timeout_ms) == 0 && check_usable(self) == 0;
  if (fine) {
    step.weight = (float)weight;
    step.gather = hv_span_of(gather.buf, (size_t)gather.len);
    step.epoch = hv_span_of(epoch.buf, (size_t)epoch.len);
    step.expected = expected > 0 ? (size_t)expected : 0;
    status = hv_hive_averager_step(self->averager, &step, &future);
  }
  PyBuffer_Release(&gather);
  PyBuffer_Release(&epoch);
  return fine ? bind_node_future(self->node, &step_kind, status, future) : NULL;
}

static PyObject *say(PyObject *object, PyObject *step, hv_status (*how)(hv_hive_averager *averager, hv_future *step)) {
  py_averager *self = (py_averager *)object;
  hv_future *future = check_usable(self) == 0 ? bind_future_inner(state_of(self), step) : NULL;
  if (!future)
    return NULL;
  hv_status status = how(self->averager, future);
  return status == HV_OK || status == HV_CLOSED ? Py_NewRef(Py_None) : bind_raise(state_of(self), status, NULL);
}

static PyObject *averager_send_narrow(PyObject *object, PyObject *step) {
  return say(object, step, hv_hive_averager_send_narrow);
}

static PyObject *averager_trigger(PyObject *object, PyObject *step) {
  return say(object, step, hv_hive_averager_trigger);
}

static PyObject *averager_give_up(PyObject *object, PyObject *step) {
  return say(object, step, hv_hive_averager_give_up);
}

static PyObject *averager_in_part(PyObject *object, PyObject *ignored) {
  py_averager *self = (py_averager *)object;
  (void)ignored;
  return check_usable(self) == 0 ? PyLong_FromUnsignedLong(hv_hive_averager_in_part(self->averager)) : NULL;
}

static PyObject *averager_kept_size(PyObject *object, PyObject *ignored) {
  py_averager *self = (py_averager *)object;
  (void)ignored;
  return check_usable(self) == 0 ? PyLong_FromUnsignedLongLong(hv_hive_averager_kept_size(self->averager)) : NULL;
}

static PyObject *averager_changed(PyObject *object, PyObject *ignored) {
  py_averager *self = (py_averager *)object;
  (void)ignored;
  return check_usable(self) == 0 ? PyBool_FromLong(hv_hive_averager_changed(self->averager)) : NULL;
}

static PyObject *averager_had_group(PyObject *object, PyObject *ignored) {
  py_averager *self = (py_averager *)object;
  (void)ignored;
  return check_usable(self) == 0 ? PyBool_FromLong(hv_hive_averager_had_group(self->averager)) : NULL;
}

static PyObject *averager_set_weight(PyObject *object, PyObject *args) {
  py_averager *self = (py_averager *)object;
  PyObject *step;
  double weight;
  if (!PyArg_ParseTuple(args, "Od:set_weight", &step, &weight))
    return NULL;
  hv_future *future = check_usable(self) == 0 ? bind_future_inner(state_of(self), step) : NULL;
  if (!future)
    return NULL;
  hv_status status = hv_hive_averager_weight(self->averager, future, (float)weight);
  if (status == HV_INVALID)
    return bind_raise(state_of(self), status, "the weight must be finite and 0 or more");
  return status == HV_OK || status == HV_CLOSED ? Py_NewRef(Py_None) : bind_raise(state_of(self), status, NULL);
}

static PyObject *averager_reached(PyObject *object, PyObject *args) {
  py_averager *self = (py_averager *)object;
  unsigned long long epoch;
  if (!PyArg_ParseTuple(args, "K:reached", &epoch) || check_usable(self) < 0)
    return NULL;
  hv_status status = hv_hive_averager_reached(self->averager, epoch);
  return status == HV_OK || status == HV_CLOSED ? Py_NewRef(Py_None) : bind_raise(state_of(self), status, NULL);
}

static PyObject *averager_comes(PyObject *object, PyObject *args) {
  py_averager *self = (py_averager *)object;
  unsigned long long epoch;
  if (!PyArg_ParseTuple(args, "K:comes", &epoch) || check_usable(self) < 0)
    return NULL;
  hv_status status = hv_hive_averager_comes(self->averager, epoch);
  return status == HV_OK || status == HV_CLOSED ? Py_NewRef(Py_None) : bind_raise(state_of(self), status, NULL);
}

static PyObject *averager_awaits(PyObject *object, PyObject *args) {
  py_averager *self = (py_averager *)object;
  unsigned long long epoch;
  int awaits;
  if (!PyArg_ParseTuple(args, "K:awaits", &epoch) || check_usable(self) < 0)
    return NULL;
  hv_hive_averager *averager = self->averager;
  bind_users_enter(&self->users);
  Py_BEGIN_ALLOW_THREADS
  awaits = hv_hive_averager_awaits(averager, epoch);
  Py_END_ALLOW_THREADS
  bind_users_leave(&self->users);
  return PyBool_FromLong(awaits);
}

static PyObject *averager_step_aside(PyObject *object, PyObject *ignored) {
  py_averager *self = (py_averager *)object;
  (void)ignored;
  if (check_usable(self) < 0)
    return NULL;
  hv_status status = hv_hive_averager_step_aside(self->averager);
  return status == HV_OK || status == HV_CLOSED ? Py_NewRef(Py_None) : bind_raise(state_of(self), status, NULL);
}

/* ---- the lock on the tensors ---- */

/* One slice of a wait: signals are looked at between them. */
static PyObject *averager_lock(PyObject *object, PyObject *args) {
  py_averager *self = (py_averager *)object;
  PyObject *timeout;
  uint32_t timeout_ms;
  int locked;
  if (!PyArg_ParseTuple(args, "O:lock", &timeout) || bind_timeout(timeout, &timeout_ms) < 0 || check_usable(self) < 0)
    return NULL;
  hv_hive_averager *averager = self->averager;
  bind_users_enter(&self->users);
  Py_BEGIN_ALLOW_THREADS
  locked = hv_hive_averager_lock(averager, timeout_ms < SLICE_MS ? timeout_ms : SLICE_MS);
  Py_END_ALLOW_THREADS
  bind_users_leave(&self->users);
  if (locked && PyErr_CheckSignals() < 0) { /* who is told of Ctrl-C is not told that it has the lock */
    if (self->averager)
      hv_hive_averager_unlock(self->averager);
    return NULL;
  }
  return PyBool_FromLong(locked);
}

static PyObject *averager_unlock(PyObject *object, PyObject *ignored) {
  py_averager *self = (py_averager *)object;
  (void)ignored;
  if (self->averager && self->node->pid == getpid())
    hv_hive_averager_unlock(self->averager);
  Py_RETURN_NONE;
}

/* ---- group bits ---- */

static PyObject *averager_bits(PyObject *object, PyObject *ignored) {
  py_averager *self = (py_averager *)object;
  char bits[HV_GROUP_BITS_MAX + 1];
  (void)ignored;
  if (check_usable(self) < 0)
    return NULL;
  hv_hive_averager *averager = self->averager;
  bind_users_enter(&self->users);
  Py_BEGIN_ALLOW_THREADS
  hv_hive_averager_bits(averager, bits);
  Py_END_ALLOW_THREADS
  bind_users_leave(&self->users);
  return PyUnicode_FromString(bits);
}

static PyObject *averager_set_bits(PyObject *object, PyObject *args) {
  py_averager *self = (py_averager *)object;
  const char *bits;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "s:set_bits", &bits) || check_usable(self) < 0)
    return NULL;
  hv_hive_averager *averager = self->averager;
  bind_users_enter(&self->users);
  Py_BEGIN_ALLOW_THREADS
  status = hv_hive_averager_set_bits(averager, bits, &err);
  Py_END_ALLOW_THREADS
  bind_users_leave(&self->users);
  return status == HV_OK ? Py_NewRef(Py_None) : bind_raise_why(state_of(self), status, &err);
}

/* ---- the setup ---- */

static PyObject *averager_set_setup(PyObject *object, PyObject *args) {
  py_averager *self = (py_averager *)object;
  Py_buffer setup;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "y*:set_setup", &setup))
    return NULL;
  if (check_usable(self) < 0) {
    PyBuffer_Release(&setup);
    return NULL;
  }
  hv_hive_averager *averager = self->averager;
  bind_users_enter(&self->users);
  Py_BEGIN_ALLOW_THREADS
  status = hv_hive_averager_set_setup(averager, hv_span_of(setup.buf, (size_t)setup.len), &err);
  Py_END_ALLOW_THREADS
  bind_users_leave(&self->users);
  PyBuffer_Release(&setup);
  return status == HV_OK ? Py_NewRef(Py_None) : bind_raise_why(state_of(self), status, &err);
}

static const PyMethodDef methods[] = {
    {"step", averager_step, METH_VARARGS,
     "step(gather, epoch, weight, wait, timeout, expected, require_trigger, allow_retries, repeats=False, keep=False,\n"
     "listens=False): a future."},
    {"give_up", averager_give_up, METH_O, "give_up(step): it ends, if it has no group yet."},
    {"kept_size", averager_kept_size, METH_NOARGS, "Bytes of the averages that a step with keep=True keeps."},
    {"changed", averager_changed, METH_NOARGS,
     "Whether averages of the last step changed the compared tensors by more than roundings."},
    {"had_group", averager_had_group, METH_NOARGS, "Whether the last step had a group, though it may have failed."},
    {"in_part", averager_in_part, METH_NOARGS, "Chunks of the last step that hold its average though it failed."},
    {"trigger", averager_trigger, METH_O, "trigger(step): its all-reduce may begin."},
    {"send_narrow", averager_send_narrow, METH_O, "send_narrow(step): under narrow codecs, unless its all-reduce has begun."},
    {"set_weight", averager_set_weight, METH_VARARGS, "set_weight(step, weight): until its all-reduce begins."},
    {"awaits", averager_awaits, METH_VARARGS,
     "awaits(epoch): whether another peer comes to it with a state that it has yet to load."},
    {"comes", averager_comes, METH_VARARGS, "comes(epoch): it missed a step, and takes part from that epoch on."},
    {"step_aside", averager_step_aside, METH_NOARGS, "Nobody waits for this peer until its next step, or reached()."},
    {"reached", averager_reached, METH_VARARGS, "reached(epoch): no step for an earlier one will come."},
    {"lock", averager_lock, METH_VARARGS,
     "lock(timeout): True when no round touches the tensors until unlock(). Waits 50 ms at most."},
    {"unlock", averager_unlock, METH_NOARGS, "Lets rounds go on."},
    {"bits", averager_bits, METH_NOARGS, "Its group bits."},
    {"set_bits", averager_set_bits, METH_VARARGS, "set_bits(bits)"},
    {"set_setup", averager_set_setup, METH_VARARGS, "set_setup(setup): lines on which members of a group must agree."},
    {"close", averager_close, METH_NOARGS, "Ends its steps and gives the tensors back. May be called twice."},
    {NULL, NULL, 0, NULL}};

PyTypeObject *bind_averager_type(PyObject *module) {
  PyType_Slot slots[] = {{Py_tp_doc, (void *)"Averager(node, prefix, tensors, group_bits, settings): tensors is a list of (tensor, "
                                             "codec number, transfers or None, apart, narrow codec's)."},
                         {Py_tp_new, (void *)averager_new},
                         {Py_tp_finalize, (void *)averager_finalize},
                         {Py_tp_methods, (void *)methods},
                         {0, NULL}};
  PyType_Spec spec = {.name = "hivemind_c.Averager",
                      .basicsize = sizeof(py_averager),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
