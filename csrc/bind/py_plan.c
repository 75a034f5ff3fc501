/* The plan of a peer (core/epoch/plan.h); hivemind_c/optim/schedule.py is its one user. */
#include "epoch.h"

typedef struct py_plan {
  PyObject_HEAD
  hv_epoch_options options;
  hv_epoch_traits traits;
} py_plan;

static const hv_epoch_traits *traits_of(PyObject *object) {
  return &((py_plan *)object)->traits;
}

const hv_epoch_options *bind_plan_options(PyObject *object) {
  return &((py_plan *)object)->options;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {"use_local_updates",
                                      "delay_grad_averaging",
                                      "delay_optimizer_step",
                                      "delay_state_averaging",
                                      "offload_optimizer",
                                      "auxiliary",
                                      "average_state_every",
                                      "outer",
                                      "overlap",
                                      NULL};
  int local, grads, step, state, offload, auxiliary, outer;
  unsigned char overlap = 0;
  unsigned long long every;
  hv_error err = {0};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ppppppO&p|b:EpochPlan", (char **)names, &local, &grads, &step, &state, &offload,
                                   &auxiliary, bind_whole_number, &every, &outer, &overlap))
    return NULL;
  hv_epoch_options options = {.use_local_updates = (uint8_t)local,
                              .delay_grad_averaging = (uint8_t)grads,
                              .delay_optimizer_step = (uint8_t)step,
                              .delay_state_averaging = (uint8_t)state,
                              .offload = (uint8_t)offload,
                              .auxiliary = (uint8_t)auxiliary,
                              .average_state_every = every,
                              .outer = (uint8_t)outer,
                              .overlap = overlap};
  if (auxiliary && local)
    hv_fail(&err, HV_INVALID, "an auxiliary peer has no local updates: it trains nothing; remove auxiliary or use_local_updates");
  if ((auxiliary && local) || hv_epoch_options_check(&options, &err) != HV_OK) {
    PyErr_SetString(PyExc_ValueError, err.text);
    return NULL;
  }
  py_plan *self = (py_plan *)PyType_GenericAlloc(type, 0);
  if (self) {
    self->options = options;
    self->traits = hv_epoch_traits_of(&options);
  }
  return (PyObject *)self;
}

static PyObject *actions(const uint8_t *list, size_t n) {
  PyObject *tuple = PyTuple_New((Py_ssize_t)n);
  for (size_t i = 0; tuple && i < n; i++) {
    PyObject *name = PyUnicode_FromString(hv_epoch_action_name((hv_epoch_action)list[i]));
    if (!name || PyTuple_SetItem(tuple, (Py_ssize_t)i, name) < 0)
      Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *both_lists(const hv_epoch_plan *plan) {
  return Py_BuildValue("(NN)", actions(plan->now, plan->n_now), actions(plan->late, plan->n_late));
}

static PyObject *plan_batch(PyObject *object, PyObject *ignored) {
  (void)ignored;
  return both_lists(&traits_of(object)->batch);
}

static PyObject *plan_end(PyObject *object, PyObject *args) {
  unsigned long long next_epoch;
  int alone;
  if (!PyArg_ParseTuple(args, "O&p:end", bind_whole_number, &next_epoch, &alone))
    return NULL;
  return both_lists(hv_epoch_plan_end(traits_of(object), next_epoch, alone));
}

static PyObject *plan_state_epoch(PyObject *object, PyObject *epoch) {
  unsigned long long number;
  if (!bind_whole_number(epoch, &number))
    return NULL;
  return PyLong_FromUnsignedLongLong(hv_epoch_state_epoch(traits_of(object), number));
}

static PyObject *plan_averages_state_at(PyObject *object, PyObject *epoch) {
  unsigned long long number;
  if (!bind_whole_number(epoch, &number))
    return NULL;
  return PyBool_FromLong(hv_epoch_averages_state_at(traits_of(object), number));
}

static const PyMethodDef methods[] = {
    {"batch", plan_batch, METH_NOARGS, "batch() -> (now, late): what a batch does, by the names of actions."},
    {"end", plan_end, METH_VARARGS, "end(next_epoch, alone) -> (now, late): what the end of an epoch does."},
    {"state_epoch", plan_state_epoch, METH_O, "The latest epoch up to this one at whose beginning peers have equal states."},
    {"averages_state_at", plan_averages_state_at, METH_O, "Whether the state is averaged when this epoch begins."},
    {NULL, NULL, 0, NULL}};

int hv_py_plan_init(PyObject *module) {
  PyType_Slot slots[] = {{Py_tp_doc, (void *)"The plan of a peer with these options; hivemind_c.optim.schedule is its user."},
                         {Py_tp_new, (void *)plan_new},
                         {Py_tp_methods, (void *)methods},
                         {0, NULL}};
  PyType_Spec spec = {.name = "_hivemind_c.EpochPlan",
                      .basicsize = sizeof(py_plan),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  return bind_type_add(module, &spec, "EpochPlan");
}
