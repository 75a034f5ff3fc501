/* The outer step (core/outer/outer.h) on tensors in the host's memory; hivemind_c/optim/outer.py is its one user. */
#include "tensor.h"

#include "core/outer/outer.h"

/* The tensors of one step: three of each parameter. */
typedef struct loans {
  hv_outer_tensor *tensors;
  bind_tensor *borrowed;
  size_t n, n_borrowed;
} loans;

static void gives_back(loans *l) {
  while (l->n_borrowed)
    bind_tensor_return(&l->borrowed[--l->n_borrowed]);
  PyMem_Free(l->borrowed);
  PyMem_Free(l->tensors);
}

/* NULL: an exception is set. */
static bind_tensor *borrows(bind_state *state, loans *l, PyObject *array, int writable, const char *what, uint64_t count) {
  bind_tensor *t = &l->borrowed[l->n_borrowed];
  if (bind_tensor_borrow_plain(state, array, writable, what, t) < 0)
    return NULL;
  l->n_borrowed++;
  if (t->dtype == HV_DTYPE_FLOAT32 && (count == UINT64_MAX || t->count == count))
    return t;
  bind_raise(state, HV_INVALID, "an anchor, its momentum and its difference must be float32, and have as many values");
  return NULL;
}

static int borrows_one(bind_state *state, loans *l, PyObject *one) {
  PyObject *anchor, *momentum, *difference;
  int begins;
  if (!PyArg_ParseTuple(one, "OOOp", &anchor, &momentum, &difference, &begins))
    return -1;
  bind_tensor *a = borrows(state, l, anchor, 1, "the anchor", UINT64_MAX);
  bind_tensor *d = a ? borrows(state, l, difference, 0, "the difference", a->count) : NULL;
  bind_tensor *m = d && momentum != Py_None ? borrows(state, l, momentum, 1, "the momentum", a->count) : NULL;
  if (!d || (!m && momentum != Py_None))
    return -1;
  l->tensors[l->n++] = (hv_outer_tensor){a->data, m ? m->data : NULL, d->data, a->count, begins};
  return 0;
}

static PyObject *step(PyObject *module, PyObject *args) {
  bind_state *state = PyModule_GetState(module);
  PyObject *list, *result = NULL;
  double rate, momentum;
  hv_outer_rule rule = {0};
  hv_error err = {0};
  loans l = {0};
  if (!PyArg_ParseTuple(args, "O!ddp:outer_step", &PyTuple_Type, &list, &rate, &momentum, &rule.nesterov))
    return NULL;
  rule.rate = (float)rate;
  rule.momentum = (float)momentum;
  if (hv_outer_check(&rule, &err) != HV_OK)
    return bind_raise(state, HV_INVALID, err.text);
  Py_ssize_t n = PyTuple_Size(list);
  l.tensors = PyMem_Calloc((size_t)n + 1, sizeof *l.tensors);
  l.borrowed = PyMem_Calloc(3 * (size_t)n + 1, sizeof *l.borrowed);
  if (!l.tensors || !l.borrowed) {
    PyErr_NoMemory();
    goto out;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    if (borrows_one(state, &l, PyTuple_GetItem(list, i)) < 0)
      goto out;
    if (rule.momentum != 0 && !l.tensors[i].momentum) {
      bind_raise(state, HV_INVALID, "a tensor has no momentum, and the rule has");
      goto out;
    }
  }
  hv_status status;
  Py_BEGIN_ALLOW_THREADS
  status = hv_outer_step(&rule, l.tensors, l.n, &err);
  Py_END_ALLOW_THREADS
  result = status == HV_OK ? Py_NewRef(Py_None) : bind_raise(state, status, err.text);
out:
  gives_back(&l);
  return result;
}

static PyMethodDef functions[] = {
    {"outer_step", step, METH_VARARGS,
     "outer_step(tensors, rate, momentum, nesterov): one step of the outer optimizer. Each of the tensors is (anchor, momentum or\n"
     "None, difference, whether its momentum begins)."},
    {NULL, NULL, 0, NULL}};

int hv_py_outer_init(PyObject *module) {
  return PyModule_AddFunctions(module, functions);
}
