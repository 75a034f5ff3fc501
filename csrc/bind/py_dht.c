#include "bind.h"

#include <stddef.h>
#include <string.h>

/* ---- settings ---- */

typedef struct setting {
  const char *name;
  size_t offset;
  unsigned char wide, is_signed; /* wide: a size_t; signed: an int, and below 0 is none */
  long long most;
} setting;

#define SIZE(name, most)                                                                                                           \
  { #name, offsetof(hv_hive_dht_config, name), 1, 0, most }
#define NUMBER(name, most)                                                                                                         \
  { #name, offsetof(hv_hive_dht_config, name), 0, 0, most }
#define CHOICE(name, most)                                                                                                         \
  { #name, offsetof(hv_hive_dht_config, name), 0, 1, most }
static const setting settings[] = {
    SIZE(bucket_size, 256),        SIZE(num_replicas, 20),     SIZE(parallel_rpc, 64),       SIZE(cache_records, 1 << 20),
    CHOICE(cache_locally, 1),      CHOICE(cache_nearest, 20),  NUMBER(refresh_ms, 86400000), NUMBER(wait_timeout_ms, 3600000),
    NUMBER(blacklist_ms, 3600000), NUMBER(backoff_rate, 1000),
};

static int set_one(hv_hive_dht_config *config, PyObject *key, PyObject *value) {
  const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, NULL) : NULL;
  const setting *known = NULL;
  for (size_t i = 0; name && i < sizeof settings / sizeof *settings; i++)
    if (strcmp(settings[i].name, name) == 0)
      known = &settings[i];
  if (!known) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_TypeError, "the DHT has no setting %R", key);
    return -1;
  }
  long long number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError))
      return -1;
    PyErr_Clear();
    number = known->most + 1;
  }
  if (number > known->most || (!known->is_signed && number < 0)) {
    PyErr_Format(PyExc_ValueError, "%s is from 0 (by default) to %lld, not %R", name, known->most, value);
    return -1;
  }
  char *at = (char *)config + known->offset;
  size_t wide = (size_t)number;
  uint32_t narrow = (uint32_t)number;
  int choice = number < 0 ? -1 : (int)number;
  if (known->wide)
    memcpy(at, &wide, sizeof wide);
  else if (known->is_signed)
    memcpy(at, &choice, sizeof choice);
  else
    memcpy(at, &narrow, sizeof narrow);
  return 0;
}

int bind_dht_settings(PyObject *dict, hv_hive_dht_config *out) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  if (!dict)
    return 0;
  while (PyDict_Next(dict, &at, &key, &value))
    if (set_one(out, key, value) < 0)
      return -1;
  return 0;
}

/* ---- the results of its futures ---- */

static PyObject *bytes_of(hv_span span) {
  return PyBytes_FromStringAndSize((const char *)span.data, (Py_ssize_t)span.size);
}

static PyObject *or_none(PyObject *object, int is_there) {
  if (is_there)
    return object;
  Py_XDECREF(object);
  Py_RETURN_NONE;
}

static PyObject *stored_number(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *peer) {
  (void)state, (void)future, (void)peer;
  uint32_t stored;
  memcpy(&stored, bytes.data, sizeof stored);
  return PyLong_FromUnsignedLong(stored);
}

static PyObject *records_tuple(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *peer) {
  (void)state, (void)future, (void)peer;
  Py_ssize_t n = (Py_ssize_t)(bytes.size / sizeof(hv_hive_record));
  PyObject *all = PyTuple_New(n);
  for (Py_ssize_t i = 0; all && i < n; i++) {
    hv_hive_record record;
    memcpy(&record, bytes.data + (size_t)i * sizeof record, sizeof record);
    PyObject *one =
        Py_BuildValue("(NNdN)", or_none(bytes_of(record.subkey), record.has_subkey), bytes_of(record.value),
                      (double)record.end_us / 1e6, or_none(bind_peer_text(&record.signer), hv_peer_is_known(&record.signer)));
    if (!one || PyTuple_SetItem(all, i, one) < 0)
      Py_CLEAR(all);
  }
  return all;
}

static PyObject *state_dict(bind_state *module, hv_future *future, hv_span bytes, const hv_peer_id *peer) {
  (void)module, (void)future, (void)peer;
  hv_hive_dht_state state;
  memcpy(&state, bytes.data, sizeof state);
  return Py_BuildValue("{s:n,s:n,s:n,s:n,s:n,s:K,s:K,s:n,s:i,s:i}", "peers", (Py_ssize_t)state.peers, "contacts",
                       (Py_ssize_t)state.contacts, "records", (Py_ssize_t)state.records, "bytes", (Py_ssize_t)state.bytes,
                       "published", (Py_ssize_t)state.published, "calls", (unsigned long long)state.calls, "questions",
                       (unsigned long long)state.questions, "memory", (Py_ssize_t)state.memory, "is_initial", state.is_initial,
                       "is_hidden", state.is_hidden);
}

static const bind_future_kind store_kind = {.awaited = "the DHT to store", .convert = stored_number};
static const bind_future_kind get_kind = {.awaited = "the DHT to answer", .convert = records_tuple};
static const bind_future_kind look_kind = {.awaited = "the DHT's numbers", .convert = state_dict};

/* ---- store and get ---- */

typedef struct bytes_arguments {
  Py_buffer key, subkey, value;
} bytes_arguments;

static void release(bytes_arguments *given) {
  PyBuffer_Release(&given->key);
  PyBuffer_Release(&given->subkey);
  PyBuffer_Release(&given->value);
}

static int check_size(bind_state *state, const char *what, const Py_buffer *bytes, Py_ssize_t most) {
  if (bytes->len <= most)
    return 0;
  char text[128];
  PyOS_snprintf(text, sizeof text, "%s has %zd bytes, and %zd are the limit", what, bytes->len, most);
  bind_raise(state, HV_TOO_LARGE, text);
  return -1;
}

static hv_span span_of(const Py_buffer *bytes) {
  return hv_span_of(bytes->buf, (size_t)bytes->len);
}

static uint32_t wait_of(uint32_t timeout_ms) {
  return timeout_ms == UINT32_MAX ? 0 : timeout_ms ? timeout_ms : 1; /* None: the core's own limit */
}

PyObject *bind_dht_store(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  bind_state *state = PyType_GetModuleState(Py_TYPE(self));
  bytes_arguments given = {0};
  PyObject *timeout = Py_None;
  unsigned long long ttl_ms = 0;
  uint32_t timeout_ms;
  hv_future *future = NULL;
  hv_status status;
  if (bind_node_check(self) < 0)
    return NULL;
  PyObject *made = NULL;
  if (PyArg_ParseTuple(args, "y*z*y*K|O:dht_store", &given.key, &given.subkey, &given.value, &ttl_ms, &timeout) &&
      bind_timeout(timeout, &timeout_ms) == 0 && check_size(state, "the key", &given.key, HV_RECORD_KEY_MAX) == 0 &&
      check_size(state, "the subkey", &given.subkey, HV_RECORD_KEY_MAX) == 0 &&
      check_size(state, "the value", &given.value, HV_RECORD_VALUE_MAX) == 0) {
    hv_hive_record record = {
        .subkey = span_of(&given.subkey), .value = span_of(&given.value), .has_subkey = given.subkey.obj != NULL, .ttl_ms = ttl_ms};
    Py_BEGIN_ALLOW_THREADS
    status = hv_hive_dht_store(self->hive, span_of(&given.key), &record, wait_of(timeout_ms), &future);
    Py_END_ALLOW_THREADS
    made = bind_node_future(self, &store_kind, status, future);
  }
  release(&given);
  return made;
}

PyObject *bind_dht_get(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  bytes_arguments given = {0};
  PyObject *timeout = Py_None, *made = NULL;
  int latest = 0;
  uint32_t timeout_ms;
  hv_future *future = NULL;
  hv_status status;
  if (bind_node_check(self) < 0)
    return NULL;
  if (PyArg_ParseTuple(args, "y*|pO:dht_get", &given.key, &latest, &timeout) && bind_timeout(timeout, &timeout_ms) == 0 &&
      check_size(PyType_GetModuleState(Py_TYPE(self)), "the key", &given.key, HV_RECORD_KEY_MAX) == 0) {
    Py_BEGIN_ALLOW_THREADS
    status = hv_hive_dht_get(self->hive, span_of(&given.key), latest, wait_of(timeout_ms), &future);
    Py_END_ALLOW_THREADS
    made = bind_node_future(self, &get_kind, status, future);
  }
  release(&given);
  return made;
}

PyObject *bind_dht_look(PyObject *object, PyObject *ignored) {
  bind_node *self = (bind_node *)object;
  hv_future *future = NULL;
  (void)ignored;
  if (bind_node_check(self) < 0)
    return NULL;
  hv_status status = hv_hive_dht_look(self->hive, &future);
  return bind_node_future(self, &look_kind, status, future);
}
