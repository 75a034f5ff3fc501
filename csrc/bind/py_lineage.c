/* Which replica is the swarm's (core/epoch/lineage.h); hivemind_c/averaging/marks.py and optim/lineage.py are its users. */
#include "epoch.h"

#include "core/epoch/word.h"
#include "net/identity.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- an env that only hashes ---- */

static void env_sha256(hv_env *env, hv_span bytes, hv_hash *out) {
  (void)env;
  hv_identity_sha256(bytes, out);
}

hv_env bind_hashing(void) {
  return (hv_env){.sha256 = env_sha256};
}

/* ---- members, words and marks ---- */

int bind_mark(PyObject *object, hv_mark *out) {
  if (!object || !PyBytes_Check(object) || PyBytes_Size(object) != HV_MARK_SIZE)
    return 0;
  memcpy(out->bytes, PyBytes_AsString(object), HV_MARK_SIZE);
  return 1;
}

static PyObject *mark_bytes(const hv_mark *mark) {
  return PyBytes_FromStringAndSize((const char *)mark->bytes, HV_MARK_SIZE);
}

/* Reads (peer, is_client, is_auxiliary, word). */
static int read_member(bind_state *state, PyObject *object, hv_lineage_member *out) {
  PyObject *peer;
  const char *word;
  Py_ssize_t size;
  int is_client, is_auxiliary;
  if (!PyArg_ParseTuple(object, "Uppy#", &peer, &is_client, &is_auxiliary, &word, &size) || bind_peer(state, peer, &out->peer) < 0)
    return -1;
  out->is_client = (uint8_t)is_client;
  out->is_auxiliary = (uint8_t)is_auxiliary;
  out->has_word = (uint8_t)hv_word_read(hv_span_of(word, (size_t)size), &out->word);
  return 0;
}

int bind_members_init(bind_state *state, PyObject *sequence, bind_members *out) {
  Py_ssize_t n = PySequence_Size(sequence);
  *out = (bind_members){NULL, 0};
  if (n < 0)
    return -1;
  out->list = hv_mem_array(state->mem, n ? (size_t)n : 1, sizeof *out->list);
  if (!out->list) {
    PyErr_NoMemory();
    return -1;
  }
  for (; out->n < (size_t)n; out->n++) {
    PyObject *one = PySequence_GetItem(sequence, (Py_ssize_t)out->n);
    out->list[out->n] = (hv_lineage_member){0};
    int rc = !one ? -1 : PyTuple_Check(one) ? read_member(state, one, &out->list[out->n]) : -1;
    if (one && rc < 0 && !PyErr_Occurred())
      PyErr_SetString(PyExc_TypeError, "a member is a tuple (peer, is_client, is_auxiliary, word as bytes)");
    Py_XDECREF(one);
    if (rc < 0) {
      hv_mem_free(out->list);
      return -1;
    }
  }
  return 0;
}

void bind_members_fini(bind_members *m) {
  hv_mem_free(m->list);
}

static PyObject *right_peers(const hv_lineage_view *view, const bind_members *m) {
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < m->n; i++) {
    if (!hv_lineage_is_right(view, &m->list[i]))
      continue;
    PyObject *peer = bind_peer_text(&m->list[i].peer);
    if (!peer || PyList_Append(list, peer) < 0)
      Py_CLEAR(list);
    Py_XDECREF(peer);
  }
  return list;
}

/* {peer: mark} of the members with a replica and a word. */
static PyObject *marks_of(const bind_members *m) {
  PyObject *dict = PyDict_New();
  for (size_t i = 0; dict && i < m->n; i++) {
    if (m->list[i].is_auxiliary || !m->list[i].has_word)
      continue;
    PyObject *peer = bind_peer_text(&m->list[i].peer), *mark = mark_bytes(&m->list[i].word.mark);
    if (!peer || !mark || PyDict_SetItem(dict, peer, mark) < 0)
      Py_CLEAR(dict);
    Py_XDECREF(peer);
    Py_XDECREF(mark);
  }
  return dict;
}

static PyObject *view(PyObject *module, PyObject *sequence) {
  bind_members m;
  if (bind_members_init(PyModule_GetState(module), sequence, &m) < 0)
    return NULL;
  hv_lineage_view v = hv_lineage_view_of(m.list, m.n);
  PyObject *result = Py_BuildValue("(NNNN)", v.any ? mark_bytes(&v.swarms) : Py_NewRef(Py_None), right_peers(&v, &m), marks_of(&m),
                                   v.giver ? bind_peer_text(&v.giver->peer) : Py_NewRef(Py_None));
  bind_members_fini(&m);
  return result;
}

/* ---- the mark of this peer's replica ---- */

typedef struct py_lineage {
  PyObject_HEAD
  hv_lineage lineage;
} py_lineage;

static PyObject *lineage_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  (void)args, (void)kwargs; /* those of the subclass */
  py_lineage *self = (py_lineage *)PyType_GenericAlloc(type, 0);
  if (self)
    hv_lineage_init(&self->lineage);
  return (PyObject *)self;
}

static hv_lineage *lineage_of(PyObject *object) {
  return &((py_lineage *)object)->lineage;
}

hv_lineage *bind_lineage_of(PyObject *object) {
  return lineage_of(object);
}

int bind_lineage_know(PyObject *object) {
  hv_lineage *l = lineage_of(object);
  hv_mark digest;
  if (l->is_known || !l->is_kept)
    return 0;
  PyObject *bytes = PyObject_CallMethod(object, "digest", NULL);
  if (!bytes)
    return -1;
  int good = bind_mark(bytes, &digest);
  Py_DECREF(bytes);
  if (!good) {
    PyErr_Format(PyExc_ValueError, "digest() must return %d bytes", HV_MARK_SIZE);
    return -1;
  }
  if (!l->is_known)
    hv_lineage_begin(l, &digest);
  return 0;
}

static PyObject *lineage_mark(PyObject *object, void *unused) {
  (void)unused;
  if (bind_lineage_know(object) < 0)
    return NULL;
  return lineage_of(object)->is_kept ? mark_bytes(&lineage_of(object)->mark) : PyBytes_FromStringAndSize("", 0);
}

static PyObject *lineage_restart(PyObject *object, PyObject *args) {
  PyObject *given = Py_None;
  hv_mark mark;
  if (!PyArg_ParseTuple(args, "|O:restart", &given))
    return NULL;
  hv_lineage_restart(lineage_of(object), bind_mark(given, &mark) ? &mark : NULL);
  Py_RETURN_NONE;
}

static PyObject *lineage_averaged(PyObject *object, PyObject *stamp) {
  unsigned long long number;
  hv_env env = bind_hashing();
  if (!bind_whole_number(stamp, &number) || bind_lineage_know(object) < 0)
    return NULL;
  hv_lineage_averaged(lineage_of(object), &env, number);
  Py_RETURN_NONE;
}

static PyObject *lineage_follow(PyObject *object, PyObject *args) {
  PyObject *tuple;
  bind_parts parts;
  hv_lineage_member members[HV_EPOCH_MEMBERS];
  hv_env env = bind_hashing();
  hv_epoch_round round = {.which = HV_EPOCH_REPLICA_STATE, .status = HV_OK, .has_group = 1, .has_replica = 1};
  if (!PyArg_ParseTuple(args, "O!p:follow", &PyTuple_Type, &tuple, &round.alike) || bind_lineage_know(object) < 0)
    return NULL;
  int rc = bind_parts_init(tuple, &parts);
  round.parts = parts.list;
  round.n_parts = parts.n;
  if (rc == 0) {
    hv_epoch_facts facts = hv_epoch_facts_of(&round, members);
    if (!hv_epoch_round_event(&round, &facts, members).ok)
      hv_lineage_averaged(lineage_of(object), &env, facts.stamp);
  }
  bind_parts_fini(&parts);
  return rc == 0 ? Py_NewRef(Py_None) : NULL;
}

uint64_t *bind_numbers(PyObject *sequence, size_t *out_n) {
  Py_ssize_t n = PySequence_Size(sequence);
  uint64_t *list = n < 0 ? NULL : PyMem_Calloc((size_t)n + 1, sizeof *list);
  if (!list) {
    if (n >= 0)
      PyErr_NoMemory();
    return NULL;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = PySequence_GetItem(sequence, i);
    unsigned long long number = 0;
    int good = item && bind_whole_number(item, &number);
    Py_XDECREF(item);
    if (!good) {
      PyMem_Free(list);
      return NULL;
    }
    list[i] = number;
  }
  *out_n = (size_t)n;
  return list;
}

static PyObject *lineage_stepped(PyObject *object, PyObject *args) {
  PyObject *stamps, *frozen;
  unsigned long long samples;
  hv_env env = bind_hashing();
  size_t n = 0, n_frozen = 0;
  if (!PyArg_ParseTuple(args, "OOO&:stepped", &stamps, &frozen, bind_whole_number, &samples) || bind_lineage_know(object) < 0)
    return NULL;
  uint64_t *first = bind_numbers(stamps, &n), *second = first ? bind_numbers(frozen, &n_frozen) : NULL;
  if (second)
    hv_lineage_stepped(lineage_of(object), &env, first, n, second, n_frozen, samples);
  PyMem_Free(first);
  PyMem_Free(second);
  return second ? Py_NewRef(Py_None) : NULL;
}

static PyObject *lineage_stepped_alone(PyObject *object, PyObject *args) {
  const char *text;
  Py_ssize_t size;
  unsigned long long epoch, moment_us, samples;
  hv_peer_id me;
  hv_error err = {0};
  hv_env env = bind_hashing();
  if (!PyArg_ParseTuple(args, "s#O&O&O&:stepped_alone", &text, &size, bind_whole_number, &epoch, bind_whole_number, &moment_us,
                        bind_whole_number, &samples))
    return NULL;
  if (hv_peer_parse(hv_span_of(text, (size_t)size), &me, &err) != HV_OK) {
    PyErr_SetString(PyExc_ValueError, err.text);
    return NULL;
  }
  if (bind_lineage_know(object) < 0)
    return NULL;
  hv_lineage_stepped_alone(lineage_of(object), &env, &me, epoch, moment_us, samples);
  Py_RETURN_NONE;
}

static PyObject *lineage_set_up(PyObject *object, PyObject *args) {
  Py_buffer setup;
  hv_env env = bind_hashing();
  if (!PyArg_ParseTuple(args, "y*:set_up", &setup))
    return NULL;
  int rc = bind_lineage_know(object);
  if (rc == 0)
    hv_lineage_set_up(lineage_of(object), &env, hv_span_of(setup.buf, (size_t)setup.len));
  PyBuffer_Release(&setup);
  return rc == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject *lineage_judge(PyObject *object, PyObject *swarms) {
  hv_lineage_view v = {0};
  v.any = (uint8_t)bind_mark(swarms, &v.swarms);
  if (v.any && bind_lineage_know(object) < 0)
    return NULL;
  return PyBool_FromLong(hv_lineage_judge(lineage_of(object), &v));
}

static PyObject *lineage_is_left(PyObject *object, PyObject *ignored) {
  (void)ignored;
  hv_lineage_is_left(lineage_of(object));
  Py_RETURN_NONE;
}

static PyObject *lineage_word(PyObject *object, PyObject *ignored) {
  (void)ignored;
  if (bind_lineage_know(object) < 0)
    return NULL;
  hv_word word = hv_lineage_word(lineage_of(object));
  return Py_BuildValue("[NL]", lineage_mark(object, NULL), (long long)word.rank);
}

static PyObject *lineage_digits(PyObject *object, PyObject *ignored) {
  float digits[HV_MARK_DIGITS];
  (void)ignored;
  if (bind_lineage_know(object) < 0)
    return NULL;
  hv_mark_digits(&lineage_of(object)->mark, digits);
  PyObject *list = PyList_New(HV_MARK_DIGITS);
  for (Py_ssize_t i = 0; list && i < HV_MARK_DIGITS; i++) {
    PyObject *digit = PyFloat_FromDouble((double)digits[i]);
    if (!digit || PyList_SetItem(list, i, digit) < 0)
      Py_CLEAR(list);
  }
  return list;
}

static const PyMethodDef methods[] = {
    {"restart", lineage_restart, METH_VARARGS, "restart(mark=None): the state is another one: of that mark, or of none."},
    {"averaged", lineage_averaged, METH_O, "averaged(stamp): another average is in the state."},
    {"follow", lineage_follow, METH_VARARGS,
     "follow(parts, alike): a state that no Optimizer drives was averaged. parts, alike: as of Epoch.round()."},
    {"stepped", lineage_stepped, METH_VARARGS, "stepped(stamps, frozen, samples): the optimizer stepped with averages."},
    {"stepped_alone", lineage_stepped_alone, METH_VARARGS,
     "stepped_alone(peer, epoch, moment, samples): the optimizer stepped with this peer's own gradient."},
    {"set_up", lineage_set_up, METH_VARARGS, "set_up(digest): the peer trains under another setup from here on."},
    {"judge", lineage_judge, METH_O, "judge(swarms) -> whether this replica is the swarm's, by the mark of lineage_view()."},
    {"is_left", lineage_is_left, METH_NOARGS, "This replica is not the swarm's any more."},
    {"word", lineage_word, METH_NOARGS, "word() -> [mark, rank], for the others when a group forms."},
    {"digits", lineage_digits, METH_NOARGS, "The mark as small numbers that can be averaged."},
    {NULL, NULL, 0, NULL}};

static PyObject *flag_get(PyObject *object, void *offset) {
  return PyBool_FromLong(*((const uint8_t *)lineage_of(object) + (size_t)offset));
}

static int flag_set(PyObject *object, PyObject *value, void *offset) {
  int on = value ? PyObject_IsTrue(value) : -1;
  if (!value)
    PyErr_SetString(PyExc_AttributeError, "this attribute cannot be deleted");
  if (on >= 0)
    *((uint8_t *)lineage_of(object) + (size_t)offset) = (uint8_t)on;
  return on < 0 ? -1 : 0;
}

#define AT(field) (void *)offsetof(hv_lineage, field)

static const PyGetSetDef attributes[] = {
    {"mark", lineage_mark, NULL, "16 bytes; empty if replicas differ on purpose.", NULL},
    {"kept", flag_get, flag_set, "False: replicas differ on purpose, and nobody asks.", AT(is_kept)},
    {"is_wrong", flag_get, flag_set, "Another replica is the swarm's, until its state is loaded.", AT(is_wrong)},
    {"is_reachable", flag_get, flag_set, "Joiners can download this replica from this peer.", AT(is_reachable)},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef functions[] = {
    {"lineage_view", view, METH_O,
     "lineage_view(members) -> (mark of the swarm's replica or None, peers that have it, {peer: mark}, the giver or None)"},
    {NULL, NULL, 0, NULL}};

int hv_py_lineage_init(PyObject *module) {
  PyType_Slot slots[] = {
      {Py_tp_doc, (void *)"The mark of a replica; a subclass has digest(), which digests the state as it is now."},
      {Py_tp_new, (void *)lineage_new},
      {Py_tp_methods, (void *)methods},
      {Py_tp_getset, (void *)attributes},
      {0, NULL}};
  PyType_Spec spec = {.name = "_hivemind_c.Lineage",
                      .basicsize = sizeof(py_lineage),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  if (bind_type_add(module, &spec, "Lineage") < 0 || PyModule_AddIntConstant(module, "MARK_SIZE", HV_MARK_SIZE) < 0 ||
      PyModule_AddIntConstant(module, "MARK_DIGITS", HV_MARK_DIGITS) < 0)
    return -1;
  return PyModule_AddFunctions(module, functions);
}
