/* The module _hivemind_c: what import does. */
#include "bind.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

static bind_state *state_of(PyObject *module) {
  return PyModule_GetState(module);
}

static int add_type(PyObject *module, const char *name, PyTypeObject *type, PyTypeObject **out) {
  *out = type;
  return type ? PyModule_AddObjectRef(module, name, (PyObject *)type) : -1;
}

static const char *status_name(int i) {
  return hv_status_name((hv_status)i);
}

static const char *cause_name(int i) {
  return hv_cause_name((hv_cause)i);
}

/* A tuple of the names of n codes. */
static int add_names(PyObject *module, const char *attribute, int n, const char *(*name_of)(int i)) {
  PyObject *names = PyTuple_New(n);
  if (!names)
    return -1;
  for (int i = 0; i < n; i++) {
    PyObject *name = PyUnicode_FromString(name_of(i));
    if (!name || PyTuple_SetItem(names, i, name) < 0) {
      Py_DECREF(names);
      return -1;
    }
  }
  int rc = PyModule_AddObjectRef(module, attribute, names);
  Py_DECREF(names);
  return rc;
}

static int module_exec(PyObject *module) {
  bind_state *state = state_of(module);
  state->mem = hv_mem_new(NULL, HV_MEM_UNLIMITED);
  if (!state->mem) {
    PyErr_NoMemory();
    return -1;
  }
  PyObject *time = PyImport_ImportModule("time");
  if (!time)
    return -1;
  state->monotonic = PyObject_GetAttrString(time, "monotonic");
  Py_DECREF(time);
  if (!state->monotonic || bind_errors_init(module, state) < 0 || add_names(module, "STATUSES", HV_STATUS_COUNT, status_name) < 0 ||
      add_names(module, "CAUSES", HV_CAUSE_COUNT, cause_name) < 0 ||
      add_type(module, "Node", bind_node_type(module), &state->node) < 0 ||
      add_type(module, "Future", bind_future_type(module), &state->future) < 0 ||
      add_type(module, "Parcel", bind_parcel_type(module), &state->parcel) < 0 ||
      add_type(module, "Progress", bind_progress_type(module), &state->progress) < 0 ||
      add_type(module, "Averager", bind_averager_type(module), &state->averager) < 0 || hv_py_codec_init(module) < 0 ||
      hv_py_outer_init(module) < 0 || hv_py_invite_init(module) < 0 || hv_py_plan_init(module) < 0 ||
      hv_py_lineage_init(module) < 0 || hv_py_ledger_init(module) < 0 || hv_py_epoch_init(module) < 0 ||
      hv_py_keep_init(module) < 0 || hv_py_follow_init(module) < 0 || hv_py_replay_init(module) < 0 ||
      hv_py_step_log_init(module) < 0 || hv_py_cuda_init(module) < 0)
    return -1;
  if (PyModule_AddStringConstant(module, "GRPC_CORE_VERSION", hv_grpc_version()) < 0 ||
      PyModule_AddObjectRef(module, "CAN_OPEN_PORTS", hv_can_open_ports() ? Py_True : Py_False) < 0)
    return -1;
  return PyModule_AddStringConstant(module, "__version__", HV_VERSION_TEXT);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
  bind_state *state = state_of(module);
  Py_VISIT(state->node);
  Py_VISIT(state->future);
  Py_VISIT(state->parcel);
  Py_VISIT(state->progress);
  Py_VISIT(state->averager);
  for (int i = 0; i < BIND_ERROR_COUNT; i++)
    Py_VISIT(state->errors[i]);
  Py_VISIT(state->monotonic);
  return 0;
}

static int module_clear(PyObject *module) {
  bind_state *state = state_of(module);
  Py_CLEAR(state->node);
  Py_CLEAR(state->future);
  Py_CLEAR(state->parcel);
  Py_CLEAR(state->progress);
  Py_CLEAR(state->averager);
  for (int i = 0; i < BIND_ERROR_COUNT; i++)
    Py_CLEAR(state->errors[i]);
  Py_CLEAR(state->monotonic);
  return 0;
}

static void module_free(void *module) {
  bind_state *state = state_of(module);
  if (!state)
    return;
  module_clear(module);
  hv_mem_drop(state->mem);
}

/* A slot that came with Python 3.12; an older Python refuses a slot it does not know, so there are two definitions and the
 * running Python's version chooses. */
#define SLOT_INTERPRETERS 3 /* Py_mod_multiple_interpreters */
#define OWN_GIL ((void *)2) /* Py_MOD_PER_INTERPRETER_GIL_SUPPORTED */

static PyObject *module_end(PyObject *module, PyObject *ignored) {
  bind_state *state = state_of(module);
  (void)ignored;
  state->ending = 1;
  state->ending_thread = PyThread_get_thread_ident();
  Py_RETURN_NONE;
}

static const PyMethodDef functions[] = {
    {"end", module_end, METH_NOARGS, "The program ends: from now on errors of nodes end other threads without a word."},
    {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};
static PyModuleDef_Slot slots_3_12[] = {{Py_mod_exec, module_exec}, {SLOT_INTERPRETERS, OWN_GIL}, {0, NULL}};

#define DEFINITION(its_slots)                                                                                                      \
  {                                                                                                                                \
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_hivemind_c",                                                                      \
    .m_doc = "The C core of hivemind_c; use it through the package hivemind_c.", .m_size = sizeof(bind_state),                     \
    .m_methods = (PyMethodDef *)functions, .m_slots = its_slots, .m_traverse = module_traverse, .m_clear = module_clear,           \
    .m_free = module_free                                                                                                          \
  }
static PyModuleDef definition = DEFINITION(slots);
static PyModuleDef definition_3_12 = DEFINITION(slots_3_12);

PyMODINIT_FUNC PyInit__hivemind_c(void) {
  char *rest = NULL;
  long major = strtol(Py_GetVersion(), &rest, 10);
  long minor = rest && *rest == '.' ? strtol(rest + 1, NULL, 10) : 0;
  return PyModuleDef_Init(major > 3 || minor >= 12 ? &definition_3_12 : &definition);
}
