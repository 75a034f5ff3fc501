/* The places of a peer's samples (core/epoch/ledger.h); hivemind_c/optim/epoch_ledger.py is its one user. */
#include "epoch.h"

#include <stddef.h>
#include <string.h>

typedef struct py_ledger {
  PyObject_HEAD
  hv_epoch_ledger ledger;
} py_ledger;

static hv_epoch_ledger *ledger_of(PyObject *object) {
  return &((py_ledger *)object)->ledger;
}

hv_epoch_ledger *bind_ledger_of(PyObject *object) {
  return ledger_of(object);
}

static PyObject *ledger_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":SampleLedger", (char **)names))
    return NULL;
  return PyType_GenericAlloc(type, 0); /* of zeros */
}

static PyObject *loss(uint64_t samples, hv_epoch_loss why) {
  return Py_BuildValue("(Ks)", (unsigned long long)samples, hv_epoch_loss_text(why));
}

static PyObject *ledger_counted(PyObject *object, PyObject *samples) {
  unsigned long long number;
  if (!bind_whole_number(samples, &number))
    return NULL;
  hv_epoch_ledger_counted(ledger_of(object), number);
  Py_RETURN_NONE;
}

static PyObject *ledger_behind(PyObject *object, PyObject *samples) {
  unsigned long long number;
  if (!bind_whole_number(samples, &number))
    return NULL;
  return loss(hv_epoch_ledger_behind(ledger_of(object), number), HV_EPOCH_LOSS_BEHIND);
}

static PyObject *ledger_overflow(PyObject *object, PyObject *args) {
  unsigned long long samples, summed;
  if (!PyArg_ParseTuple(args, "O&O&:overflow", bind_whole_number, &samples, bind_whole_number, &summed))
    return NULL;
  return loss(hv_epoch_ledger_overflow(ledger_of(object), samples, summed), HV_EPOCH_LOSS_OVERFLOW);
}

static PyObject *ledger_replaced(PyObject *object, PyObject *ignored) {
  (void)ignored;
  return loss(hv_epoch_ledger_replaced(ledger_of(object)), HV_EPOCH_LOSS_REPLACED);
}

static PyObject *ledger_restored(PyObject *object, PyObject *ignored) {
  (void)ignored;
  return loss(hv_epoch_ledger_restored(ledger_of(object)), HV_EPOCH_LOSS_RESTORED);
}

static PyObject *ledger_taken(PyObject *object, PyObject *ignored) {
  (void)ignored;
  return PyLong_FromUnsignedLongLong(hv_epoch_ledger_taken(ledger_of(object)));
}

static PyObject *ledger_not_finite(PyObject *object, PyObject *ignored) {
  (void)ignored;
  return loss(hv_epoch_ledger_not_finite(ledger_of(object)), HV_EPOCH_LOSS_NOT_FINITE);
}

static PyObject *ledger_cut(PyObject *object, PyObject *most) {
  unsigned long long number;
  if (!bind_whole_number(most, &number))
    return NULL;
  return loss(hv_epoch_ledger_cut(ledger_of(object), number), HV_EPOCH_LOSS_CUT);
}

static PyObject *ledger_over(PyObject *object, PyObject *args) {
  const char *name;
  double share = 1;
  if (!PyArg_ParseTuple(args, "s|d:over", &name, &share))
    return NULL;
  for (int i = 0; i < HV_EPOCH_OUTCOMES; i++)
    if (strcmp(name, hv_epoch_outcome_name((hv_epoch_outcome)i)) == 0)
      return loss(hv_epoch_ledger_over(ledger_of(object), (hv_epoch_outcome)i, share),
                  i == HV_EPOCH_LEFT_OUT ? HV_EPOCH_LOSS_LEFT_OUT : HV_EPOCH_LOSS_LATE);
  PyErr_Format(PyExc_ValueError, "a round has no outcome %s", name);
  return NULL;
}

static PyObject *ledger_dropped(PyObject *object, PyObject *ignored) {
  (void)ignored;
  return loss(hv_epoch_ledger_dropped(ledger_of(object)), HV_EPOCH_LOSS_DROPPED);
}

static PyObject *ledger_broken(PyObject *object, PyObject *ignored) {
  (void)ignored;
  return loss(hv_epoch_ledger_broken(ledger_of(object)), HV_EPOCH_LOSS_BROKEN);
}

static PyObject *ledger_stepped(PyObject *object, PyObject *ignored) {
  (void)ignored;
  return PyLong_FromUnsignedLongLong(hv_epoch_ledger_stepped(ledger_of(object)));
}

static PyObject *ledger_kept_settled(PyObject *object, PyObject *ignored) {
  (void)ignored;
  hv_epoch_ledger_kept_settled(ledger_of(object));
  Py_RETURN_NONE;
}

static PyObject *ledger_kept_given_up(PyObject *object, PyObject *ignored) {
  (void)ignored;
  return loss(hv_epoch_ledger_kept_given_up(ledger_of(object)), HV_EPOCH_LOSS_GIVEN_UP);
}

static PyObject *ledger_figures(PyObject *object, PyObject *ignored) {
  const hv_epoch_ledger *l = ledger_of(object);
  (void)ignored;
  PyObject *lost_by = PyDict_New();
  for (int i = 0; lost_by && i < HV_EPOCH_LOSSES; i++) {
    PyObject *number = PyLong_FromUnsignedLongLong(l->lost_by[i]);
    if (!number || PyDict_SetItemString(lost_by, hv_epoch_loss_name((hv_epoch_loss)i), number) < 0)
      Py_CLEAR(lost_by);
    Py_XDECREF(number);
  }
  return Py_BuildValue("{sKsKsKsKsKsKsKsNsN}", "produced", (unsigned long long)l->produced, "averaged",
                       (unsigned long long)l->averaged, "kept", (unsigned long long)l->kept, "sums", (unsigned long long)l->sums,
                       "in_flight", (unsigned long long)l->in_flight, "lost", (unsigned long long)l->lost, "held",
                       (unsigned long long)hv_epoch_ledger_held(l), "lost_by", lost_by, "holds",
                       PyBool_FromLong(hv_epoch_ledger_holds(l)));
}

static const PyMethodDef methods[] = {
    {"counted", ledger_counted, METH_O, "counted(samples): a batch is in the sums."},
    {"behind", ledger_behind, METH_O, "behind(samples) -> (lost, why): a batch of a peer that is about to load a state."},
    {"overflow", ledger_overflow, METH_VARARGS,
     "overflow(samples, summed) -> (lost, why): a batch whose gradient overflowed, and samples of the sums that it was added to."},
    {"replaced", ledger_replaced, METH_NOARGS, "replaced() -> (lost, why): another state takes the place of that of the sums."},
    {"restored", ledger_restored, METH_NOARGS, "restored() -> (lost, why): a checkpoint takes the place of the state of the sums."},
    {"taken", ledger_taken, METH_NOARGS, "taken() -> samples in flight: an epoch ends with the sums."},
    {"not_finite", ledger_not_finite, METH_NOARGS, "not_finite() -> (lost, why): the gradient in flight is not finite."},
    {"cut", ledger_cut, METH_O, "cut(most) -> (lost, why): a peer counts with so many samples at most."},
    {"over", ledger_over, METH_VARARGS, "over(outcome, share=1.0) -> (lost, why): the round of what is in flight is over."},
    {"dropped", ledger_dropped, METH_NOARGS, "dropped() -> (lost, why): a load dropped what was in flight."},
    {"broken", ledger_broken, METH_NOARGS, "broken() -> (lost, why): the work with what was in flight failed."},
    {"stepped", ledger_stepped, METH_NOARGS, "stepped() -> samples: a step of this peer's own with what is in flight."},
    {"kept_settled", ledger_kept_settled, METH_NOARGS, "The replica with the steps of this peer's own is the swarm's."},
    {"kept_given_up", ledger_kept_given_up, METH_NOARGS, "kept_given_up() -> (lost, why): another replica is the swarm's."},
    {"figures", ledger_figures, METH_NOARGS, "All numbers of samples, by name."},
    {NULL, NULL, 0, NULL}};

static PyObject *ledger_figure(PyObject *object, void *offset) {
  uint64_t number;
  memcpy(&number, (const char *)ledger_of(object) + (size_t)offset, sizeof number);
  return PyLong_FromUnsignedLongLong(number);
}

static PyObject *ledger_held(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong(hv_epoch_ledger_held(ledger_of(object)));
}

#define AT(field) (void *)offsetof(hv_epoch_ledger, field)

static const PyGetSetDef figures[] = {
    {"kept", ledger_figure, NULL, "Samples in steps of this peer's own since its replica was the swarm's.", AT(kept)},
    {"lost", ledger_figure, NULL, "Samples that are in no step.", AT(lost)},
    {"in_flight", ledger_figure, NULL, "Samples in the round or step that ends an epoch.", AT(in_flight)},
    {"sums", ledger_figure, NULL, "Samples in the sums of the epoch that runs.", AT(sums)},
    {"held", ledger_held, NULL, "Samples that are not lost.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

int hv_py_ledger_init(PyObject *module) {
  PyType_Slot slots[] = {{Py_tp_doc, (void *)"What becomes of a peer's samples; hivemind_c.optim.epoch_ledger is its user."},
                         {Py_tp_new, (void *)ledger_new},
                         {Py_tp_methods, (void *)methods},
                         {Py_tp_getset, (void *)figures},
                         {0, NULL}};
  PyType_Spec spec = {.name = "_hivemind_c.SampleLedger",
                      .basicsize = sizeof(py_ledger),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  return bind_type_add(module, &spec, "SampleLedger");
}
