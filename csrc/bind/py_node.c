#include "bind.h"

#include <string.h>

static bind_state *state_of(bind_node *self) {
  return PyType_GetModuleState(Py_TYPE(self));
}

/* ---- making one ---- */

/* A tuple of str as C strings that borrow from it; free with hv_mem_free. 0, or -1 with an exception set. */
static int texts_of(bind_state *state, PyObject *tuple, const char *what, const char *const **out, size_t *n) {
  *n = (size_t)PyTuple_Size(tuple);
  const char **texts = hv_mem_array(state->mem, *n + 1, sizeof *texts);
  if (!texts) {
    PyErr_NoMemory();
    return -1;
  }
  for (size_t i = 0; i < *n; i++) {
    PyObject *item = PyTuple_GetItem(tuple, (Py_ssize_t)i);
    Py_ssize_t size = 0;
    if (!PyUnicode_Check(item))
      PyErr_Format(PyExc_TypeError, "%s: each address is a str, not %R", what, item);
    else if ((texts[i] = PyUnicode_AsUTF8AndSize(item, &size)) && strlen(texts[i]) != (size_t)size)
      PyErr_Format(PyExc_ValueError, "%s: %R has a zero byte in it", what, item);
    if (PyErr_Occurred()) {
      hv_mem_free(texts);
      return -1;
    }
  }
  *out = texts;
  return 0;
}

static int path_or_none(PyObject *object, void *out) {
  PyObject **path = out;
  if (!object) {
    Py_CLEAR(*path);
    return 1;
  }
  if (object != Py_None)
    return PyUnicode_FSConverter(object, path);
  *path = NULL;
  return 1;
}

typedef struct arguments {
  PyObject *listen, *announce, *initial_peers, *identity_path, *dht;
  PyObject *denials;              /* bytes; NULL: none */
  const char *swarm_key, *invite; /* borrowed from the arguments; NULL: none */
  int client_mode, insecure, keep_file_limit, open_port;
  unsigned lowest, highest; /* versions of the protocol */
  Py_ssize_t pool_threads, memory_limit;
  int log_level;
} arguments;

static int parse_arguments(PyObject *args, PyObject *kwargs, arguments *out) {
  static const char *const names[] = {
      "listen",    "announce", "initial_peers",   "identity_path", "client_mode", "insecure",  "pool_threads", "memory_limit",
      "log_level", "dht",      "keep_file_limit", "versions",      "open_port",   "swarm_key", "invite",       "denials",
      NULL};
  *out = (arguments){.log_level = HV_LOG_INFO};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!|$O&ppnniO!p(II)pzzS:Node", (char **)names, &PyTuple_Type, &out->listen,
                                   &PyTuple_Type, &out->announce, &PyTuple_Type, &out->initial_peers, path_or_none,
                                   &out->identity_path, &out->client_mode, &out->insecure, &out->pool_threads, &out->memory_limit,
                                   &out->log_level, &PyDict_Type, &out->dht, &out->keep_file_limit, &out->lowest, &out->highest,
                                   &out->open_port, &out->swarm_key, &out->invite, &out->denials))
    return -1;
  const char *wrong = NULL;
  if (out->pool_threads < 0 || out->pool_threads > 1024)
    wrong = "pool_threads must be a number of threads from 1 to 1024, or 0 for the default";
  else if (out->memory_limit < 0)
    wrong = "memory_limit must be a number of bytes, or 0 for no limit";
  else if (out->log_level < HV_LOG_DEBUG || out->log_level > HV_LOG_ERROR)
    wrong = "log_level must be from 0 (debug) to 3 (error)";
  if (!wrong)
    return 0;
  Py_XDECREF(out->identity_path);
  PyErr_SetString(PyExc_ValueError, wrong);
  return -1;
}

static int start(bind_state *state, bind_node *self, const hv_hive_config *config) {
  hv_error err = {0};
  hv_status status;
  state->pid = self->pid;
  Py_BEGIN_ALLOW_THREADS
  status = hv_hive_start(config, &self->hive, &err);
  Py_END_ALLOW_THREADS
  if (status == HV_OK) {
    return 0;
  }
  self->hive = NULL;
  bind_raise_why(state, status, &err);
  return -1;
}

/* gRPC that has run before fork() shares sockets with the parent and may hold locks: using it here would break both, even when
 * the parent's nodes have ended. 0, or -1 with that error raised. */
static int check_not_forked(bind_state *state) {
  if (state->pid == 0 || state->pid == getpid())
    return 0;
  bind_raise(state, HV_FORKED,
             "cannot start a node: this process was forked from one that had started a node; start the process with spawn "
             "(multiprocessing.get_context('spawn')), or fork before the first node");
  return -1;
}

static PyObject *node_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  bind_state *state = PyType_GetModuleState(type);
  arguments given;
  if (!state || check_not_forked(state) < 0 || parse_arguments(args, kwargs, &given) < 0)
    return NULL;
  hv_hive_config config = {.client_mode = given.client_mode,
                           .insecure = given.insecure,
                           .pool_threads = (unsigned)given.pool_threads,
                           .memory_limit = (size_t)given.memory_limit,
                           .keep_file_limit = given.keep_file_limit,
                           .open_port = given.open_port,
                           .swarm_key = given.swarm_key,
                           .invite = given.invite,
                           .denials = given.denials
                                          ? hv_span_of(PyBytes_AsString(given.denials), (size_t)PyBytes_Size(given.denials))
                                          : hv_span_of(NULL, 0),
                           .log_level = (hv_log_level)given.log_level,
                           .versions = {given.lowest, given.highest, 0},
                           .identity_path = given.identity_path ? PyBytes_AsString(given.identity_path) : NULL};
  bind_node *self = NULL;
  if (bind_dht_settings(given.dht, &config.dht) == 0 &&
      texts_of(state, given.listen, "listen", &config.listen, &config.n_listen) == 0 &&
      texts_of(state, given.announce, "announce", &config.announce, &config.n_announce) == 0 &&
      texts_of(state, given.initial_peers, "initial_peers", &config.initial_peers, &config.n_initial_peers) == 0)
    self = (bind_node *)PyType_GenericAlloc(type, 0);
  if (self) {
    self->pid = getpid();
    self->bay = bind_bay_new(state);
    if (!self->bay || start(state, self, &config) < 0)
      Py_CLEAR(self);
  }
  hv_mem_free((void *)config.listen);
  hv_mem_free((void *)config.announce);
  hv_mem_free((void *)config.initial_peers);
  Py_XDECREF(given.identity_path);
  return (PyObject *)self;
}

/* Dropped without shutdown: stops it. In a forked child its threads do not exist and its locks may be held, so nothing is touched.
 */
static void node_finalize(PyObject *object) {
  bind_node *self = (bind_node *)object;
  bind_bay *bay = self->bay;
  hv_hive *hive = self->hive;
  self->hive = NULL;
  self->bay = NULL;
  if (!hive || getpid() != self->pid) {
    bind_bay_release(bay);
    return;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Py_BEGIN_ALLOW_THREADS
  hv_hive_free(hive);
  Py_END_ALLOW_THREADS
  bind_bay_settle(bay);
  bind_bay_release(bay);
  PyErr_Restore(type, value, traceback);
}

/* ---- what it can be asked ---- */

static PyObject *node_shutdown(PyObject *object, PyObject *ignored) {
  bind_node *self = (bind_node *)object;
  (void)ignored;
  if (self->hive && getpid() == self->pid) {
    Py_BEGIN_ALLOW_THREADS
    hv_hive_stop(self->hive);
    Py_END_ALLOW_THREADS
    bind_bay_settle(self->bay);
  }
  Py_RETURN_NONE;
}

static PyObject *node_peer_id(PyObject *object, void *closure) {
  bind_node *self = (bind_node *)object;
  (void)closure;
  return bind_node_check(self) < 0 ? NULL : bind_peer_text(hv_hive_peer(self->hive));
}

static PyObject *node_addresses(PyObject *object, void *closure) {
  bind_node *self = (bind_node *)object;
  (void)closure;
  if (bind_node_check(self) < 0)
    return NULL;
  hv_addr addrs[HV_CARD_ADDRS_MAX];
  size_t n = hv_hive_addrs(self->hive, addrs, HV_CARD_ADDRS_MAX);
  PyObject *list = PyList_New(0);
  for (size_t i = 0; list && i < n && i < HV_CARD_ADDRS_MAX; i++) {
    char text[HV_ADDR_TEXT_MAX];
    PyObject *item = PyUnicode_FromString(hv_addr_print(&addrs[i], hv_hive_peer(self->hive), text));
    if (!item || PyList_Append(list, item) < 0)
      Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

static PyObject *node_port(PyObject *object, void *closure) {
  bind_node *self = (bind_node *)object;
  char text[HV_PORT_TEXT_MAX], where[HV_ADDR_TEXT_MAX];
  hv_addr seen;
  (void)closure;
  if (bind_node_check(self) < 0)
    return NULL;
  int open = hv_hive_port(self->hive, text, &seen);
  return Py_BuildValue("(Nss)", PyBool_FromLong(open), text, seen.kind == HV_ADDR_NONE ? "" : hv_addr_print(&seen, NULL, where));
}

static PyObject *node_membership(PyObject *object, void *closure) {
  bind_node *self = (bind_node *)object;
  char text[HV_MEMBERSHIP_TEXT_MAX];
  (void)closure;
  if (bind_node_check(self) < 0)
    return NULL;
  hv_hive_membership(self->hive, text);
  return PyUnicode_FromString(text);
}

static PyObject *node_proof(PyObject *object, PyObject *ignored) {
  bind_node *self = (bind_node *)object;
  uint8_t proof[HV_PROOF_MAX];
  (void)ignored;
  if (bind_node_check(self) < 0)
    return NULL;
  size_t size = hv_hive_proof(self->hive, proof);
  return PyBytes_FromStringAndSize((const char *)proof, (Py_ssize_t)size);
}

static PyObject *node_proved(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  PyObject *peer;
  const char *proof;
  Py_ssize_t size;
  hv_peer_id id;
  char text[HV_MEMBERSHIP_TEXT_MAX];
  if (!PyArg_ParseTuple(args, "y#O:proved", &proof, &size, &peer) || bind_node_check(self) < 0 ||
      bind_peer(state_of(self), peer, &id) < 0)
    return NULL;
  hv_hive_proved(self->hive, hv_span_of(proof, (size_t)size), &id, text);
  return PyUnicode_FromString(text);
}

/* The list of denials that it has (bytes), how many initial peers have returned it, how many have not, and why one has not. */
static PyObject *node_denials(PyObject *object, PyObject *ignored) {
  bind_node *self = (bind_node *)object;
  hv_hive_denials_told told;
  (void)ignored;
  if (bind_node_check(self) < 0)
    return NULL;
  uint8_t *list = hv_mem_alloc(state_of(self)->mem, HV_DENIALS_BYTES_MAX);
  if (!list)
    return PyErr_NoMemory();
  size_t size = hv_hive_denials(self->hive, list, HV_DENIALS_BYTES_MAX, &told);
  PyObject *both =
      Py_BuildValue("(y#nns)", (const char *)list, (Py_ssize_t)size, (Py_ssize_t)told.has, (Py_ssize_t)told.lacks, told.text);
  hv_mem_free(list);
  return both;
}

static PyObject *node_deny(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  const char *list;
  Py_ssize_t size;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "y#:deny", &list, &size) || bind_node_check(self) < 0)
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_deny(self->hive, hv_span_of(list, (size_t)size), &err);
  Py_END_ALLOW_THREADS;
  if (status != HV_OK)
    return bind_raise_why(state_of(self), status, &err);
  Py_RETURN_NONE;
}

static PyObject *node_limit_upload(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  unsigned long long rate;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "K:limit_upload", &rate) || bind_node_check(self) < 0)
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_limit_upload(self->hive, rate, &err);
  Py_END_ALLOW_THREADS;
  if (status != HV_OK)
    return bind_raise_why(state_of(self), status, &err);
  Py_RETURN_NONE;
}

static PyObject *node_renew(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  const char *invite;
  int64_t end_s = 0;
  hv_error err = {0};
  hv_status status;
  if (!PyArg_ParseTuple(args, "s:renew", &invite) || bind_node_check(self) < 0)
    return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = hv_hive_renew(self->hive, invite, &end_s, &err);
  Py_END_ALLOW_THREADS;
  if (status != HV_OK)
    return bind_raise_why(state_of(self), status, &err);
  return PyLong_FromLongLong(end_s);
}

static PyObject *node_check_admission(PyObject *object, PyObject *ignored) {
  bind_node *self = (bind_node *)object;
  char text[HV_MSG_TEXT_MAX];
  hv_cause cause;
  hv_error err = {0};
  (void)ignored;
  if (bind_node_check(self) < 0)
    return NULL;
  if (!hv_hive_refused(self->hive, &cause, text))
    Py_RETURN_NONE;
  hv_fail_by(&err, HV_NOT_ADMITTED, cause, "this peer is not in the swarm any more: %s", text);
  return bind_raise_why(state_of(self), HV_NOT_ADMITTED, &err);
}

/* ---- the results of its futures ---- */

static PyObject *peer_tuple(const hv_hive_peer_info *info) {
  char text[HV_ADDR_TEXT_MAX], member[HV_MEMBERSHIP_TEXT_MAX];
  PyObject *address = Py_None;
  if (info->addr.kind == HV_ADDR_NONE)
    Py_INCREF(address);
  else
    address = PyUnicode_FromString(hv_addr_print(&info->addr, &info->id, text));
  return Py_BuildValue("(NNNddIs)", bind_peer_text(&info->id), address, PyBool_FromLong(info->client_mode),
                       (double)info->rtt_us / 1e6, (double)info->seen_ago_us / 1e6, info->version,
                       hv_membership_print(&info->member, member));
}

static PyObject *peers_tuple(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *peer) {
  (void)state, (void)future, (void)peer;
  Py_ssize_t n = (Py_ssize_t)(bytes.size / sizeof(hv_hive_peer_info));
  PyObject *all = PyTuple_New(n);
  for (Py_ssize_t i = 0; all && i < n; i++) {
    hv_hive_peer_info info;
    memcpy(&info, bytes.data + (size_t)i * sizeof info, sizeof info);
    PyObject *one = peer_tuple(&info);
    if (!one || PyTuple_SetItem(all, i, one) < 0)
      Py_CLEAR(all);
  }
  return all;
}

static PyObject *parcel_tuple(bind_state *state, hv_future *future, hv_span bytes, const hv_peer_id *peer) {
  PyObject *parcel = bind_parcel_new(state, future, bytes, 0);
  PyObject *view = parcel ? PyMemoryView_FromObject(parcel) : NULL;
  Py_XDECREF(parcel);
  return view ? Py_BuildValue("(NN)", bind_peer_text(peer), view) : NULL;
}

static const bind_future_kind peers_kind = {.awaited = "the list of peers", .convert = peers_tuple};
static const bind_future_kind wait_kind = {.awaited = "peers", .cancel_when_dropped = 1};
static const bind_future_kind echo_kind = {.awaited = "an echo", .convert = bind_future_bytes};
static const bind_future_kind send_kind = {.awaited = "a parcel's receipt"};
static const bind_future_kind receive_kind = {
    .awaited = "a parcel", .convert = parcel_tuple, .cancel_when_dropped = 1, .give_back = hv_hive_unreceive};

/* ---- methods that return a future ---- */

static PyObject *node_peers(PyObject *object, PyObject *ignored) {
  bind_node *self = (bind_node *)object;
  (void)ignored;
  hv_future *future = NULL;
  if (bind_node_check(self) < 0)
    return NULL;
  hv_status status = hv_hive_peers(self->hive, &future);
  return bind_node_future(self, &peers_kind, status, future);
}

static PyObject *node_wait_for_peers(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  Py_ssize_t at_least = 0;
  if (!PyArg_ParseTuple(args, "n:wait_for_peers", &at_least) || bind_node_check(self) < 0)
    return NULL;
  if (at_least < 0) {
    PyErr_SetString(PyExc_ValueError, "wait_for_peers: the number of peers must be 0 or more");
    return NULL;
  }
  hv_future *future = NULL;
  hv_status status = hv_hive_wait_peers(self->hive, (size_t)at_least, &future);
  return bind_node_future(self, &wait_kind, status, future);
}

/* The arguments that echo and send share: peer, bytes, timeout. */
static int parse_transfer(bind_node *self, PyObject *args, const char *format, hv_peer_id *to, PyObject **bytes,
                          uint32_t *timeout_ms) {
  PyObject *peer, *timeout = Py_None;
  if (!PyArg_ParseTuple(args, format, &peer, bytes, &timeout) || bind_node_check(self) < 0 ||
      bind_peer(state_of(self), peer, to) < 0 || bind_timeout(timeout, timeout_ms) < 0)
    return -1;
  if (*timeout_ms == 0)
    *timeout_ms = 1;
  return 0;
}

static PyObject *node_echo(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  hv_peer_id to;
  PyObject *bytes;
  uint32_t timeout_ms;
  Py_buffer view;
  if (parse_transfer(self, args, "OO|O:echo", &to, &bytes, &timeout_ms) < 0 || PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) < 0)
    return NULL;
  if ((size_t)view.len > HV_MSG_BLOB_MAX) {
    PyErr_Format(state_of(self)->errors[BIND_ERROR_VALUE], "cannot echo %zd bytes: the limit is %d; use send for more", view.len,
                 (int)HV_MSG_BLOB_MAX);
    PyBuffer_Release(&view);
    return NULL;
  }
  hv_future *future = NULL;
  hv_status status;
  Py_BEGIN_ALLOW_THREADS
  status = hv_hive_echo(self->hive, &to, hv_span_of(view.buf, (size_t)view.len), timeout_ms, &future);
  Py_END_ALLOW_THREADS
  PyBuffer_Release(&view);
  bind_bay_settle(self->bay);
  return bind_node_future(self, &echo_kind, status, future);
}

static PyObject *node_send(PyObject *object, PyObject *args) {
  bind_node *self = (bind_node *)object;
  hv_peer_id to;
  PyObject *bytes;
  uint32_t timeout_ms;
  if (parse_transfer(self, args, "OO|O:send", &to, &bytes, &timeout_ms) < 0)
    return NULL;
  bind_bay_settle(self->bay);
  bind_loan *loan = bind_loan_new(state_of(self), self->bay, bytes);
  if (!loan)
    return NULL;
  hv_span span = hv_span_of(loan->view.buf, (size_t)loan->view.len);
  hv_future *future = NULL;
  hv_status status;
  loan->refs = 2; /* the hive's, and the future's */
  Py_BEGIN_ALLOW_THREADS
  status = hv_hive_send(self->hive, &to, span, bind_loan_back, loan, timeout_ms, &future);
  Py_END_ALLOW_THREADS
  if (status == HV_OK)
    return bind_future_new(state_of(self), self, &send_kind, future, loan);
  loan->refs = 1;
  bind_loan_release(loan);
  return bind_node_future(self, &send_kind, status, NULL);
}

static PyObject *node_receive(PyObject *object, PyObject *ignored) {
  bind_node *self = (bind_node *)object;
  (void)ignored;
  hv_future *future = NULL;
  if (bind_node_check(self) < 0)
    return NULL;
  hv_status status = hv_hive_receive(self->hive, &future);
  return bind_node_future(self, &receive_kind, status, future);
}

/* The oldest log record as (level, room, event, text), or None; the drain comes by often, so returned loans are settled here too.
 */
static PyObject *node_take_log(PyObject *object, PyObject *ignored) {
  bind_node *self = (bind_node *)object;
  (void)ignored;
  if (!self->hive || getpid() != self->pid)
    Py_RETURN_NONE;
  bind_bay_settle(self->bay);
  hv_log *log = hv_hive_log(self->hive);
  hv_log_record record;
  size_t dropped = hv_log_dropped(log);
  if (dropped)
    return Py_BuildValue("(issN)", (int)HV_LOG_WARN, "log", "records_dropped",
                         PyUnicode_FromFormat("lost %zu log records: the program did not read them in time", dropped));
  if (!hv_log_take(log, &record))
    Py_RETURN_NONE;
  return Py_BuildValue("(isss)", (int)record.level, record.room, record.event, record.text);
}

static const PyMethodDef methods[] = {
    {"shutdown", node_shutdown, METH_NOARGS, "Says goodbye and ends what is under way; may be called twice and from any thread."},
    {"peers", node_peers, METH_NOARGS, "A future of the peers that are alive."},
    {"wait_for_peers", node_wait_for_peers, METH_VARARGS, "wait_for_peers(n): a future that is done when n peers are alive."},
    {"echo", node_echo, METH_VARARGS, "echo(peer, bytes, timeout=None): a future of the same bytes."},
    {"send", node_send, METH_VARARGS, "send(peer, bytes, timeout=None): a future; the bytes are borrowed until it is done."},
    {"receive", node_receive, METH_NOARGS, "A future of (peer, memoryview) for the next parcel."},
    {"dht_store", bind_dht_store, METH_VARARGS,
     "dht_store(key, subkey, value, ttl_ms, timeout=None): a future of how many nodes keep it."},
    {"dht_get", bind_dht_get, METH_VARARGS,
     "dht_get(key, latest=False, timeout=None): a future of ((subkey, value, end, signer), ...)."},
    {"dht_look", bind_dht_look, METH_NOARGS, "A future of numbers about this node's part of the DHT."},
    {"state_offer", bind_state_offer, METH_VARARGS,
     "state_offer(prefix, epoch, metadata, parts, priority=0.0, declare_ms=0, lineage=b''): a future of the manifest's digest; "
     "parts "
     "are (buffer, codec, dtype), a lineage has 16 bytes or none."},
    {"state_withdraw", bind_state_withdraw, METH_VARARGS,
     "state_withdraw(prefix, at_once=False): a future that is done when nothing is offered any more."},
    {"state_priority", bind_state_priority, METH_VARARGS,
     "state_priority(prefix, priority): a future that is done when it is said."},
    {"state_look", bind_state_look, METH_VARARGS,
     "state_look(prefix, timeout=None, epoch_least=0, refused=b''): a future of the epoch of the state that state_load would "
     "give."},
    {"state_loading", bind_state_loading, METH_VARARGS,
     "state_loading(prefix): a future of (epoch, bytes that are here, of all, peers that send) of the load under way."},
    {"state_load", bind_state_load, METH_VARARGS,
     "state_load(prefix, timeout=None, size_max=0, epoch_least=0, refused=b''): a future of (epoch, metadata, donor, buffers, "
     "digest). refused: digests of states not to load."},
    {"state_await", bind_state_await, METH_VARARGS,
     "state_await(prefix, clock_ms): declares that this node gives a state on demand; a future of the number under which a joiner "
     "wants it. Cancel it to end that."},
    {"state_want", bind_state_want, METH_VARARGS,
     "state_want(prefix, number): asks the peers that give a state on demand; a future of the number under which they offer it."},
    {"gift_wait", bind_gift_wait, METH_VARARGS,
     "gift_wait(prefix): waits until a hub asks this peer for its state; a future of the oldest epoch that is of use."},
    {"gift_give", bind_gift_give, METH_VARARGS,
     "gift_give(prefix, epoch, metadata, parts, lineage, hubs, ticket): gives a state to these hubs, or without them to the one "
     "that "
     "asks; a future that is done when they have it."},
    {"gift_take", bind_gift_take, METH_VARARGS,
     "gift_take(prefix, size_max): waits for a state that a trainer gives; a future of what state_load gives."},
    {"gift_follow", bind_gift_follow, METH_VARARGS,
     "gift_follow(prefix, trainers, least, every, size_max, has_room): tells the node where the trainers of a run are, of which it "
     "asks one for a state if it can dial none; a future of None."},
    {"gift_refuse", bind_gift_refuse, METH_VARARGS,
     "gift_refuse(prefix): the state that came last is of no use; a future of None."},
    {"proof", node_proof, METH_NOARGS, "The proof that this node is a member of its closed swarm; empty: the swarm is open."},
    {"proved", node_proved, METH_VARARGS, "proved(proof, peer): how that peer is a member, if this is its proof; else ''."},
    {"denials", node_denials, METH_NOARGS,
     "(list, has, lacks, why): its denials, how many initial peers have returned them or not, and why one has not."},
    {"deny", node_deny, METH_VARARGS, "deny(list): adds to its denials."},
    {"limit_upload", node_limit_upload, METH_VARARGS, "limit_upload(rate): bytes per second of its bulk; 0: no limit."},
    {"renew", node_renew, METH_VARARGS, "renew(invite): replaces its invitation by the renewed one; returns when it ends."},
    {"check_admission", node_check_admission, METH_NOARGS, "Raises an error if the closed swarm does not admit this node."},
    {"take_log", node_take_log, METH_NOARGS, "The oldest log record, or None."},
    {NULL, NULL, 0, NULL}};

static const PyGetSetDef properties[] = {
    {"peer_id", node_peer_id, NULL, "This node's peer ID.", NULL},
    {"addresses", node_addresses, NULL, "Where this node can be reached.", NULL},
    {"membership", node_membership, NULL, "How this node is a member of its closed swarm.", NULL},
    {"port", node_port, NULL, "The gateway's answer about this node's port.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

/* No tp_dealloc: the one that Python gives a heap type calls the finalizer, then frees. */
PyTypeObject *bind_node_type(PyObject *module) {
  PyType_Slot slots[] = {{Py_tp_doc, (void *)"A running node, as C has it; hivemind_c.Node is the one to use."},
                         {Py_tp_new, (void *)node_new},
                         {Py_tp_finalize, (void *)node_finalize},
                         {Py_tp_methods, (void *)methods},
                         {Py_tp_getset, (void *)properties},
                         {0, NULL}};
  PyType_Spec spec = {.name = "_hivemind_c.Node",
                      .basicsize = sizeof(bind_node),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
