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

static const PyMethodDef methods[] = {{"figures", ledger_figures, METH_NOARGS, "All numbers of samples, by name."},
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
