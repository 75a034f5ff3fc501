#include "bind.h"

#include <string.h>

typedef struct py_progress {
  PyObject_HEAD
  bind_node *node; /* kept: the hive must outlive it */
  hv_hive_progress *progress;
  pid_t pid;
} py_progress;

static bind_state *state_of(py_progress *self) {
  return PyType_GetModuleState(Py_TYPE(self));
}

hv_hive_progress *bind_progress_of(PyObject *object) {
  py_progress *self = (py_progress *)object;
  return getpid() == self->pid ? self->progress : NULL;
}

static int check(py_progress *self) {
  if (getpid() == self->pid)
    return 0;
  bind_raise(state_of(self), HV_FORKED, "cannot use this tracker: it was made before fork(); use it in the parent process");
  return -1;
}

static int milliseconds(PyObject *object, void *out) {
  uint32_t *ms = out;
  return bind_timeout(object, ms) == 0;
}

static PyObject *progress_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {"node",
                                      "prefix",
                                      "target_batch_size",
                                      "client_mode",
                                      "batch_size_lead",
                                      "matchmaking_time",
                                      "min_refresh_period",
                                      "max_refresh_period",
                                      "default_refresh_period",
                                      "expected_drift_peers",
                                      "expected_drift_rate",
                                      "performance_ema_alpha",
                                      "metadata_expiration",
                                      "fast",
                                      NULL};
  bind_state *state = PyType_GetModuleState(type);
  PyObject *node;
  unsigned long long target = 0, lead = 0;
  hv_error err = {0};
  hv_hive_progress_config config = {.expected_drift_peers = -1, .expected_drift_rate = -1};
  hv_status status;
  if (!state ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "O!sO&|$pO&O&O&O&O&dddO&d:Progress", (char **)names, state->node, &node,
                                   &config.prefix, bind_whole_number, &target, &config.client_mode, bind_whole_number, &lead,
                                   milliseconds, &config.matchmaking_ms, milliseconds, &config.min_refresh_ms, milliseconds,
                                   &config.max_refresh_ms, milliseconds, &config.default_refresh_ms, &config.expected_drift_peers,
                                   &config.expected_drift_rate, &config.ema_alpha, milliseconds, &config.expiration_ms,
                                   &config.fast) ||
      bind_node_check((bind_node *)node) < 0)
    return NULL;
  config.target_batch_size = target;
  config.batch_size_lead = lead;
  py_progress *self = (py_progress *)PyType_GenericAlloc(type, 0);
  if (!self)
    return NULL;
  self->pid = getpid();
  status = hv_hive_progress_open(((bind_node *)node)->hive, &config, &self->progress, &err);
  if (status != HV_OK) {
    self->progress = NULL;
    Py_DECREF(self);
    return bind_raise_why(state, status, &err);
  }
  Py_INCREF(node);
  self->node = (bind_node *)node;
  return (PyObject *)self;
}

static void progress_finalize(PyObject *object) {
  py_progress *self = (py_progress *)object;
  hv_hive_progress *progress = self->progress;
  self->progress = NULL;
  if (getpid() == self->pid)
    hv_hive_progress_free(progress);
  Py_CLEAR(self->node);
}

static PyObject *progress_close(PyObject *object, PyObject *ignored) {
  py_progress *self = (py_progress *)object;
  (void)ignored;
  if (getpid() == self->pid)
    hv_hive_progress_close(self->progress);
  Py_RETURN_NONE;
}

static PyObject *answer(py_progress *self, hv_status status) {
  if (status == HV_OK)
    Py_RETURN_NONE;
  return bind_raise(state_of(self), status, status == HV_CLOSED ? "cannot use this tracker: it or its node was shut down" : NULL);
}

static PyObject *progress_report(PyObject *object, PyObject *args) {
  py_progress *self = (py_progress *)object;
  unsigned long long epoch, samples;
  if (check(self) < 0 || !PyArg_ParseTuple(args, "O&O&:report", bind_whole_number, &epoch, bind_whole_number, &samples))
    return NULL;
  hv_status status = hv_hive_progress_report(self->progress, epoch, samples);
  if (status == HV_INVALID)
    return bind_raise(state_of(self), status, "the epoch and the number of samples must be at most 2^48");
  return answer(self, status == HV_CLOSED ? HV_OK : status); /* it is noted, though nobody hears of it any more */
}

static PyObject *progress_pause(PyObject *object, PyObject *args) {
  py_progress *self = (py_progress *)object;
  int on;
  if (check(self) < 0 || !PyArg_ParseTuple(args, "p:pause", &on))
    return NULL;
  hv_hive_progress_pause(self->progress, on);
  Py_RETURN_NONE;
}

static PyObject *progress_withdraw(PyObject *object, PyObject *ignored) {
  py_progress *self = (py_progress *)object;
  (void)ignored;
  return check(self) < 0 ? NULL : answer(self, hv_hive_progress_withdraw(self->progress));
}

static PyObject *progress_disbelieve(PyObject *object, PyObject *args) {
  py_progress *self = (py_progress *)object;
  unsigned long long epoch;
  uint32_t for_ms;
  if (check(self) < 0 || !PyArg_ParseTuple(args, "O&O&:disbelieve", bind_whole_number, &epoch, milliseconds, &for_ms))
    return NULL;
  hv_hive_progress *progress = self->progress;
  hv_status status;
  Py_BEGIN_ALLOW_THREADS
  status = hv_hive_progress_disbelieve(progress, epoch, for_ms);
  Py_END_ALLOW_THREADS
  if (status == HV_INVALID)
    return bind_raise(state_of(self), status, "cannot doubt that: give an epoch of 1 or more, and a time of 1 ms or more");
  return answer(self, status == HV_TIMEOUT || status == HV_CLOSED ? HV_OK : status); /* the figures stay, or follow soon */
}

static PyObject *progress_refresh(PyObject *object, PyObject *ignored) {
  py_progress *self = (py_progress *)object;
  (void)ignored;
  return check(self) < 0 ? NULL : answer(self, hv_hive_progress_refresh(self->progress));
}

static PyObject *progress_wait(PyObject *object, PyObject *args) {
  py_progress *self = (py_progress *)object;
  PyObject *timeout = Py_None;
  uint32_t timeout_ms;
  if (check(self) < 0 || !PyArg_ParseTuple(args, "|O:wait", &timeout) || bind_timeout(timeout, &timeout_ms) < 0)
    return NULL;
  enum { SLICE_MS = 50 }; /* so that Ctrl-C is heard */
  hv_status status = HV_TIMEOUT;
  hv_hive_progress *progress = self->progress;
  for (uint32_t left = timeout_ms; status == HV_TIMEOUT; left -= left == UINT32_MAX ? 0 : left < SLICE_MS ? left : SLICE_MS) {
    Py_BEGIN_ALLOW_THREADS
    status = hv_hive_progress_wait(progress, left < SLICE_MS ? left : SLICE_MS);
    Py_END_ALLOW_THREADS
    if (PyErr_CheckSignals() < 0)
      return NULL;
    if (left == 0)
      break;
  }
  if (status == HV_TIMEOUT)
    Py_RETURN_FALSE;
  if (status != HV_OK)
    return answer(self, status);
  Py_RETURN_TRUE;
}

/* 0: *out has the figures of now; -1: Python's error is set. */
static int figures(PyObject *object, hv_hive_progress_state *out) {
  py_progress *self = (py_progress *)object;
  if (check(self) < 0)
    return -1;
  hv_hive_progress_read(self->progress, out);
  return 0;
}

static PyObject *progress_read(PyObject *object, PyObject *ignored) {
  hv_hive_progress_state s;
  (void)ignored;
  if (figures(object, &s) < 0)
    return NULL;
  return Py_BuildValue("(OKKddKdKnndiOOOOdd)", s.any ? Py_True : Py_False, (unsigned long long)s.local_epoch,
                       (unsigned long long)s.local_samples, s.local_speed, ((double)s.local_us - (double)s.now_us) * 1e-6,
                       (unsigned long long)s.epoch, s.samples, (unsigned long long)s.target, (Py_ssize_t)s.n_peers,
                       (Py_ssize_t)s.n_clients, s.eta_s, s.standing, s.ready ? Py_True : Py_False, s.match ? Py_True : Py_False,
                       s.fetched ? Py_True : Py_False, s.status == HV_OK ? Py_True : Py_False,
                       ((double)s.next_fetch_us - (double)s.now_us) * 1e-6, s.speed);
}

static const PyMethodDef methods[] = {
    {"report", progress_report, METH_VARARGS, "report(epoch, samples): what this contributor has; nothing is waited for."},
    {"pause", progress_pause, METH_VARARGS, "pause(on): the speed is not measured meanwhile."},
    {"withdraw", progress_withdraw, METH_NOARGS, "This contributor counts no more, until it reports again."},
    {"disbelieve", progress_disbelieve, METH_VARARGS,
     "disbelieve(epoch, seconds): claims of that epoch or a later one do not count for so long, because nobody had its state."},
    {"refresh", progress_refresh, METH_NOARGS, "Asks the swarm now."},
    {"wait", progress_wait, METH_VARARGS, "wait(timeout=None): whether the swarm was heard since this epoch began."},
    {"read", progress_read, METH_NOARGS, "All figures as a tuple, in the order of hivemind_c.optim.progress_tracker."},
    {"close", progress_close, METH_NOARGS, "Says that this contributor has gone; may be called twice."},
    {NULL, NULL, 0, NULL}};

PyTypeObject *bind_progress_type(PyObject *module) {
  PyType_Slot slots[] = {
      {Py_tp_doc, (void *)"A contributor to a run, as C has it; hivemind_c.optim.ProgressTracker is the one to use."},
      {Py_tp_new, (void *)progress_new},
      {Py_tp_finalize, (void *)progress_finalize},
      {Py_tp_methods, (void *)methods},
      {0, NULL}};
  PyType_Spec spec = {.name = "_hivemind_c.Progress",
                      .basicsize = sizeof(py_progress),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
