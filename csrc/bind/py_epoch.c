/* The machine that decides for a peer of a run (core/epoch/epoch.h); hivemind_c/optim/driver.py is its one user.
 *
 * The GIL is its lock. Events go in by the methods, and each returns the orders of its lane that follow; next() waits for more.
 * Readings of the swarm, and reports to it, pass through the Progress, which no event waits for.
 */
#include "epoch.h"

#include "net/clock.h"
#include "net/events_file.h"

#include <string.h>

enum { QUEUE = 64, SIGNALS_MS = 50 }; /* SIGNALS_MS: between two looks whether the user ends the program */
enum { DISCARDED = 1, CUT = 2 };      /* the number of an order of lost samples that the log tells of */

/* Of samples that an event has lost: a kind of the binding's own, behind those of the machine. */
#define ORDER_LOST HV_EPOCH_ORDER_KINDS
/* The same, for a training thread that waits for an entry of the log, or for a load or a round beside it: whether it is there. */
#define ORDER_POLL (HV_EPOCH_ORDER_KINDS + 1)
/* The same: lane LATE has orders, and needs its thread. */
#define ORDER_LATE (HV_EPOCH_ORDER_KINDS + 2)

typedef struct lane_queue {
  hv_epoch_order orders[QUEUE];
  size_t n, first;
} lane_queue;

typedef struct py_epoch {
  PyObject_HEAD
  PyObject *progress, *lineage, *ledger; /* kept */
  hv_epoch machine;
  hv_env env;      /* that hashes only */
  hv_trace *trace; /* NULL: nothing is recorded */
  lane_queue lanes[HV_EPOCH_LANES];
  uint64_t lost_by[HV_EPOCH_LOSSES]; /* that have been told */
  hv_epoch_gift gift;                /* to the hubs of the latest group that expects one */
  uint64_t begun_us, paused_us;      /* of the training thread's batch; 0: nobody saw it begin; it is not held up */
  int has_batch, starts_late;        /* starts_late: an event of the training thread has put orders into lane LATE */
  uint64_t news; /* of the Progress, which rings after each event: those that the training thread's wait has seen */
} py_epoch;

static bind_state *state_of(py_epoch *self) {
  return PyType_GetModuleState(Py_TYPE(self));
}

/* -1: an exception is set. */
static int check_type(PyObject *object, const char *name) {
  PyObject *module = PyImport_ImportModule("_hivemind_c"), *type = module ? PyObject_GetAttrString(module, name) : NULL;
  int is = type ? PyObject_IsInstance(object, type) : -1;
  Py_XDECREF(module);
  Py_XDECREF(type);
  if (is == 0)
    PyErr_Format(PyExc_TypeError, "Epoch needs a %s of _hivemind_c", name);
  return is > 0 ? 0 : -1;
}

static PyObject *epoch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {
      "progress",   "lineage",   "ledger",  "plan",  "peer_id", "target",      "matchmaking", "averaging",       "company", "alone",
      "begins_run", "reachable", "differs", "epoch", "record",  "entry_bytes", "state_bytes", "averaging_given", NULL};
  bind_state *state = PyType_GetModuleState(type);
  PyObject *progress, *lineage, *ledger, *plan, *peer;
  unsigned long long target, epoch, entry_bytes = 0, state_bytes = 0;
  double matchmaking, averaging, alone;
  int company, begins_run, reachable, differs;
  const char *record = "";
  hv_epoch_config config = {0};
  hv_error err = {0};
  if (!state ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOUO&ddidpppO&|sO&O&p:Epoch", (char **)names, &progress, &lineage, &ledger,
                                   &plan, &peer, bind_whole_number, &target, &matchmaking, &averaging, &company, &alone,
                                   &begins_run, &reachable, &differs, bind_whole_number, &epoch, &record, bind_whole_number,
                                   &entry_bytes, bind_whole_number, &state_bytes, &config.averaging_given) ||
      check_type(progress, "Progress") < 0 || check_type(lineage, "Lineage") < 0 || check_type(ledger, "SampleLedger") < 0 ||
      check_type(plan, "EpochPlan") < 0 || bind_peer(state, peer, &config.me) < 0)
    return NULL;
  py_epoch *self = (py_epoch *)PyType_GenericAlloc(type, 0);
  if (!self)
    return NULL;
  self->env = bind_hashing();
  config.options = *bind_plan_options(plan);
  config.target = target;
  config.matchmaking_us = (uint64_t)(matchmaking * 1e6);
  config.averaging_us = (uint64_t)(averaging * 1e6);
  config.company = (hv_epoch_company)company;
  config.alone_us = alone < 9e12 ? (uint64_t)(alone * 1e6) : UINT64_MAX / 2;
  config.begins_run = begins_run;
  config.reachable = reachable;
  config.differs = differs;
  config.epoch = epoch;
  config.entry_bytes = entry_bytes;
  config.state_bytes = state_bytes;
  config.alpha = bind_progress_of(progress) ? hv_hive_progress_alpha(bind_progress_of(progress)) : 0;
  config.env = &self->env;
  config.lineage = bind_lineage_of(lineage);
  config.ledger = bind_ledger_of(ledger);
  hv_status status = hv_epoch_init(&self->machine, &config, 0, &err);
  if (status == HV_OK && *record)
    status = hv_events_file_open(state->mem, record, &self->trace, &err);
  if (status != HV_OK) {
    Py_DECREF(self);
    return bind_raise_why(state, status, &err);
  }
  if (self->trace)
    hv_trace_begin(self->trace, &self->machine, 0);
  self->progress = Py_NewRef(progress);
  self->lineage = Py_NewRef(lineage);
  self->ledger = Py_NewRef(ledger);
  return (PyObject *)self;
}

static void epoch_finalize(PyObject *object) {
  py_epoch *self = (py_epoch *)object;
  hv_events_file_close(self->trace);
  self->trace = NULL;
  Py_CLEAR(self->progress);
  Py_CLEAR(self->lineage);
  Py_CLEAR(self->ledger);
}

/* The lineage knows the state, which may know this object. */
static int epoch_traverse(PyObject *object, visitproc visit, void *arg) {
  py_epoch *self = (py_epoch *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->progress);
  Py_VISIT(self->lineage);
  Py_VISIT(self->ledger);
  return 0;
}

/* ---- the swarm: reports and readings ---- */

/* Says how this peer is; more: samples of a batch whose event follows. */
static void reports(py_epoch *self, hv_hive_progress *progress, uint64_t more) {
  hv_progress_own own;
  hv_epoch_report(&self->machine, more, &own);
  hv_hive_progress_put(progress, &own);
}

static void reads(hv_hive_progress *progress, hv_epoch_event *event, hv_progress_figures *f) {
  hv_hive_progress_state s;
  hv_hive_progress_read(progress, &s);
  *f = (hv_progress_figures){.epoch = s.epoch,
                             .samples = s.samples,
                             .speed = s.speed,
                             .n_peers = s.n_peers,
                             .n_clients = s.n_clients,
                             .n_behind = s.n_behind,
                             .n_coming = s.n_coming,
                             .eta_us = s.eta_s < 9e12 ? (uint64_t)(s.eta_s > 0 ? s.eta_s * 1e6 : 0) : HV_PROGRESS_NEVER,
                             .next_us = s.next_fetch_us,
                             .standing = (hv_progress_standing)s.standing,
                             .ready = s.ready,
                             .match = s.match};
  event->figures = f;
  event->fetched = (uint64_t)s.fetched;
  event->now_us = s.now_us;
}

/* ---- queues ---- */

static void puts_in(py_epoch *self, hv_epoch_lane lane, const hv_epoch_order *order) {
  lane_queue *q = &self->lanes[lane];
  if (q->n < QUEUE)
    q->orders[(q->first + q->n++) % QUEUE] = *order;
  else
    self->machine.lost_orders++;
}

/* By: the lane whose thread has brought the event. It also does what no lane owns. */
static hv_epoch_lane lane_of(const hv_epoch_order *order, hv_epoch_lane by) {
  switch (order->kind) {
  case HV_EPOCH_ACT:
  case HV_EPOCH_TRIGGER:
  case HV_EPOCH_SEEK:
    return order->lane;
  case HV_EPOCH_LOOK:
  case HV_EPOCH_LOAD:
    return HV_EPOCH_NOW;
  default:
    return by;
  }
}

/* 1: such samples were in flight, so they count in the record of the epoch that ends, or has ended. */
static int was_in_flight(int why) {
  return why == HV_EPOCH_LOSS_NOT_FINITE || why == HV_EPOCH_LOSS_CUT || why == HV_EPOCH_LOSS_LATE ||
         why == HV_EPOCH_LOSS_LEFT_OUT || why == HV_EPOCH_LOSS_DROPPED || why == HV_EPOCH_LOSS_BROKEN;
}

static void tells_losses(py_epoch *self, hv_epoch_lane by) {
  const hv_epoch_ledger *ledger = self->machine.ledger;
  for (int i = 0; i < HV_EPOCH_LOSSES; i++) {
    uint64_t more = ledger->lost_by[i] - self->lost_by[i];
    self->lost_by[i] = ledger->lost_by[i];
    hv_epoch_order order = {.kind = ORDER_LOST, .action = (unsigned)i, .samples = more, .epoch = self->machine.told};
    order.which = (hv_epoch_which)was_in_flight(i);
    order.number = i == HV_EPOCH_LOSS_REPLACED || i == HV_EPOCH_LOSS_LEFT_OUT ? DISCARDED : i == HV_EPOCH_LOSS_CUT ? CUT : 0;
    if (more)
      puts_in(self, by, &order);
  }
}

/* The losses before this event were told by whoever made them. */
static void forgets_losses(py_epoch *self) {
  memcpy(self->lost_by, self->machine.ledger->lost_by, sizeof self->lost_by);
}

/* A batch takes the time from the training thread's return to its next visit, without what the machine holds it up meanwhile.
 * Nobody saw how the first batch began. */
static void measures_batch(py_epoch *self, uint64_t now_us, int is_here) {
  int is_held = !hv_epoch_is_free(&self->machine);
  if (is_here && self->has_batch) {
    self->begun_us = now_us;
    self->paused_us = 0;
  }
  if (is_held && !self->paused_us)
    self->paused_us = now_us;
  else if (!is_held && self->paused_us) {
    self->begun_us += self->begun_us ? now_us - self->paused_us : 0;
    self->paused_us = 0;
  }
}

/* Adds a figure for the log to a notice: the swarm's epoch, by the reading that decided, or the loads. */
static void adds_facts(py_epoch *self, hv_epoch_order *order, const hv_progress_figures *figures) {
  if (order->action == HV_EPOCH_SAYS_ASIDE || order->action == HV_EPOCH_SAYS_DOUBT)
    order->number = figures->epoch;
  else if (order->action == HV_EPOCH_SAYS_LOADED)
    order->number = self->machine.loads;
}

/* -1: an exception is set. */
static int feeds(py_epoch *self, hv_epoch_event *event, hv_epoch_lane by) {
  hv_hive_progress *progress = bind_progress_of(self->progress);
  hv_progress_figures figures;
  hv_epoch_order order;
  if (!progress) {
    bind_raise(state_of(self), HV_FORKED, "cannot use this optimizer: it was made before fork(); use it in the parent process");
    return -1;
  }
  int is_here = event->kind == HV_EPOCH_BATCH || event->kind == HV_EPOCH_BEHIND;
  if (event->kind == HV_EPOCH_BATCH)
    reports(self, progress, event->samples);
  reads(progress, event, &figures);
  if (is_here && self->begun_us)
    event->took_us = (self->paused_us ? self->paused_us : event->now_us) - self->begun_us;
  int was_late_empty = !self->lanes[HV_EPOCH_LATE].n;
  forgets_losses(self);
  hv_trace_on(self->trace, &self->machine, event);
  tells_losses(self, by);
  reports(self, progress, 0);
  while (hv_epoch_next(&self->machine, &order)) {
    if (order.kind == HV_EPOCH_WAKE) {
      if (order.ask)
        hv_hive_progress_refresh(progress);
    } else if (order.kind == HV_EPOCH_EXPECT)
      self->gift = hv_epoch_gift_of(&self->env, order.epoch - 1, event->members, event->n_members);
    else {
      if (order.kind == HV_EPOCH_TELL)
        adds_facts(self, &order, &figures);
      puts_in(self, lane_of(&order, by), &order);
    }
  }
  self->starts_late |= by == HV_EPOCH_NOW && was_late_empty && self->lanes[HV_EPOCH_LATE].n;
  self->has_batch |= event->kind == HV_EPOCH_BATCH && event->samples;
  measures_batch(self, event->now_us, is_here);
  hv_hive_progress_ring(progress);
  return 0;
}

/* ---- orders ---- */

static const char *kind_of(const hv_epoch_order *order) {
  return (int)order->kind == ORDER_LOST   ? "LOST"
         : (int)order->kind == ORDER_POLL ? "POLL"
         : (int)order->kind == ORDER_LATE ? "LATE"
                                          : hv_epoch_order_name(order->kind);
}

static const char *what_of(const hv_epoch_order *order) {
  if (order->kind == HV_EPOCH_TELL)
    return hv_epoch_notice_name((hv_epoch_notice)order->action);
  if (order->kind == ORDER_LOST)
    return hv_epoch_loss_text((hv_epoch_loss)order->action);
  return order->kind == HV_EPOCH_ACT ? hv_epoch_work_name(order->action) : "";
}

/* (kind, what, which, number, epoch, samples, wait, timeout, ask), as order.py names them. */
static PyObject *order_tuple(const hv_epoch_order *o) {
  return Py_BuildValue("(ssiKKKddi)", kind_of(o), what_of(o), (int)o->which, (unsigned long long)o->number,
                       (unsigned long long)o->epoch, (unsigned long long)o->samples, (double)o->wait_us * 1e-6,
                       (double)o->timeout_us * 1e-6, o->ask);
}

/* -1: an exception is set. */
static int adds_order(PyObject *list, const hv_epoch_order *order) {
  PyObject *tuple = order_tuple(order);
  int rc = tuple ? PyList_Append(list, tuple) : -1;
  Py_XDECREF(tuple);
  return rc;
}

/* The orders of a lane as a list. NULL: an exception is set, and they are all there still. */
static PyObject *takes_orders(py_epoch *self, hv_epoch_lane lane, int starts_late) {
  const hv_epoch_run *end = &self->machine.end;
  lane_queue *q = &self->lanes[lane];
  PyObject *list = PyList_New(0);
  int rc = list ? 0 : -1;
  for (size_t i = 0; rc == 0 && i < q->n; i++) {
    hv_epoch_order order = q->orders[(q->first + i) % QUEUE];
    if (order.kind == HV_EPOCH_ACT && order.action == HV_EPOCH_PREPARE) {
      order.epoch = end->epoch;
      order.ask = end->alone;
    }
    rc = adds_order(list, &order);
  }
  if (rc == 0 && starts_late)
    rc = adds_order(list, &(hv_epoch_order){.kind = (hv_epoch_order_kind)ORDER_LATE});
  if (rc < 0) {
    Py_XDECREF(list);
    return NULL;
  }
  q->n = 0;
  self->starts_late &= !starts_late;
  return list;
}

/* True if the training thread need not wait for a further order; what lane LATE does next follows from an event of its thread. */
static int is_over(const py_epoch *self, hv_epoch_lane lane) {
  return lane == HV_EPOCH_LATE || hv_epoch_is_free(&self->machine) || self->machine.state == HV_EPOCH_LEAVING;
}

/* ([orders of this lane], whether these are the last ones), or None: there is nothing to do. */
static PyObject *answer(py_epoch *self, hv_epoch_lane lane) {
  int starts_late = lane == HV_EPOCH_NOW && self->starts_late, is_last = is_over(self, lane);
  if (!self->lanes[lane].n && !starts_late && is_last)
    Py_RETURN_NONE;
  PyObject *orders = takes_orders(self, lane, starts_late);
  if (!orders)
    return NULL;
  return Py_BuildValue("(NO)", orders, is_last ? Py_True : Py_False);
}

static PyObject *fed(py_epoch *self, hv_epoch_event *event, hv_epoch_lane by) {
  return feeds(self, event, by) < 0 ? NULL : answer(self, by);
}

/* ---- events ---- */

/* The mark of a replica that was restored decides whether this peer repeats steps. The training thread is here, so all of the
 * replica is there. */
static int knows_restored(const py_epoch *self) {
  return bind_lineage_of(self->lineage)->was_loaded ? bind_lineage_know(self->lineage) : 0;
}

static PyObject *with_number(PyObject *object, PyObject *value, hv_epoch_event_kind kind) {
  hv_epoch_event event = {.kind = kind};
  unsigned long long number;
  if (!bind_whole_number(value, &number))
    return NULL;
  *(kind == HV_EPOCH_BATCH || kind == HV_EPOCH_BEHIND ? &event.samples : &event.epoch) = number;
  return fed((py_epoch *)object, &event, HV_EPOCH_NOW);
}

static PyObject *epoch_batch(PyObject *object, PyObject *samples) {
  if (knows_restored((py_epoch *)object) < 0)
    return NULL;
  return with_number(object, samples, HV_EPOCH_BATCH);
}

static PyObject *epoch_behind(PyObject *object, PyObject *samples) {
  return with_number(object, samples, HV_EPOCH_BEHIND);
}

static PyObject *epoch_summed(PyObject *object, PyObject *args) {
  unsigned long long samples, behind;
  if (!PyArg_ParseTuple(args, "O&O&:summed", bind_whole_number, &samples, bind_whole_number, &behind))
    return NULL;
  return fed((py_epoch *)object, &(hv_epoch_event){.kind = HV_EPOCH_SUMMED, .samples = samples, .number = behind}, HV_EPOCH_NOW);
}

static PyObject *epoch_overflow(PyObject *object, PyObject *args) {
  unsigned long long samples, summed;
  if (!PyArg_ParseTuple(args, "O&O&:overflow", bind_whole_number, &samples, bind_whole_number, &summed))
    return NULL;
  return fed((py_epoch *)object, &(hv_epoch_event){.kind = HV_EPOCH_OVERFLOW, .samples = samples, .number = summed}, HV_EPOCH_NOW);
}

#define PLAIN(name, what)                                                                                                          \
  static PyObject *name(PyObject *object, PyObject *ignored) {                                                                     \
    (void)ignored;                                                                                                                 \
    return fed((py_epoch *)object, &(hv_epoch_event){.kind = what}, HV_EPOCH_NOW);                                                 \
  }
PLAIN(epoch_time, HV_EPOCH_TIME)
PLAIN(epoch_pause, HV_EPOCH_PAUSE)
PLAIN(epoch_leave, HV_EPOCH_LEAVE)

static int read_lane(PyObject *object, void *out) {
  long lane = PyLong_AsLong(object);
  if (lane != HV_EPOCH_NOW && lane != HV_EPOCH_LATE) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_ValueError, "a lane is NOW or LATE");
    return 0;
  }
  *(hv_epoch_lane *)out = (hv_epoch_lane)lane;
  return 1;
}

static PyObject *epoch_done(PyObject *object, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {"lane", "number", "ok", "seconds", "stamps", "frozen", "setup", NULL};
  py_epoch *self = (py_epoch *)object;
  hv_epoch_event event = {.kind = HV_EPOCH_DONE};
  unsigned long long number;
  double seconds = 0;
  hv_epoch_lane lane;
  PyObject *stamps = NULL, *frozen = NULL, *result = NULL;
  const char *setup = NULL;
  Py_ssize_t setup_size = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&i|dOOy#:done", (char **)names, read_lane, &lane, bind_whole_number, &number,
                                   &event.ok, &seconds, &stamps, &frozen, &setup, &setup_size))
    return NULL;
  if (self->machine.end.action[lane] == HV_EPOCH_STEP && bind_lineage_know(self->lineage) < 0)
    return NULL;
  event.number = number;
  event.took_us = (uint64_t)(seconds * 1e6);
  event.step.setup = hv_span_of(setup, (size_t)setup_size);
  uint64_t *of_stamps = stamps ? bind_numbers(stamps, &event.step.n_stamps) : NULL;
  uint64_t *of_frozen = frozen ? bind_numbers(frozen, &event.step.n_frozen) : NULL;
  event.step.stamps = of_stamps;
  event.step.frozen = of_frozen;
  if (!PyErr_Occurred())
    result = fed(self, &event, lane);
  PyMem_Free(of_stamps);
  PyMem_Free(of_frozen);
  return result;
}

static PyObject *epoch_broke(PyObject *object, PyObject *args) {
  unsigned long long number;
  hv_epoch_lane lane;
  if (!PyArg_ParseTuple(args, "O&O&:broke", read_lane, &lane, bind_whole_number, &number))
    return NULL;
  return fed((py_epoch *)object, &(hv_epoch_event){.kind = HV_EPOCH_BROKE, .number = number}, lane);
}

static hv_status status_of(const char *name) {
  for (int i = 0; i < HV_STATUS_COUNT; i++)
    if (strcmp(name, hv_status_name((hv_status)i)) == 0)
      return (hv_status)i;
  return HV_INVALID;
}

static PyObject *epoch_round(PyObject *object, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {"lane", "which", "status", "parts", "alike", "had_group", "given_up", "seconds", NULL};
  py_epoch *self = (py_epoch *)object;
  hv_epoch_round round = {.has_replica = self->machine.traits.has_replica};
  int had_met = self->machine.has_met;
  hv_lineage_member members[HV_EPOCH_MEMBERS];
  bind_parts parts = {0};
  hv_epoch_lane lane;
  int which;
  const char *status;
  double seconds = 0;
  PyObject *tuple = NULL, *result = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&is|O!ippd:round", (char **)names, read_lane, &lane, &which, &status,
                                   &PyTuple_Type, &tuple, &round.alike, &round.has_group, &round.is_given_up, &seconds) ||
      bind_lineage_know(self->lineage) < 0)
    return NULL;
  if (!tuple || bind_parts_init(tuple, &parts) == 0) {
    round.which = which ? HV_EPOCH_REPLICA_STATE : HV_EPOCH_GRADIENTS;
    round.status = status_of(status);
    round.parts = parts.list;
    round.n_parts = parts.n;
    hv_epoch_facts facts = hv_epoch_facts_of(&round, members);
    hv_epoch_event event = hv_epoch_round_event(&round, &facts, members);
    event.took_us = (uint64_t)(seconds * 1e6);
    result = fed(self, &event, lane);
    if (result)
      result = Py_BuildValue("(sNN)", hv_epoch_outcome_name(facts.outcome), PyBool_FromLong(had_met), result);
  }
  bind_parts_fini(&parts);
  return result;
}

static PyObject *epoch_word(PyObject *object, PyObject *which) {
  py_epoch *self = (py_epoch *)object;
  long number = PyLong_AsLong(which);
  if (number == -1 && PyErr_Occurred())
    return NULL;
  if (!hv_epoch_has_word(&self->machine, number ? HV_EPOCH_REPLICA_STATE : HV_EPOCH_GRADIENTS))
    Py_RETURN_NONE;
  return PyObject_CallMethod(self->lineage, "word", NULL);
}

/* Reads an epoch, or None: there is none. */
static int read_found(PyObject *object, uint64_t *out, int *out_ok) {
  unsigned long long epoch = 0;
  *out_ok = object != Py_None;
  if (*out_ok && !bind_whole_number(object, &epoch))
    return -1;
  *out = epoch;
  return 0;
}

static PyObject *epoch_looked(PyObject *object, PyObject *found) {
  hv_epoch_event event = {.kind = HV_EPOCH_LOOKED};
  return read_found(found, &event.epoch, &event.ok) < 0 ? NULL : fed((py_epoch *)object, &event, HV_EPOCH_NOW);
}

static PyObject *epoch_loaded(PyObject *object, PyObject *args) {
  py_epoch *self = (py_epoch *)object;
  hv_epoch_event event = {.kind = HV_EPOCH_LOADED};
  PyObject *found, *mark = Py_None;
  if (!PyArg_ParseTuple(args, "O|O:loaded", &found, &mark) || read_found(found, &event.epoch, &event.ok) < 0 ||
      (self->machine.ledger->kept && bind_lineage_know(self->lineage) < 0))
    return NULL;
  event.has_mark = bind_mark(mark, &event.mark);
  return fed(self, &event, HV_EPOCH_NOW);
}

static PyObject *epoch_entry(PyObject *object, PyObject *args) {
  py_epoch *self = (py_epoch *)object;
  hv_epoch_event event = {.kind = HV_EPOCH_ENTRY};
  unsigned long long epoch;
  PyObject *before, *stamps;
  if (!PyArg_ParseTuple(args, "O&OO:entry", bind_whole_number, &epoch, &before, &stamps) || bind_lineage_know(self->lineage) < 0)
    return NULL;
  uint64_t *of_stamps = bind_numbers(stamps, &event.step.n_stamps);
  event.epoch = epoch;
  event.ok = event.has_mark = bind_mark(before, &event.mark);
  event.step.stamps = of_stamps;
  PyObject *result = PyErr_Occurred() ? NULL : fed(self, &event, HV_EPOCH_NOW);
  PyMem_Free(of_stamps);
  return result;
}

static PyObject *epoch_offered(PyObject *object, PyObject *args) {
  hv_epoch_event event = {.kind = HV_EPOCH_OFFERED};
  unsigned long long epoch;
  hv_epoch_lane lane;
  if (!PyArg_ParseTuple(args, "O&O&p:offered", read_lane, &lane, bind_whole_number, &epoch, &event.ok))
    return NULL;
  event.epoch = epoch;
  return fed((py_epoch *)object, &event, lane);
}

static PyObject *epoch_wanted(PyObject *object, PyObject *args, PyObject *kwargs) {
  static const char *const names[] = {"lane", "epoch", "by_hub", NULL};
  hv_epoch_event event = {.kind = HV_EPOCH_WANTED};
  unsigned long long epoch;
  hv_epoch_lane lane;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&|p:wanted", (char **)names, read_lane, &lane, bind_whole_number, &epoch,
                                   &event.ok))
    return NULL;
  event.epoch = epoch;
  return fed((py_epoch *)object, &event, lane);
}

static PyObject *epoch_loading(PyObject *object, PyObject *epoch) {
  return with_number(object, epoch, HV_EPOCH_LOADS);
}

static PyObject *epoch_restored(PyObject *object, PyObject *epoch) {
  return with_number(object, epoch, HV_EPOCH_RESTORED);
}

static PyObject *epoch_asked(PyObject *object, PyObject *least) {
  return with_number(object, least, HV_EPOCH_ASKED);
}

/* ---- waits ---- */

static int looks_out(const hv_epoch *machine) {
  return machine->state == HV_EPOCH_LOOKING || machine->state == HV_EPOCH_COMING || machine->state == HV_EPOCH_ENDING ||
         machine->state == HV_EPOCH_LOADING || machine->state == HV_EPOCH_REPEATING;
}

/* Of a wait until this moment: no longer than a signal may wait. */
static uint32_t doze_ms(uint64_t due_us, uint64_t now_us) {
  uint64_t left_ms = due_us == HV_EPOCH_NONE ? SIGNALS_MS : due_us > now_us ? (due_us - now_us + 999) / 1000 : 0;
  return left_ms < SIGNALS_MS ? (uint32_t)left_ms : SIGNALS_MS;
}

/* The training thread waits until there is news, or until its wait is due; then time has passed. -1: an exception is set. */
static int waits(py_epoch *self) {
  hv_epoch *machine = &self->machine;
  hv_hive_progress *progress = bind_progress_of(self->progress);
  hv_epoch_event event = {.kind = HV_EPOCH_TIME};
  if (!progress)
    return feeds(self, &event, HV_EPOCH_NOW); /* which says why */
  uint64_t due_us = looks_out(machine) ? hv_epoch_due_us(machine) : HV_EPOCH_NONE, known = self->news;
  int is_new;
  Py_BEGIN_ALLOW_THREADS
  is_new = hv_hive_progress_doze(progress, known, doze_ms(due_us, hv_clock_us()));
  Py_END_ALLOW_THREADS
  if (PyErr_CheckSignals() < 0)
    return -1;
  if (!is_new && hv_clock_us() < due_us)
    return 0;
  self->news = hv_hive_progress_news(progress);
  if (!looks_out(machine))
    return 0;
  self->news++; /* of the event's own ring */
  return feeds(self, &event, HV_EPOCH_NOW);
}

/* From any thread. */
static PyObject *epoch_ring(PyObject *object, PyObject *ignored) {
  hv_hive_progress *progress = bind_progress_of(((py_epoch *)object)->progress);
  (void)ignored;
  if (progress)
    hv_hive_progress_ring(progress);
  Py_RETURN_NONE;
}

/* The training thread waits for something that another one brings. */
static int waits_beside(const hv_epoch *machine) {
  return machine->state == HV_EPOCH_LOADING || machine->state == HV_EPOCH_REPEATING ||
         (machine->state == HV_EPOCH_ENDING && machine->traits.overlap && machine->end.rounding[HV_EPOCH_NOW]);
}

static PyObject *epoch_next(PyObject *object, PyObject *number) {
  py_epoch *self = (py_epoch *)object;
  hv_epoch_lane lane;
  if (!read_lane(number, &lane))
    return NULL;
  while (!self->lanes[lane].n && !is_over(self, lane)) {
    if (self->machine.end.acting[lane] || (self->machine.end.rounding[lane] && !waits_beside(&self->machine))) {
      PyErr_SetString(PyExc_RuntimeError, "the latest order has not been answered");
      return NULL;
    }
    if (waits(self) < 0)
      return NULL;
    if (!self->lanes[lane].n && waits_beside(&self->machine))
      puts_in(self, lane, &(hv_epoch_order){.kind = (hv_epoch_order_kind)ORDER_POLL});
  }
  return answer(self, lane);
}

static const PyMethodDef methods[] = {
    {"batch", epoch_batch, METH_O,
     "batch(samples) -> answer: so many samples are summed up; 0: the training thread is here without a batch."},
    {"behind", epoch_behind, METH_O,
     "behind(samples): the training thread is here; its batch's gradient is of the model before a state was loaded."},
    {"summed", epoch_summed, METH_VARARGS,
     "summed(samples, behind): samples of other processes are in the sums; others are of the model before a load."},
    {"overflow", epoch_overflow, METH_VARARGS,
     "overflow(samples, summed): a batch's gradient overflowed, and so many samples of the sums with it."},
    {"time", epoch_time, METH_NOARGS, "Time has passed, in a wait of the training thread."},
    {"pause", epoch_pause, METH_NOARGS, "The training thread is here between two batches."},
    {"done", (PyCFunction)(void (*)(void))epoch_done, METH_VARARGS | METH_KEYWORDS,
     "done(lane, number, ok, seconds=0, stamps=(), frozen=(), setup=b''): an action is done; ok < 0: values are not finite."},
    {"broke", epoch_broke, METH_VARARGS, "broke(lane, number): an action could not be done."},
    {"round", (PyCFunction)(void (*)(void))epoch_round, METH_VARARGS | METH_KEYWORDS,
     "round(lane, which, status, parts=(), alike=0, had_group=False, given_up=False, seconds=0) -> (outcome, had met, answer): a\n"
     "round is over, which took so long since its trigger. had met: before it. parts: the results of its averagings. alike: of "
     "the\n"
     "state: 1: all that was averaged was this replica; after a failure 1: it is to the bit what it was, 0: only if that of all\n"
     "members was the same, -1: it is not. given_up: its search was to end."},
    {"word", epoch_word, METH_O, "word(which) -> [mark, rank] for the others of a group, or None: no word of this peer is judged."},
    {"looked", epoch_looked, METH_O, "looked(epoch or None): the state on offer."},
    {"loading", epoch_loading, METH_O, "loading(epoch): the bytes of that epoch's state come, before loaded()."},
    {"loaded", epoch_loaded, METH_VARARGS, "loaded(epoch or None, mark=None): the state that is there."},
    {"entry", epoch_entry, METH_VARARGS,
     "entry(epoch, mark or None, stamps): the average that was wanted is there, for a replica with that mark; None: it is lost."},
    {"offered", epoch_offered, METH_VARARGS, "offered(lane, epoch, ok): an offer stands, or not."},
    {"wanted", (PyCFunction)(void (*)(void))epoch_wanted, METH_VARARGS | METH_KEYWORDS,
     "wanted(lane, epoch, by_hub=False): a joiner wants the state of that epoch; by_hub: a hub asks to be given that, or a later "
     "one."},
    {"restored", epoch_restored, METH_O, "restored(epoch): the program has restored the state of that epoch."},
    {"asked", epoch_asked, METH_O, "asked(least): the program asks for the swarm's state."},
    {"leave", epoch_leave, METH_NOARGS, "This peer leaves."},
    {"ring", epoch_ring, METH_NOARGS, "Ends the wait of next(), in which POLL is an order. Any thread may call it."},
    {"next", epoch_next, METH_O,
     "next(lane) -> answer: the orders of a lane. In lane NOW it waits for one, unless the training thread may go on."},
    {NULL, NULL, 0, NULL}};

/* ---- what is so ---- */

static const hv_epoch *look(PyObject *object) {
  return &((py_epoch *)object)->machine;
}

#define LOOK(name, value)                                                                                                          \
  static PyObject *name(PyObject *object, void *unused) {                                                                          \
    const hv_epoch *e = look(object);                                                                                              \
    (void)unused;                                                                                                                  \
    return value;                                                                                                                  \
  }
LOOK(epoch_state, PyUnicode_FromString(hv_epoch_state_name(e->state)))
LOOK(epoch_waits, PyUnicode_FromString(hv_epoch_wait_name(hv_epoch_waits(e))))
LOOK(epoch_told, PyLong_FromUnsignedLongLong(e->told))
LOOK(epoch_averaging, PyFloat_FromDouble((double)hv_epoch_averaging_us(e) * 1e-6))
LOOK(epoch_drops, PyBool_FromLong(e->end.acting[HV_EPOCH_NOW] && e->end.action[HV_EPOCH_NOW] == HV_EPOCH_DROP))
LOOK(epoch_counts_batches, PyBool_FromLong(hv_epoch_counts_batches(e)))
LOOK(epoch_trains_aside, PyBool_FromLong(hv_epoch_trains_aside(e)))
LOOK(epoch_waits_for_thread, PyBool_FromLong(hv_epoch_waits_for_thread(e)))
LOOK(epoch_is_alone, PyBool_FromLong(e->alone_since_us != HV_EPOCH_NONE))
LOOK(epoch_is_wrong, PyBool_FromLong(e->lineage->is_wrong || e->is_unfit))
LOOK(epoch_has_met, PyBool_FromLong(e->has_met))
LOOK(epoch_loads, PyLong_FromUnsignedLong(e->loads))
LOOK(epoch_moves_wrong, PyLong_FromUnsignedLong(e->moves_wrong))

static PyObject *epoch_end(PyObject *object, void *unused) {
  (void)unused;
  const hv_epoch_run *r = &look(object)->end;
  return Py_BuildValue("(KOOOOKO)", (unsigned long long)r->epoch, r->alone ? Py_True : Py_False, r->averaged ? Py_True : Py_False,
                       r->state_averaged ? Py_True : Py_False, r->nobody ? Py_True : Py_False, (unsigned long long)r->samples,
                       r->stepped ? Py_True : Py_False);
}

static PyObject *epoch_offered_epoch(PyObject *object, void *unused) {
  (void)unused;
  uint64_t epoch = look(object)->offers.offered;
  return epoch == HV_EPOCH_NONE ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(epoch);
}

static PyObject *epoch_gift(PyObject *object, void *unused) {
  const hv_epoch_gift *gift = &((py_epoch *)object)->gift;
  (void)unused;
  PyObject *hubs = PyTuple_New((Py_ssize_t)gift->n);
  for (size_t i = 0; hubs && i < gift->n; i++) {
    PyObject *hub = bind_peer_text(&gift->hubs[i]);
    if (!hub || PyTuple_SetItem(hubs, (Py_ssize_t)i, hub) < 0)
      Py_CLEAR(hubs);
  }
  return hubs ? Py_BuildValue("(Ny#)", hubs, (const char *)gift->ticket, (Py_ssize_t)sizeof gift->ticket) : NULL;
}

static const PyGetSetDef attributes[] = {
    {"state", epoch_state, NULL, "The name of the state.", NULL},
    {"waits", epoch_waits, NULL, "The name of the wait that is under way.", NULL},
    {"epoch", epoch_told, NULL, "The epoch that others hear.", NULL},
    {"averaging", epoch_averaging, NULL, "The longest time of a step of averaging, in seconds.", NULL},
    {"drops", epoch_drops, NULL, "True if the sums are to be dropped: the last one of the orders of lane NOW.", NULL},
    {"counts_batches", epoch_counts_batches, NULL, "True if the next batch counts.", NULL},
    {"trains_aside", epoch_trains_aside, NULL, "True while batches count although nobody counts this peer.", NULL},
    {"waits_for_thread", epoch_waits_for_thread, NULL, "True if pause() takes over what has come beside the batches.", NULL},
    {"waits_for_company", epoch_is_alone, NULL, "True while no epoch ends because this peer is alone.", NULL},
    {"is_unusable", epoch_is_wrong, NULL, "True if this peer must load the swarm's state.", NULL},
    {"has_met", epoch_has_met, NULL, "True once it has averaged gradients with others.", NULL},
    {"loads", epoch_loads, NULL, "States loaded since an epoch was made together with others.", NULL},
    {"end", epoch_end, NULL, "The epoch's end: (epoch, alone, averaged, state_averaged, nobody, samples, stepped).", NULL},
    {"offered_epoch", epoch_offered_epoch, NULL, "The epoch whose state is on offer, or None.", NULL},
    {"gift", epoch_gift, NULL, "(hubs, ticket) of the latest group whose hubs expect this peer's state.", NULL},
    {"moves_wrong", epoch_moves_wrong, NULL, "Moves that the table does not allow: 0.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

int hv_py_epoch_init(PyObject *module) {
  PyType_Slot slots[] = {
      {Py_tp_doc, (void *)"What a peer of a run does next (core/epoch/epoch.h); hivemind_c.optim.driver is its user. Each event "
                          "returns an answer: ([orders of its lane], whether these are the last ones), or None: nothing is to do."},
      {Py_tp_new, (void *)epoch_new},
      {Py_tp_finalize, (void *)epoch_finalize},
      {Py_tp_traverse, (void *)epoch_traverse},
      {Py_tp_methods, (void *)methods},
      {Py_tp_getset, (void *)attributes},
      {0, NULL}};
  PyType_Spec spec = {.name = "_hivemind_c.Epoch",
                      .basicsize = sizeof(py_epoch),
                      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
                      .slots = slots};
  return bind_type_add(module, &spec, "Epoch");
}
