/* A hub's part in the rounds of a run, for hivemind_c/hub/rounds.py. */
#include "bind.h"

typedef struct py_follower {
  PyObject_HEAD
  bind_node *node; /* kept, as the averagers */
  PyObject *gradients, *state;
  hv_hive_follower *follower; /* NULL: closed */
  unsigned long long rounds, failures;
} py_follower;

/* None, or an Averager that is open. 0, or -1 with the error raised. */
static int averager_of(PyObject *object, hv_hive_averager **out) {
  *out = NULL;
  if (object == Py_None)
    return 0;
  *out = bind_averager_of(object);
  return *out ? 0 : -1;
}

static PyObject *follower_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {"node",
                                      "run_id",
                                      "state_key",
                                      "target_batch_size",
                                      "matchmaking_time",
                                      "averaging_timeout",
                                      "average_state_every",
                                      "is_late",
                                      "has_anchor",
                                      "gradients",
                                      "state",
                                      "record",
                                      NULL};
  bind_state *state = PyType_GetModuleState(type);
  PyObject *node, *gradients, *of_state;
  unsigned long long target, every;
  double matchmaking, averaging;
  hv_hive_follower_config config = {0};
  hv_error err = {0};
  hv_status status;
  if (!state ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "O!ssO&ddO&ppOO|s:Follower", (char **)names, state->node, &node, &config.run_id,
                                   &config.state_key, bind_whole_number, &target, &matchmaking, &averaging, bind_whole_number,
                                   &every, &config.is_late, &config.has_anchor, &gradients, &of_state, &config.record) ||
      averager_of(gradients, &config.gradients) < 0 || averager_of(of_state, &config.state) < 0 ||
      bind_node_check((bind_node *)node) < 0)
    return NULL;
  config.target_batch_size = target;
  config.average_state_every = every;
  config.matchmaking_ms = (uint64_t)(matchmaking * 1e3);
  config.averaging_ms = (uint64_t)(averaging * 1e3);
  py_follower *self = (py_follower *)PyType_GenericAlloc(type, 0);
  if (!self)
    return NULL;
  self->node = (bind_node *)Py_NewRef(node);
  self->gradients = Py_NewRef(gradients);
  self->state = Py_NewRef(of_state);
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_follower_open(self->node->hive, &config, &self->follower, &err);
  Py_END_ALLOW_THREADS;
  if (status == HV_OK)
    return (PyObject *)self;
  Py_DECREF(self);
  return bind_raise_why(state, status, &err);
}

static void closes(py_follower *self) {
  hv_hive_follower *follower = self->follower;
  uint64_t rounds, failures;
  if (!follower)
    return;
  self->follower = NULL;
  hv_hive_follower_count(follower, &rounds, &failures);
  self->rounds = rounds;
  self->failures = failures;
  Py_BEGIN_ALLOW_THREADS;
  hv_hive_follower_free(follower);
  Py_END_ALLOW_THREADS;
}

static PyObject *follower_trainers(PyObject *object, PyObject *ignored) {
  hv_hive_follower *follower = ((py_follower *)object)->follower;
  hv_hive_count count = {0};
  hv_error err = {0};
  hv_status status = HV_OK;
  (void)ignored;
  if (follower) {
    Py_BEGIN_ALLOW_THREADS;
    status = hv_hive_follower_trainers(follower, &count, &err);
    Py_END_ALLOW_THREADS;
  }
  if (status != HV_OK)
    return bind_raise_why(PyType_GetModuleState(Py_TYPE(object)), status, &err);
  return count.any ? PyLong_FromUnsignedLongLong(count.epoch) : Py_NewRef(Py_None);
}

static PyObject *follower_close(PyObject *object, PyObject *ignored) {
  (void)ignored;
  closes((py_follower *)object);
  Py_RETURN_NONE;
}

static PyObject *follower_counts(PyObject *object, void *closure) {
  py_follower *self = (py_follower *)object;
  uint64_t rounds = self->rounds, failures = self->failures;
  (void)closure;
  if (self->follower)
    hv_hive_follower_count(self->follower, &rounds, &failures);
  return Py_BuildValue("(KK)", (unsigned long long)rounds, (unsigned long long)failures);
}

static void follower_finalize(PyObject *object) {
  py_follower *self = (py_follower *)object;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  closes(self);
  Py_CLEAR(self->gradients);
  Py_CLEAR(self->state);
  Py_CLEAR(self->node);
  PyErr_Restore(type, value, traceback);
}

static PyMethodDef methods[] = {
    {"trainers", follower_trainers, METH_NOARGS,
     "trainers() -> the epoch that the trainers are counted at; None: nobody is. Not while another thread calls close()."},
    {"close", follower_close, METH_NOARGS, "close(): ends its rounds. Its averagers may be closed then."},
    {NULL, NULL, 0, NULL}};

static const PyGetSetDef attributes[] = {{"counts", follower_counts, NULL, "(rounds, failures) so far.", NULL},
                                         {NULL, NULL, NULL, NULL, NULL}};

int hv_py_follow_init(PyObject *module) {
  PyType_Slot slots[] = {{Py_tp_doc,
                          (void *)"Follows the epochs of a run, and goes to its rounds with two averagers, each of which may "
                                  "be None: Follower(node, run_id, state_key, target_batch_size, matchmaking_time, "
                                  "averaging_timeout, average_state_every, is_late, has_anchor, gradients, state)."},
                         {Py_tp_new, (void *)follower_new},
                         {Py_tp_finalize, (void *)follower_finalize},
                         {Py_tp_methods, (void *)methods},
                         {Py_tp_getset, (void *)attributes},
                         {0, NULL}};
  PyType_Spec spec = {.name = "_hivemind_c.Follower",
                      .basicsize = sizeof(py_follower),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  return bind_type_add(module, &spec, "Follower");
}
