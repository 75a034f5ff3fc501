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
    {"overflow", ledger_overflow, METH_VARARGS,
     "overflow(samples, summed) -> (lost, why): a batch whose gradient overflowed, and samples of the sums that it was added to."},
    {"replaced", ledger_replaced, METH_NOARGS, "replaced() -> (lost, why): another state takes the place of that of the sums."},
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
