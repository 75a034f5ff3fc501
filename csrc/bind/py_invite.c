/* Swarm keys and invitations, without a node; hivemind_c/_invitation.py is their one user. */
#include "bind.h"

#include "net/invitation.h"

#include <string.h>

static bind_state *state_of(PyObject *module) {
  return PyModule_GetState(module);
}

static PyObject *key_new(PyObject *module, PyObject *ignored) {
  char text[HV_SWARM_KEY_TEXT_MAX];
  (void)module, (void)ignored;
  hv_swarm_key_new(text);
  PyObject *key = PyUnicode_FromString(text);
  explicit_bzero(text, sizeof text);
  return key;
}

static PyObject *invite_new(PyObject *module, PyObject *args) {
  const char *key, *name;
  long long end_s;
  char text[HV_INVITE_TEXT_MAX], id[HV_INVITATION_TEXT_MAX];
  hv_error err = {0};
  if (!PyArg_ParseTuple(args, "sLs:invite_new", &key, &end_s, &name))
    return NULL;
  hv_status status = hv_invite_new(key, end_s, name, text, id, &err);
  if (status != HV_OK)
    return bind_raise_why(state_of(module), status, &err);
  PyObject *both = Py_BuildValue("(ss)", text, id);
  explicit_bzero(text, sizeof text);
  return both;
}

static PyObject *denials_new(PyObject *module, PyObject *args) {
  const char *key, *id;
  Py_buffer before;
  hv_span list;
  hv_error err = {0};
  if (!PyArg_ParseTuple(args, "sy*s:denials_new", &key, &before, &id))
    return NULL;
  hv_status status = hv_denials_new(state_of(module)->mem, key, hv_span_of(before.buf, (size_t)before.len), id, &list, &err);
  PyBuffer_Release(&before);
  if (status != HV_OK)
    return bind_raise_why(state_of(module), status, &err);
  PyObject *bytes = PyBytes_FromStringAndSize((const char *)list.data, (Py_ssize_t)list.size);
  hv_mem_free((void *)list.data);
  return bytes;
}

static PyObject *membership_of(PyObject *module, PyObject *args) {
  const char *key, *invite;
  char text[HV_MEMBERSHIP_TEXT_MAX];
  hv_credentials credentials;
  hv_error err = {0};
  if (!PyArg_ParseTuple(args, "zz:membership_of", &key, &invite))
    return NULL;
  hv_status status = key || invite ? hv_credentials_read(state_of(module)->mem, key, invite, &credentials, &err) : HV_NOT_FOUND;
  if (status == HV_NOT_FOUND)
    return PyUnicode_FromString("");
  if (status != HV_OK)
    return bind_raise_why(state_of(module), status, &err);
  hv_membership_print(&credentials.admission.me, text);
  hv_credentials_fini(&credentials);
  return PyUnicode_FromString(text);
}

static PyMethodDef functions[] = {
    {"swarm_key_new", key_new, METH_NOARGS, "swarm_key_new() -> the text of a new swarm key"},
    {"invite_new", invite_new, METH_VARARGS, "invite_new(key, end_s, name) -> (text, id) of a new invitation"},
    {"denials_new", denials_new, METH_VARARGS, "denials_new(key, before, id) -> the list of denials with one more"},
    {"membership_of", membership_of, METH_VARARGS,
     "membership_of(key, invite) -> how a peer with these is a member; raises if one is wrong"},
    {NULL, NULL, 0, NULL},
};

int hv_py_invite_init(PyObject *module) {
  return PyModule_AddFunctions(module, functions);
}
