/* A part of _hivemind_c that needs no gRPC, protobuf-c or OpenSSL: errors, codecs, GPUs. For machines that have a GPU and little
 * else; small.py puts it in the whole module's place. */
#include "bind/tensor.h"

static int fill(PyObject *module) {
  bind_state *state = PyModule_GetState(module);
  PyObject *names = PyTuple_New(HV_STATUS_COUNT);
  state->mem = hv_mem_new(NULL, HV_MEM_UNLIMITED);
  for (int i = 0; names && i < HV_STATUS_COUNT; i++)
    PyTuple_SetItem(names, i, PyUnicode_FromString(hv_status_name((hv_status)i)));
  if (!state->mem || !names || PyModule_AddObjectRef(module, "STATUSES", names) < 0)
    return -1;
  Py_DECREF(names);
  if (bind_errors_init(module, state) < 0 || hv_py_codec_init(module) < 0 || hv_py_cuda_init(module) < 0)
    return -1;
  return PyModule_AddStringConstant(module, "__version__", HV_VERSION_TEXT);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_hivemind_small", .m_size = sizeof(bind_state), .m_slots = slots};

PyMODINIT_FUNC PyInit__hivemind_small(void) {
  return PyModuleDef_Init(&definition);
}
