/* Swarm keys and invitations, without a node; hivemind_c/_invitation.py is their one user. */
#include "bind.h"

#include "net/invitation.h"

#include <stdio.h>
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
  const char *key, *name, *before;
  long long end_s;
  char text[HV_INVITE_TEXT_MAX], id[HV_INVITATION_TEXT_MAX];
  hv_error err = {0};
  if (!PyArg_ParseTuple(args, "sLsz:invite_new", &key, &end_s, &name, &before))
    return NULL;
  hv_status status = hv_invite_new(key, end_s, name, before, text, id, &err);
  if (status != HV_OK)
    return bind_raise_why(state_of(module), status, &err);
  PyObject *both = Py_BuildValue("(ss)", text, id);
  explicit_bzero(text, sizeof text);
  return both;
}

static hv_span span_of(const Py_buffer *buffer) {
  return hv_span_of(buffer->buf, (size_t)buffer->len);
}

/* A list as bytes, which it frees; or raises the error. */
static PyObject *list_of(PyObject *module, hv_status status, hv_span list, const hv_error *err) {
  if (status != HV_OK)
    return bind_raise_why(state_of(module), status, err);
  PyObject *bytes = PyBytes_FromStringAndSize((const char *)list.data, (Py_ssize_t)list.size);
  hv_mem_free((void *)list.data);
  return bytes;
}

static PyObject *denials_new(PyObject *module, PyObject *args) {
  const char *key, *id;
  Py_buffer before;
  PyObject *end;
  hv_span list;
  hv_error err = {0};
  if (!PyArg_ParseTuple(args, "sy*sO:denials_new", &key, &before, &id, &end))
    return NULL;
  long long end_s = end == Py_None ? HV_DENIALS_NO_END : PyLong_AsLongLong(end);
  hv_status status = HV_OK;
  if (!PyErr_Occurred())
    status = hv_denials_new(state_of(module)->mem, key, span_of(&before), id, end_s, &list, &err);
  PyBuffer_Release(&before);
  return PyErr_Occurred() ? NULL : list_of(module, status, list, &err);
}

static PyObject *denials_take_back(PyObject *module, PyObject *args) {
  const char *key, *id;
  Py_buffer before;
  hv_span list;
  hv_error err = {0};
  if (!PyArg_ParseTuple(args, "sy*s:denials_take_back", &key, &before, &id))
    return NULL;
  hv_status status = hv_denials_take_back(state_of(module)->mem, key, span_of(&before), id, &list, &err);
  PyBuffer_Release(&before);
  return list_of(module, status, list, &err);
}

static PyObject *denials_union(PyObject *module, PyObject *args) {
  const char *key, *invite;
  Py_buffer one, other;
  hv_span list;
  hv_error err = {0};
  if (!PyArg_ParseTuple(args, "zzy*y*:denials_union", &key, &invite, &one, &other))
    return NULL;
  hv_status status = hv_denials_union(state_of(module)->mem, key, invite, span_of(&one), span_of(&other), &list, &err);
  PyBuffer_Release(&one);
  PyBuffer_Release(&other);
  return list_of(module, status, list, &err);
}

static PyObject *denials_convert(PyObject *module, PyObject *args) {
  const char *key;
  Py_buffer old;
  hv_span list;
  hv_error err = {0};
  if (!PyArg_ParseTuple(args, "sy*:denials_convert", &key, &old))
    return NULL;
  hv_status status = hv_denials_convert(state_of(module)->mem, key, span_of(&old), &list, &err);
  PyBuffer_Release(&old);
  return list_of(module, status, list, &err);
}

/* The ID of an invitation, or of a peer, which a denial has as its subject. */
static PyObject *subject_text(const hv_denial *denial) {
  static const uint8_t zeros[24];
  char text[HV_PEER_TEXT_MAX], id[HV_INVITATION_TEXT_MAX];
  hv_peer_id peer;
  memcpy(peer.key, denial->subject, sizeof peer.key);
  if (memcmp(denial->subject + 8, zeros, sizeof zeros) == 0)
    return PyUnicode_FromString(hv_invitation_print(&(hv_invitation){.key = peer}, id));
  return PyUnicode_FromString(hv_peer_print(&peer, text));
}

static PyObject *denials_read(PyObject *module, PyObject *args) {
  Py_buffer bytes;
  (void)module;
  if (!PyArg_ParseTuple(args, "y*:denials_read", &bytes))
    return NULL;
  hv_span list = hv_denials_check(span_of(&bytes)) == HV_OK ? span_of(&bytes) : hv_span_of(NULL, 0);
  Py_ssize_t n = (Py_ssize_t)hv_denials_count(list);
  PyObject *all = PyTuple_New(n);
  for (Py_ssize_t i = 0; all && i < n; i++) {
    hv_denial denial;
    hv_denials_at(list, (size_t)i, &denial);
    PyObject *one =
        denial.end_s == HV_DENIALS_NO_END
            ? Py_BuildValue("(NNO)", subject_text(&denial), PyBool_FromLong(!denial.taken_back), Py_None)
            : Py_BuildValue("(NNL)", subject_text(&denial), PyBool_FromLong(!denial.taken_back), (long long)denial.end_s);
    if (!one || PyTuple_SetItem(all, i, one) < 0) {
      Py_DECREF(all);
      all = NULL;
    }
  }
  PyBuffer_Release(&bytes);
  return all;
}

/* The membership, and digits that name the swarm and are no secret. */
static PyObject *membership_of(PyObject *module, PyObject *args) {
  const char *key, *invite;
  char text[HV_MEMBERSHIP_TEXT_MAX], swarm[2 * 8 + 1];
  hv_credentials credentials;
  hv_error err = {0};
  if (!PyArg_ParseTuple(args, "zz:membership_of", &key, &invite))
    return NULL;
  if (!key && !invite)
    return Py_BuildValue("(ss)", "", "");
  hv_status status = hv_credentials_read(state_of(module)->mem, key, invite, &credentials, &err);
  if (status != HV_OK)
    return bind_raise_why(state_of(module), status, &err);
  hv_membership_print(&credentials.admission.me, text);
  for (int i = 0; i < 8; i++)
    snprintf(swarm + 2 * i, 3, "%02x", credentials.admission.swarm.key[i]);
  hv_credentials_fini(&credentials);
  return Py_BuildValue("(ss)", text, swarm);
}

static PyMethodDef functions[] = {
    {"swarm_key_new", key_new, METH_NOARGS, "swarm_key_new() -> the text of a new swarm key"},
    {"invite_new", invite_new, METH_VARARGS,
     "invite_new(key, end_s, name, before or None) -> (text, id) of a new invitation, or of one that is renewed"},
    {"denials_new", denials_new, METH_VARARGS, "denials_new(key, before, id, end_s or None) -> the list of denials with one more"},
    {"denials_take_back", denials_take_back, METH_VARARGS,
     "denials_take_back(key, before, id) -> the list without denials of the ID"},
    {"denials_union", denials_union, METH_VARARGS, "denials_union(key or None, invite or None, one, other) -> both lists as one"},
    {"denials_convert", denials_convert, METH_VARARGS, "denials_convert(key, old) -> the list of an older release, as one of this"},
    {"denials_read", denials_read, METH_VARARGS, "denials_read(list) -> ((id, is denied, end_s or None), ...)"},
    {"membership_of", membership_of, METH_VARARGS,
     "membership_of(key or None, invite or None) -> (how a peer with these is a member, digits that name the swarm)"},
    {NULL, NULL, 0, NULL},
};

int hv_py_invite_init(PyObject *module) {
  return PyModule_AddFunctions(module, functions);
}
