/* Which states of a run a hub keeps (core/epoch/keep.h); hivemind_c/hub/keeper.py is its one user. */
#include "bind.h"

#include "core/epoch/keep.h"

typedef struct py_keep {
  PyObject_HEAD
  hv_keep keep;
  PyObject *setup; /* bytes that keep.held borrows; NULL: none yet */
} py_keep;

static hv_keep *keep_of(PyObject *object) {
  return &((py_keep *)object)->keep;
}

/* Reads None or (epoch, setup), for the format "O&". The setup is borrowed from the object. */
static int trainers(PyObject *object, void *out) {
  hv_keep_trainers *now = out;
  unsigned long long epoch;
  const char *setup;
  Py_ssize_t size;
  *now = (hv_keep_trainers){0};
  if (object == Py_None)
    return 1;
  if (!PyTuple_Check(object)) {
    PyErr_SetString(PyExc_TypeError, "trainers are a tuple (epoch, setup), or None");
    return 0;
  }
  if (!PyArg_ParseTuple(object, "O&y#", bind_whole_number, &epoch, &setup, &size))
    return 0;
  *now = (hv_keep_trainers){.any = 1, .epoch = epoch, .setup = hv_span_of(setup, (size_t)size)};
  return 1;
}

static PyObject *keep_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {"every", NULL};
  unsigned long long every;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&:Keep", (char **)names, bind_whole_number, &every))
    return NULL;
  py_keep *self = (py_keep *)PyType_GenericAlloc(type, 0);
  if (self)
    hv_keep_init(&self->keep, every);
  return (PyObject *)self;
}

static void keep_finalize(PyObject *object) {
  py_keep *self = (py_keep *)object;
  self->keep.held.setup = (hv_span){0}; /* a program may call __del__ itself */
  Py_CLEAR(self->setup);
}

static PyObject *keep_hold(PyObject *object, PyObject *args) {
  py_keep *self = (py_keep *)object;
  unsigned long long epoch;
  PyObject *setup, *before = self->setup;
  if (!PyArg_ParseTuple(args, "O&S:hold", bind_whole_number, &epoch, &setup))
    return NULL;
  hv_keep_state state = {epoch, hv_span_of(PyBytes_AsString(setup), (size_t)PyBytes_Size(setup))};
  hv_keep_hold(&self->keep, &state);
  self->setup = Py_NewRef(setup);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

static PyObject *keep_least(PyObject *object, PyObject *training) {
  hv_keep_trainers now;
  return trainers(training, &now) ? PyLong_FromUnsignedLongLong(hv_keep_least(keep_of(object), &now)) : NULL;
}

static PyObject *keep_has_room(PyObject *object, PyObject *in_use) {
  unsigned long long n;
  (void)object;
  return bind_whole_number(in_use, &n) ? PyBool_FromLong(hv_keep_has_room(n)) : NULL;
}

static PyObject *step_text(hv_keep_step step) {
  return PyUnicode_FromString(hv_keep_step_name(step));
}

static PyObject *keep_look(PyObject *object, PyObject *args) {
  hv_keep_trainers now;
  unsigned long long in_use;
  if (!PyArg_ParseTuple(args, "O&O&:look", trainers, &now, bind_whole_number, &in_use))
    return NULL;
  return step_text(hv_keep_look(keep_of(object), &now, in_use));
}

static PyObject *keep_found(PyObject *object, PyObject *epoch) {
  unsigned long long number;
  return bind_whole_number(epoch, &number) ? step_text(hv_keep_found(keep_of(object), number)) : NULL;
}

static PyObject *keep_looked(PyObject *object, PyObject *args) {
  const double most = 1e9;
  int has_come;
  double seconds;
  if (!PyArg_ParseTuple(args, "pd:looked", &has_come, &seconds))
    return NULL;
  hv_keep_looked(keep_of(object), has_come, seconds > 0 ? (uint64_t)((seconds < most ? seconds : most) * 1e6) : 0);
  Py_RETURN_NONE;
}

static PyObject *keep_judge(PyObject *object, PyObject *args) {
  hv_keep_trainers now;
  unsigned long long epoch;
  const char *setup;
  Py_ssize_t size;
  hv_keep_fault fault;
  if (!PyArg_ParseTuple(args, "O&y#O&:judge", bind_whole_number, &epoch, &setup, &size, trainers, &now))
    return NULL;
  hv_keep_state state = {epoch, hv_span_of(setup, (size_t)size)};
  hv_keep_verdict verdict = hv_keep_judge(keep_of(object), &state, &now, &fault);
  return Py_BuildValue("(ss)", hv_keep_verdict_name(verdict), hv_keep_fault_name(fault));
}

static const PyMethodDef methods[] = {
    {"hold", keep_hold, METH_VARARGS, "hold(epoch, setup): a state is on offer, in place of the one before."},
    {"least", keep_least, METH_O, "least(training) -> the oldest epoch of use; 0: any."},
    {"has_room", keep_has_room, METH_O, "has_room(in_use) -> whether memory has room for one more state."},
    {"look", keep_look, METH_VARARGS, "look(training, in_use) -> \"LOOK\" or \"REST\": a look begins."},
    {"found", keep_found, METH_O, "found(epoch) -> \"LOAD\", \"LOOK\" or \"REST\": a state of that epoch is on offer."},
    {"looked", keep_looked, METH_VARARGS, "looked(has_come, seconds): the look is over."},
    {"judge", keep_judge, METH_VARARGS,
     "judge(epoch, setup, training) -> (verdict, fault): a state has come whole. Names of core/epoch/keep.h."},
    {NULL, NULL, 0, NULL}};

static PyObject *keep_every(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong(keep_of(object)->every);
}

static PyObject *keep_epoch(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong(keep_of(object)->held.epoch);
}

static PyObject *keep_known(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong(keep_of(object)->known);
}

static PyObject *keep_pause(PyObject *object, void *unused) {
  (void)unused;
  return PyFloat_FromDouble((double)keep_of(object)->pause_us * 1e-6);
}

static const PyGetSetDef attributes[] = {
    {"every", keep_every, NULL, "Epochs from one state to the next.", NULL},
    {"epoch", keep_epoch, NULL, "Of the state on offer, or 0.", NULL},
    {"known", keep_known, NULL, "The epoch from which on LOOK asks, and LOAD downloads. 0: any.", NULL},
    {"pause", keep_pause, NULL, "Seconds until the next look.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

int hv_py_keep_init(PyObject *module) {
  PyType_Slot slots[] = {
      {Py_tp_doc, (void *)"Which states of a run a hub keeps, Keep(every). training: (epoch, setup) of the trainers, or None."},
      {Py_tp_new, (void *)keep_new},
      {Py_tp_finalize, (void *)keep_finalize},
      {Py_tp_methods, (void *)methods},
      {Py_tp_getset, (void *)attributes},
      {0, NULL}};
  PyType_Spec spec = {.name = "_hivemind_c.Keep",
                      .basicsize = sizeof(py_keep),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  PyObject *most = PyLong_FromUnsignedLongLong(HV_GIFT_EPOCH_MAX);
  int rc = most ? PyModule_AddObjectRef(module, "STATE_EPOCH_MAX", most) : -1;
  Py_XDECREF(most);
  if (rc < 0 || PyModule_AddIntConstant(module, "HUB_PRIORITY", HV_KEEP_PRIORITY) < 0)
    return -1;
  return bind_type_add(module, &spec, "Keep");
}
