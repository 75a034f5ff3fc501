#include "bind.h"

#include <string.h>

enum { TICKET = 16 };

static bind_state *state_of(bind_node *self) {
  return PyType_GetModuleState(Py_TYPE(self));
}

/* ---- the results of its futures ---- */

static PyObject *view_of(bind_state *state, hv_future *future, hv_span bytes) {
  PyObject *parcel = bind_parcel_new(state, future, bytes, 1);
  PyObject *view = parcel ? PyMemoryView_FromObject(parcel) : NULL;
  Py_XDECREF(parcel);
  return view;
}

/* (codec, dtype, own) of each part, as state_offer takes them. */
static PyObject *kinds_of(const hv_hive_state *got) {
  PyObject *kinds = PyTuple_New((Py_ssize_t)got->n_parts);
  for (size_t i = 0; kinds && i < got->n_parts; i++) {
    const hv_hive_state_part *part = &got->parts[i];
    PyObject *kind = Py_BuildValue("(iiN)", part->codec, part->dtype, PyBool_FromLong(part->own));
    if (!kind || PyTuple_SetItem(kinds, (Py_ssize_t)i, kind) < 0)
      Py_CLEAR(kinds);
  }
  return kinds;
}

static PyObject *loaded_tuple(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *donor) {
  hv_hive_state got;
  memcpy(&got, bytes.data, sizeof got);
  PyObject *parts = PyTuple_New((Py_ssize_t)got.n_parts);
  for (size_t i = 0; parts && i < got.n_parts; i++) {
    PyObject *view = view_of(state, future, got.parts[i].bytes);
    if (!view || PyTuple_SetItem(parts, (Py_ssize_t)i, view) < 0)
      Py_CLEAR(parts);
  }
  PyObject *kinds = parts ? kinds_of(&got) : NULL;
  if (!kinds) {
    Py_XDECREF(parts);
    return NULL;
  }
  return Py_BuildValue("(Ky#NNy#N)", (unsigned long long)got.epoch, (const char *)got.metadata.data, (Py_ssize_t)got.metadata.size,
                       bind_peer_text(donor), parts, (const char *)got.digest.bytes, (Py_ssize_t)sizeof got.digest.bytes, kinds);
}

static const bind_future_kind offer_kind = {.awaited = "a state to be offered", .convert = bind_future_bytes};
static const bind_future_kind change_kind = {.awaited = "an offer to be changed"};
static PyObject *number_of(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *peer) {
  (void)state, (void)future, (void)peer;
  return PyLong_FromUnsignedLongLong(hv_le_get(bytes.data, 8));
}

static PyObject *loading_of(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *peer) {
  (void)state, (void)future, (void)peer;
  return Py_BuildValue("(KKKK)", (unsigned long long)hv_le_get(bytes.data, 8), (unsigned long long)hv_le_get(bytes.data + 8, 8),
                       (unsigned long long)hv_le_get(bytes.data + 16, 8), (unsigned long long)hv_le_get(bytes.data + 24, 8));
}

static const bind_future_kind loading_kind = {.awaited = "how far a download is", .convert = loading_of};
static const bind_future_kind look_kind = {.awaited = "a look at the states on offer", .convert = number_of};
static const bind_future_kind await_kind = {
    .awaited = "a joiner that wants the state", .convert = number_of, .cancel_when_dropped = 1};
static const bind_future_kind want_kind = {.awaited = "peers that give a state", .convert = number_of};
static const bind_future_kind load_kind = {.awaited = "the swarm's state", .convert = loaded_tuple};
static const bind_future_kind gift_wait_kind = {
    .awaited = "a hub that asks for the state", .convert = number_of, .cancel_when_dropped = 1};
static const bind_future_kind gift_kind = {.awaited = "a hub to take the state"};
static const bind_future_kind take_kind = {
    .awaited = "a state that a trainer gives", .convert = loaded_tuple, .cancel_when_dropped = 1};
static const bind_future_kind follow_kind = {.awaited = "the node to follow a run"};

/* ---- offer ---- */

/* All buffers of one offer: they come back together. */
typedef struct loans {
  size_t n;
  bind_loan *each[];
} loans;

static void all_back(void *arg) { /* the hive's callback: any thread, no GIL */
  loans *lent = arg;
  for (size_t i = 0; i < lent->n; i++)
    bind_loan_back(lent->each[i]);
  hv_mem_free(lent);
}

static void release_all(loans *lent) {
  for (size_t i = 0; i < lent->n; i++)
    bind_loan_release(lent->each[i]);
  hv_mem_free(lent);
}

/* One (buffer, codec, dtype), or with own, 1, behind them. 0, or -1 with an exception set. */
static int lend_part(bind_node *self, PyObject *item, bind_loan **loan, hv_hive_state_part *part) {
  PyObject *buffer;
  unsigned char codec, dtype, own = 0;
  if (!PyTuple_Check(item)) {
    PyErr_SetString(PyExc_TypeError, "state_offer: each part is a tuple (buffer, codec, dtype, own)");
    return -1;
  }
  if (!PyArg_ParseTuple(item, "Obb|b:state_offer", &buffer, &codec, &dtype, &own))
    return -1;
  *loan = bind_loan_new(state_of(self), self->bay, buffer);
  if (!*loan)
    return -1;
  *part = (hv_hive_state_part){hv_span_of((*loan)->view.buf, (size_t)(*loan)->view.len), codec, dtype, own};
  return 0;
}

static loans *lend_parts(bind_node *self, PyObject *tuple, hv_hive_state_part **parts) {
  size_t n = (size_t)PyTuple_Size(tuple);
  hv_mem *mem = state_of(self)->mem;
  loans *lent = hv_mem_zalloc(mem, sizeof *lent + n * sizeof *lent->each);
  *parts = hv_mem_array(mem, n, sizeof **parts);
  if (!lent || !*parts) {
    hv_mem_free(lent);
    PyErr_NoMemory();
    return NULL;
  }
  for (; lent->n < n; lent->n++)
    if (lend_part(self, PyTuple_GetItem(tuple, (Py_ssize_t)lent->n), &lent->each[lent->n], &(*parts)[lent->n]) < 0) {
      release_all(lent);
      return NULL;
    }
  return lent;
}

/* The error for an offer that failed: hv_hive_state_offer gives no hv_error. */
static PyObject *offer_failed(bind_node *self, hv_status status) {
  if (status == HV_TOO_LARGE)
    return bind_raise(state_of(self), status,
                      "the state has too many parts (16,384 are the limit), metadata over 1 MiB, or a prefix over 512 bytes");
  return bind_node_future(self, &offer_kind, status, NULL);
}

PyObject *bind_state_offer(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  hv_hive_snapshot offer = {.epoch = 0};
  Py_buffer prefix, metadata;
  PyObject *tuple;
  unsigned long long epoch;
  unsigned int declare_ms = 0;
  const char *lineage = NULL;
  Py_ssize_t lineage_size = 0;
  hv_hive_state_part *parts = NULL;
  hv_future *future = NULL;
  hv_status status = HV_NOMEM;
  if (bind_node_check(self) < 0 || !PyArg_ParseTuple(args, "y*Ky*O!|fIy#:state_offer", &prefix, &epoch, &metadata, &PyTuple_Type,
                                                     &tuple, &offer.priority, &declare_ms, &lineage, &lineage_size))
    return NULL;
  if (lineage_size == sizeof offer.lineage)
    memcpy(offer.lineage, lineage, sizeof offer.lineage);
  bind_bay_settle(self->bay);
  loans *lent = lend_parts(self, tuple, &parts);
  if (lent) {
    offer.prefix = hv_span_of(prefix.buf, (size_t)prefix.len);
    offer.metadata = hv_span_of(metadata.buf, (size_t)metadata.len);
    offer.epoch = epoch;
    offer.parts = parts;
    offer.n_parts = lent->n;
    offer.declare_ms = declare_ms;
    Py_BEGIN_ALLOW_THREADS
    status = hv_hive_state_offer(self->hive, &offer, all_back, lent, &future);
    Py_END_ALLOW_THREADS
    if (status != HV_OK)
      release_all(lent);
  }
  hv_mem_free(parts);
  PyBuffer_Release(&prefix);
  PyBuffer_Release(&metadata);
  if (!lent)
    return NULL;
  return status == HV_OK ? bind_node_future(self, &offer_kind, status, future) : offer_failed(self, status);
}

/* ---- gifts ---- */

/* Peer IDs as text in a tuple. NULL with an exception set. */
static hv_peer_id *peers_of(bind_node *self, PyObject *tuple, size_t *n) {
  *n = (size_t)PyTuple_Size(tuple);
  hv_peer_id *peers = hv_mem_array(state_of(self)->mem, *n + 1, sizeof *peers);
  if (!peers)
    PyErr_NoMemory();
  for (size_t i = 0; peers && i < *n; i++)
    if (bind_peer(state_of(self), PyTuple_GetItem(tuple, (Py_ssize_t)i), &peers[i]) < 0) {
      hv_mem_free(peers);
      return NULL;
    }
  return peers;
}

static int is_ticket(Py_ssize_t size) {
  if (size != TICKET)
    PyErr_Format(PyExc_ValueError, "a ticket must have %d bytes, not %zd", TICKET, size);
  return size == TICKET;
}

PyObject *bind_gift_give(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  hv_hive_snapshot offer = {.epoch = 0};
  Py_buffer prefix, metadata;
  PyObject *tuple, *hubs = NULL;
  unsigned long long epoch;
  const char *lineage, *ticket = NULL;
  Py_ssize_t lineage_size, ticket_size = 0;
  hv_hive_state_part *parts = NULL;
  hv_future *future = NULL;
  hv_status status = HV_NOMEM;
  size_t n_hubs = 0;
  if (bind_node_check(self) < 0 || !PyArg_ParseTuple(args, "y*Ky*O!y#|O!y#:gift_give", &prefix, &epoch, &metadata, &PyTuple_Type,
                                                     &tuple, &lineage, &lineage_size, &PyTuple_Type, &hubs, &ticket, &ticket_size))
    return NULL;
  if (lineage_size == sizeof offer.lineage)
    memcpy(offer.lineage, lineage, sizeof offer.lineage);
  bind_bay_settle(self->bay);
  hv_peer_id *ids = hubs && !is_ticket(ticket_size) ? NULL : hubs ? peers_of(self, hubs, &n_hubs) : NULL;
  loans *lent = hubs && !ids ? NULL : lend_parts(self, tuple, &parts);
  if (lent) {
    offer.prefix = hv_span_of(prefix.buf, (size_t)prefix.len);
    offer.metadata = hv_span_of(metadata.buf, (size_t)metadata.len);
    offer.epoch = epoch;
    offer.parts = parts;
    offer.n_parts = lent->n;
    Py_BEGIN_ALLOW_THREADS
    status = hv_hive_gift_give(self->hive, &offer, ids, n_hubs, (const uint8_t *)ticket, all_back, lent, &future);
    Py_END_ALLOW_THREADS
    if (status != HV_OK)
      release_all(lent);
  }
  hv_mem_free(ids);
  hv_mem_free(parts);
  PyBuffer_Release(&prefix);
  PyBuffer_Release(&metadata);
  if (!lent)
    return NULL;
  return status == HV_OK ? bind_node_future(self, &gift_kind, status, future) : offer_failed(self, status);
}

static PyObject *by_prefix(PyObject *object, PyObject *args, const char *format, const bind_future_kind *kind,
                           hv_status (*begin)(hv_hive *, hv_span, hv_future **)) {
  bind_node *self = (bind_node *)object;
  Py_buffer prefix;
  hv_future *future = NULL;
  if (bind_node_check(self) < 0 || !PyArg_ParseTuple(args, format, &prefix))
    return NULL;
  hv_status status = begin(self->hive, hv_span_of(prefix.buf, (size_t)prefix.len), &future);
  PyBuffer_Release(&prefix);
  return bind_node_future(self, kind, status, future);
}

static PyObject *by_prefix_and_number(PyObject *object, PyObject *args, const char *format, const bind_future_kind *kind,
                                      hv_status (*begin)(hv_hive *, hv_span, uint64_t, hv_future **)) {
  bind_node *self = (bind_node *)object;
  Py_buffer prefix;
  unsigned long long number;
  hv_future *future = NULL;
  if (bind_node_check(self) < 0 || !PyArg_ParseTuple(args, format, &prefix, &number))
    return NULL;
  hv_status status = begin(self->hive, hv_span_of(prefix.buf, (size_t)prefix.len), number, &future);
  PyBuffer_Release(&prefix);
  return bind_node_future(self, kind, status, future);
}

PyObject *bind_gift_take(PyObject *object, PyObject *args) {
  return by_prefix_and_number(object, args, "y*K:gift_take", &take_kind, hv_hive_gift_take);
}

PyObject *bind_gift_wait(PyObject *object, PyObject *args) {
  return by_prefix(object, args, "y*:gift_wait", &gift_wait_kind, hv_hive_gift_wait);
}

PyObject *bind_gift_refuse(PyObject *object, PyObject *args) {
  return by_prefix(object, args, "y*:gift_refuse", &follow_kind, hv_hive_gift_refuse);
}

/* (ID, is_client, epoch) of each. NULL with an exception set. */
static hv_hive_trainer *trainers_of(bind_node *self, PyObject *tuple, size_t *n) {
  *n = (size_t)PyTuple_Size(tuple);
  hv_hive_trainer *trainers = hv_mem_array(state_of(self)->mem, *n + 1, sizeof *trainers);
  if (!trainers)
    PyErr_NoMemory();
  for (size_t i = 0; trainers && i < *n; i++) {
    PyObject *id;
    unsigned long long epoch;
    PyObject *one = PyTuple_GetItem(tuple, (Py_ssize_t)i);
    if (!PyTuple_Check(one))
      PyErr_SetString(PyExc_TypeError, "gift_follow: each trainer is a tuple (ID, is_client, epoch)");
    if (!PyTuple_Check(one) || !PyArg_ParseTuple(one, "OpK:gift_follow", &id, &trainers[i].is_client, &epoch) ||
        bind_peer(state_of(self), id, &trainers[i].id) < 0) {
      hv_mem_free(trainers);
      return NULL;
    }
    trainers[i].epoch = epoch;
  }
  return trainers;
}

PyObject *bind_gift_follow(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  Py_buffer prefix;
  PyObject *tuple;
  unsigned long long least, every, size_max;
  int has_room;
  size_t n;
  hv_future *future = NULL;
  if (bind_node_check(self) < 0 ||
      !PyArg_ParseTuple(args, "y*O!KKKp:gift_follow", &prefix, &PyTuple_Type, &tuple, &least, &every, &size_max, &has_room))
    return NULL;
  hv_hive_trainer *trainers = trainers_of(self, tuple, &n);
  hv_status status = trainers ? hv_hive_gift_follow(self->hive, hv_span_of(prefix.buf, (size_t)prefix.len), trainers, n, least,
                                                    every, size_max, has_room, &future)
                              : HV_OK;
  PyBuffer_Release(&prefix);
  int ok = trainers != NULL;
  hv_mem_free(trainers);
  return ok ? bind_node_future(self, &follow_kind, status, future) : NULL;
}

/* ---- what stands already ---- */

PyObject *bind_state_withdraw(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  Py_buffer prefix;
  int at_once = 0;
  hv_future *future = NULL;
  if (bind_node_check(self) < 0 || !PyArg_ParseTuple(args, "y*|p:state_withdraw", &prefix, &at_once))
    return NULL;
  hv_status status = hv_hive_state_withdraw(self->hive, hv_span_of(prefix.buf, (size_t)prefix.len), at_once, &future);
  PyBuffer_Release(&prefix);
  bind_bay_settle(self->bay);
  return bind_node_future(self, &change_kind, status, future);
}

PyObject *bind_state_priority(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  Py_buffer prefix;
  float priority;
  hv_future *future = NULL;
  if (bind_node_check(self) < 0 || !PyArg_ParseTuple(args, "y*f:state_priority", &prefix, &priority))
    return NULL;
  hv_status status = hv_hive_state_set_priority(self->hive, hv_span_of(prefix.buf, (size_t)prefix.len), priority, &future);
  PyBuffer_Release(&prefix);
  return bind_node_future(self, &change_kind, status, future);
}

/* ---- load ---- */

/* The core's timeout_ms: 0 stands for its own limit. -1 with an exception set. */
static int load_timeout(PyObject *timeout, uint32_t *ms) {
  if (bind_timeout(timeout, ms) < 0)
    return -1;
  *ms = *ms == 0 ? 1 : *ms == UINT32_MAX ? 0 : *ms;
  return 0;
}

PyObject *bind_state_load(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  Py_buffer prefix;
  PyObject *timeout = Py_None;
  unsigned long long size_max = 0, epoch_least = 0;
  const char *refused = NULL;
  Py_ssize_t refused_size = 0;
  uint32_t timeout_ms;
  hv_future *future = NULL;
  if (bind_node_check(self) < 0 ||
      !PyArg_ParseTuple(args, "y*|OKKy#:state_load", &prefix, &timeout, &size_max, &epoch_least, &refused, &refused_size))
    return NULL;
  if (load_timeout(timeout, &timeout_ms) < 0) {
    PyBuffer_Release(&prefix);
    return NULL;
  }
  hv_status status = hv_hive_state_load(self->hive, hv_span_of(prefix.buf, (size_t)prefix.len), timeout_ms, size_max, epoch_least,
                                        hv_span_of(refused, (size_t)refused_size), &future);
  PyBuffer_Release(&prefix);
  return bind_node_future(self, &load_kind, status, future);
}

PyObject *bind_state_look(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  Py_buffer prefix;
  PyObject *timeout = Py_None;
  unsigned long long epoch_least = 0;
  const char *refused = NULL;
  Py_ssize_t refused_size = 0;
  uint32_t timeout_ms;
  hv_future *future = NULL;
  if (bind_node_check(self) < 0 ||
      !PyArg_ParseTuple(args, "y*|OKy#:state_look", &prefix, &timeout, &epoch_least, &refused, &refused_size))
    return NULL;
  if (load_timeout(timeout, &timeout_ms) < 0) {
    PyBuffer_Release(&prefix);
    return NULL;
  }
  hv_status status = hv_hive_state_look(self->hive, hv_span_of(prefix.buf, (size_t)prefix.len), timeout_ms, epoch_least,
                                        hv_span_of(refused, (size_t)refused_size), &future);
  PyBuffer_Release(&prefix);
  return bind_node_future(self, &look_kind, status, future);
}

PyObject *bind_state_loading(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  Py_buffer prefix;
  hv_future *future = NULL;
  if (bind_node_check(self) < 0 || !PyArg_ParseTuple(args, "y*:state_loading", &prefix))
    return NULL;
  hv_status status = hv_hive_state_loading(self->hive, hv_span_of(prefix.buf, (size_t)prefix.len), &future);
  PyBuffer_Release(&prefix);
  return bind_node_future(self, &loading_kind, status, future);
}

/* ---- on demand ---- */

PyObject *bind_state_await(PyObject *object, PyObject *args) {
  return by_prefix_and_number(object, args, "y*K:state_await", &await_kind, hv_hive_state_await);
}

PyObject *bind_state_want(PyObject *object, PyObject *args) {
  return by_prefix_and_number(object, args, "y*K:state_want", &want_kind, hv_hive_state_want);
}
