/* The log of a run: averages that this peer keeps for others, and those of others that it repeats (core/state/step_log.h). */
#include "bind.h"

#include <string.h>

typedef struct py_log {
  PyObject_HEAD
  bind_node *node;       /* kept */
  hv_hive_step_log *log; /* NULL: closed */
  bind_users users;
} py_log;

static bind_state *state_of(py_log *self) {
  return PyType_GetModuleState(Py_TYPE(self));
}

/* 0, or -1 with the error raised that it cannot be used here. */
static int check_usable(py_log *self) {
  if (!self->log) {
    bind_raise(state_of(self), HV_CLOSED, "cannot use this log: it was closed");
    return -1;
  }
  return bind_node_check(self->node);
}

/* Around work without the GIL. */
static hv_hive_step_log *come_in(py_log *self) {
  bind_users_enter(&self->users);
  return self->log;
}

/* None for the program after HV_OK; else the error, raised. */
static PyObject *outcome(py_log *self, hv_status status, const hv_error *err) {
  return status == HV_OK ? Py_NewRef(Py_None) : bind_raise_why(state_of(self), status, err);
}

/* ---- life ---- */

static PyObject *log_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {"node", "key", "memory", NULL};
  bind_state *state = PyType_GetModuleState(type);
  PyObject *node;
  const char *key;
  Py_ssize_t size;
  unsigned long long memory;
  hv_error err = {0};
  hv_status status;
  if (!state || !PyArg_ParseTupleAndKeywords(args, kwargs, "O!s#O&:StepLog", (char **)names, state->node, &node, &key, &size,
                                             bind_whole_number, &memory))
    return NULL;
  if (bind_node_check((bind_node *)node) < 0)
    return NULL;
  py_log *self = (py_log *)PyType_GenericAlloc(type, 0);
  if (!self)
    return NULL;
  self->node = (bind_node *)Py_NewRef(node);
  if (bind_users_init(&self->users) < 0) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_step_log_open(self->node->hive, hv_span_of(key, (size_t)size), memory, &self->log, &err);
  Py_END_ALLOW_THREADS;
  if (status == HV_OK)
    return (PyObject *)self;
  Py_DECREF(self);
  return bind_raise_why(state, status, &err);
}

static void closes(py_log *self) {
  hv_hive_step_log *log = self->log;
  self->log = NULL;
  if (!log)
    return;
  Py_BEGIN_ALLOW_THREADS;
  bind_users_wait(&self->users);
  hv_hive_step_log_free(log);
  Py_END_ALLOW_THREADS;
}

static PyObject *log_close(PyObject *object, PyObject *ignored) {
  py_log *self = (py_log *)object;
  (void)ignored;
  if (self->node->pid == getpid())
    closes(self);
  Py_RETURN_NONE;
}

/* In a forked child nothing is touched. */
static void log_finalize(PyObject *object) {
  py_log *self = (py_log *)object;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (self->node && self->node->pid == getpid())
    closes(self);
  bind_users_fini(&self->users);
  Py_CLEAR(self->node);
  PyErr_Restore(type, value, traceback);
}

/* ---- to keep ---- */

/* -1 with an error raised. */
static int read_stamps(PyObject *list, hv_hive_entry *entry) {
  Py_ssize_t n = PySequence_Size(list);
  if (n < 0)
    return -1;
  if (n < 1 || n > HV_HIVE_STEP_LOG_STAMPS) {
    PyErr_Format(PyExc_ValueError, "an average of the log has 1 to %d stamps, not %zd", HV_HIVE_STEP_LOG_STAMPS, n);
    return -1;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *one = PySequence_GetItem(list, i);
    entry->stamps[i] = one ? PyLong_AsUnsignedLongLong(one) : 0;
    Py_XDECREF(one);
    if (PyErr_Occurred())
      return -1;
  }
  entry->n_stamps = (size_t)n;
  return 0;
}

/* -1 with an error raised. */
static int read_before(const char *before, Py_ssize_t size, hv_hive_entry *entry) {
  if (size != sizeof entry->before) {
    PyErr_Format(PyExc_ValueError, "a mark has %zu bytes, not %zd", sizeof entry->before, size);
    return -1;
  }
  memcpy(entry->before, before, sizeof entry->before);
  return 0;
}

typedef hv_status keep_entry(hv_hive_step_log *log, hv_hive_averager *averager, hv_hive_entry *entry, hv_error *err);

/* NULL: an error is raised. */
static PyObject *keeps(py_log *self, PyObject *averager, hv_hive_entry *entry, keep_entry *keep) {
  hv_error err = {0};
  hv_status status;
  hv_hive_averager *inner = check_usable(self) < 0 ? NULL : bind_averager_enter(averager);
  if (!inner)
    return NULL;
  hv_hive_step_log *log = come_in(self);
  Py_BEGIN_ALLOW_THREADS;
  status = keep(log, inner, entry, &err);
  Py_END_ALLOW_THREADS;
  bind_users_leave(&self->users);
  bind_averager_leave(averager);
  return outcome(self, status, &err);
}

/* args: (averager, epoch, before, stamps). */
static PyObject *keeps_average(PyObject *object, PyObject *args, keep_entry *keep) {
  PyObject *averager, *stamps;
  unsigned long long epoch;
  const char *before;
  Py_ssize_t size;
  hv_hive_entry entry = {0};
  if (!PyArg_ParseTuple(args, "OO&y#O", &averager, bind_whole_number, &epoch, &before, &size, &stamps))
    return NULL;
  entry.epoch = epoch;
  if (read_before(before, size, &entry) < 0 || read_stamps(stamps, &entry) < 0)
    return NULL;
  return keeps((py_log *)object, averager, &entry, keep);
}

static hv_status adds(hv_hive_step_log *log, hv_hive_averager *averager, hv_hive_entry *entry, hv_error *err) {
  return hv_hive_step_log_add(log, averager, entry, err);
}

static hv_status hears(hv_hive_step_log *log, hv_hive_averager *averager, hv_hive_entry *entry, hv_error *err) {
  return hv_hive_step_log_hear(log, averager, entry, err);
}

static PyObject *log_add(PyObject *object, PyObject *args) {
  return keeps_average(object, args, adds);
}

static PyObject *log_add_own(PyObject *object, PyObject *args) {
  PyObject *averager;
  unsigned long long epoch;
  const char *before;
  Py_ssize_t size;
  hv_hive_entry entry = {0};
  if (!PyArg_ParseTuple(args, "OO&y#", &averager, bind_whole_number, &epoch, &before, &size))
    return NULL;
  entry.epoch = epoch;
  if (read_before(before, size, &entry) < 0)
    return NULL;
  PyObject *none = keeps((py_log *)object, averager, &entry, hv_hive_step_log_add_own);
  Py_XDECREF(none);
  return none ? PyLong_FromUnsignedLongLong(entry.stamps[0]) : NULL;
}

static PyObject *log_hear(PyObject *object, PyObject *args) {
  return keeps_average(object, args, hears);
}

static PyObject *log_end(PyObject *object, PyObject *ignored) {
  py_log *self = (py_log *)object;
  hv_error err = {0};
  hv_status status;
  (void)ignored;
  if (check_usable(self) < 0)
    return NULL;
  hv_hive_step_log *log = come_in(self);
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_step_log_end(log, &err);
  Py_END_ALLOW_THREADS;
  bind_users_leave(&self->users);
  return outcome(self, status, &err);
}

static PyObject *log_offered(PyObject *object, PyObject *ignored) {
  py_log *self = (py_log *)object;
  hv_error err = {0};
  hv_status status;
  size_t n;
  uint64_t first, bytes;
  (void)ignored;
  if (check_usable(self) < 0)
    return NULL;
  hv_hive_step_log *log = come_in(self);
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_step_log_offered(log, &n, &first, &bytes, &err);
  Py_END_ALLOW_THREADS;
  bind_users_leave(&self->users);
  return status == HV_OK ? Py_BuildValue("(nKK)", (Py_ssize_t)n, (unsigned long long)first, (unsigned long long)bytes)
                         : bind_raise_why(state_of(self), status, &err);
}

/* ---- to repeat ---- */

static PyObject *log_want(PyObject *object, PyObject *args) {
  py_log *self = (py_log *)object;
  unsigned long long first, until, made, ahead;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "O&O&O&O&:want", bind_whole_number, &first, bind_whole_number, &until, bind_whole_number, &made,
                        bind_whole_number, &ahead) ||
      check_usable(self) < 0)
    return NULL;
  hv_hive_step_log *log = come_in(self);
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_step_log_want(log, first, until, made, ahead, &err);
  Py_END_ALLOW_THREADS;
  bind_users_leave(&self->users);
  return outcome(self, status, &err);
}

static PyObject *look_tuple(hv_hive_step_log_standing standing, const hv_hive_entry *entry) {
  static const char *const names[] = {"NOT_WANTED", "COMES", "THERE", "LOST"};
  if (standing != HV_HIVE_STEP_LOG_THERE)
    return Py_BuildValue("(sOO)", names[standing], Py_None, Py_None);
  PyObject *stamps = PyTuple_New((Py_ssize_t)entry->n_stamps);
  for (size_t i = 0; stamps && i < entry->n_stamps; i++) {
    PyObject *one = PyLong_FromUnsignedLongLong(entry->stamps[i]);
    if (!one || PyTuple_SetItem(stamps, (Py_ssize_t)i, one) < 0)
      Py_CLEAR(stamps);
  }
  return stamps ? Py_BuildValue("(sy#N)", names[standing], (const char *)entry->before, (Py_ssize_t)sizeof entry->before, stamps)
                : NULL;
}

static PyObject *log_look(PyObject *object, PyObject *args) {
  py_log *self = (py_log *)object;
  unsigned long long epoch;
  hv_hive_step_log_standing standing;
  hv_hive_entry entry;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "O&:look", bind_whole_number, &epoch) || check_usable(self) < 0)
    return NULL;
  hv_hive_step_log *log = come_in(self);
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_step_log_look(log, epoch, &standing, &entry, &err);
  Py_END_ALLOW_THREADS;
  bind_users_leave(&self->users);
  return status == HV_OK ? look_tuple(standing, &entry) : bind_raise_why(state_of(self), status, &err);
}

static PyObject *log_repeat(PyObject *object, PyObject *args) {
  py_log *self = (py_log *)object;
  PyObject *averager;
  unsigned long long epoch;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "O&O:repeat", bind_whole_number, &epoch, &averager) || check_usable(self) < 0)
    return NULL;
  hv_hive_averager *inner = bind_averager_enter(averager);
  if (!inner)
    return NULL;
  hv_hive_step_log *log = come_in(self);
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_step_log_repeat(log, epoch, inner, &err);
  Py_END_ALLOW_THREADS;
  bind_users_leave(&self->users);
  bind_averager_leave(averager);
  return outcome(self, status, &err);
}

static PyObject *log_refuse(PyObject *object, PyObject *args) {
  py_log *self = (py_log *)object;
  unsigned long long epoch;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "O&:refuse", bind_whole_number, &epoch) || check_usable(self) < 0)
    return NULL;
  hv_hive_step_log *log = come_in(self);
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_step_log_refuse(log, epoch, &err);
  Py_END_ALLOW_THREADS;
  bind_users_leave(&self->users);
  return outcome(self, status, &err);
}

static PyObject *log_progress(PyObject *object, PyObject *ignored) {
  py_log *self = (py_log *)object;
  uint64_t come, all;
  hv_error err = {0};
  hv_status status;
  (void)ignored;
  if (check_usable(self) < 0)
    return NULL;
  hv_hive_step_log *log = come_in(self);
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_step_log_progress(log, &come, &all, &err);
  Py_END_ALLOW_THREADS;
  bind_users_leave(&self->users);
  return status == HV_OK ? Py_BuildValue("(KK)", (unsigned long long)come, (unsigned long long)all)
                         : bind_raise_why(state_of(self), status, &err);
}

static PyObject *log_changes(PyObject *object, void *closure) {
  py_log *self = (py_log *)object;
  (void)closure;
  return check_usable(self) < 0 ? NULL : PyLong_FromUnsignedLongLong(hv_hive_step_log_changes(self->log));
}

static PyMethodDef methods[] = {
    {"add", log_add, METH_VARARGS,
     "add(averager, epoch, before, stamps): offers what the averager's last step kept, which ended the epoch. before: mark of the\n"
     "replica that makes the step. On an error there are no entries any more."},
    {"add_own", log_add_own, METH_VARARGS,
     "add_own(averager, epoch, before) -> stamp: the same of the averager's values, as a step by this peer itself. They become "
     "what\n"
     "others will have, which may be so after an error, too."},
    {"end", log_end, METH_NOARGS, "end(): withdraws all entries."},
    {"offered", log_offered, METH_NOARGS, "offered() -> (entries on offer, epoch of the oldest, bytes of all)"},
    {"want", log_want, METH_VARARGS,
     "want(first, until, made, ahead): the entries of the epochs first to until - 1 come, of which at most `ahead` bytes wait.\n"
     "Those from `made` on may still be averaged."},
    {"look", log_look, METH_VARARGS,
     "look(epoch) -> (standing, mark before, stamps). standing: NOT_WANTED, COMES, THERE or LOST; the others are None unless\n"
     "THERE."},
    {"hear", log_hear, METH_VARARGS,
     "hear(averager, epoch, before, stamps): what the averager's last step kept, which listened, is the entry of that epoch."},
    {"repeat", log_repeat, METH_VARARGS,
     "repeat(epoch, averager): writes an entry that is THERE into the averager's tensors, whose lock the caller holds."},
    {"refuse", log_refuse, METH_VARARGS, "refuse(epoch): looks for the entry again, without the one that is there."},
    {"progress", log_progress, METH_NOARGS, "progress() -> (bytes that have come of the entry under way, all of them)"},
    {"close", log_close, METH_NOARGS, "close(): withdraws all entries. May be called twice."},
    {NULL, NULL, 0, NULL}};

static const PyGetSetDef attributes[] = {{"changes", log_changes, NULL, "How often an entry came or was lost.", NULL},
                                         {NULL, NULL, NULL, NULL, NULL}};

int hv_py_step_log_init(PyObject *module) {
  PyType_Slot slots[] = {{Py_tp_doc, (void *)"The averages of a run's latest epochs: StepLog(node, key, memory). key: that of the "
                                             "run's states; memory: most bytes of entries on offer."},
                         {Py_tp_new, (void *)log_new},
                         {Py_tp_finalize, (void *)log_finalize},
                         {Py_tp_methods, (void *)methods},
                         {Py_tp_getset, (void *)attributes},
                         {0, NULL}};
  PyType_Spec spec = {.name = "_hivemind_c.StepLog",
                      .basicsize = sizeof(py_log),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  return bind_type_add(module, &spec, "StepLog");
}
