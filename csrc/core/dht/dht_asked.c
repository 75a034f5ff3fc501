#include "core/dht/dht_inner.h"
#include "core/peers/contact.h"

#include <string.h>

/* Costs are counted in eighths of a signature check, which takes about 0.1 ms. */
enum {
  CHECK_COST = 8,
  PUT_COST = 2,
  COST_BYTES = 1024,                /* bytes of a record that cost one */
  ROOM = 256,                       /* for all in a pause: 32 checks */
  ROOM_OF_STRANGERS = ROOM / 4 * 3, /* of that, for peers that are not trusted */
  TURN = 64,                        /* of one message, before the next has its turn */
  PAUSE_US = 5000,
  WAITING = 65536,      /* of all messages of one queue: 1.7 s of strangers' room */
  MESSAGE_WEIGHT = 256, /* added to the cost of each that waits, so that they are not too many */
};

static const char too_many[] = "too many records wait for the check of their signatures: try again later";

/* A STORE, or an answer to a get, whose records have not all been checked. */
struct dht_asked {
  dht_asked *next;
  const hv_record *records;
  size_t n, at; /* at: records before it have been checked */
  int forged;   /* 1: one of them had an invalid signature, so none after it is looked at */
  size_t bytes; /* of its copies */
  hv_span me;
  dht_work *work; /* the get that it answers; NULL: a STORE */
  /* STORE */
  hv_request *request;
  hv_peer_id peer;
  hv_addr seen;     /* where */
  uint64_t network; /* from which it came; 0: a private one */
  size_t cost;      /* of records that have no verdict */
  hv_status *verdicts;
  const hv_store_item *stands; /* the newer record that was in the way of the last one */
  /* answer */
  hv_lookup *lookup;
  size_t answer;
  unsigned depth;
};

static size_t bytes_of(const hv_record *record) {
  return record->key.size + record->subkey.size + record->value.size;
}

/* Of a record to be stored; of an answer, what it costs at most. */
static size_t cost_of(const hv_record *record) {
  return (hv_peer_is_known(&record->signer) ? CHECK_COST : PUT_COST) + bytes_of(record) / COST_BYTES;
}

/* ---- room: how much may be done before the next pause ---- */

static int class_of(const hv_dht *dht, const hv_peer_id *peer) {
  return dht->env->tier && dht->env->tier(dht->env->tier_arg, peer) == HV_TIER_TRUSTED ? DHT_TRUSTED : DHT_STRANGERS;
}

static size_t room_of(hv_dht *dht, int class) {
  uint64_t now = dht->env->now_us(dht->env);
  if (now - dht->spent_us >= PAUSE_US) {
    dht->spent_us = now;
    memset(dht->spent, 0, sizeof dht->spent);
  }
  size_t all = 0;
  for (int i = 0; i < DHT_CLASSES; i++)
    all += dht->spent[i];
  size_t room = all < ROOM ? ROOM - all : 0;
  if (class == DHT_TRUSTED)
    return room;
  size_t own = dht->spent[class] < ROOM_OF_STRANGERS ? ROOM_OF_STRANGERS - dht->spent[class] : 0;
  return own < room ? own : room;
}

/* ---- one message ---- */

static size_t store_one(hv_dht *dht, dht_asked *asked) {
  const hv_record *record = &asked->records[asked->at];
  size_t cost = cost_of(record);
  asked->cost -= cost;
  asked->verdicts[asked->at] =
      asked->forged ? HV_CORRUPT : hv_store_put_from(&dht->store, record, &asked->peer, asked->network, &asked->stands);
  int skipped = asked->forged;
  asked->forged |= asked->verdicts[asked->at] == HV_CORRUPT;
  return skipped ? 0 : cost;
}

/* A record that another node has answered, too, costs no check. */
static size_t hear_one(dht_asked *asked) {
  const hv_record *record = &asked->records[asked->at];
  int checked = 0;
  if (asked->forged)
    return 0;
  asked->forged = hv_gather_take(&asked->work->gather, asked->answer, record, &checked) == HV_CORRUPT;
  return (checked ? CHECK_COST : 0) + bytes_of(record) / COST_BYTES;
}

/* Checks records while there is room for them, one at least. After a forgery none is looked at: no honest node hands on what it has
 * not checked itself. */
static void check_some(hv_dht *dht, dht_asked *asked, int class, size_t room) {
  for (size_t spent = 0, cost; asked->at < asked->n; asked->at++) {
    if (spent && !asked->forged && spent + cost_of(&asked->records[asked->at]) > room)
      break;
    cost = asked->work ? hear_one(asked) : store_one(dht, asked);
    spent += cost;
    dht->spent[class] += cost;
  }
}

/* One newer record is enough for its owner to count on from there. Of several records none is named: it may have gone since. */
static void answer(hv_dht *dht, const dht_asked *asked) {
  hv_record newer;
  hv_msg msg = {.kind = HV_MSG_STORED, .u.stored = {.verdicts = asked->verdicts, .n_verdicts = asked->n, .newer = &newer}};
  if (asked->n == 1 && asked->stands && asked->stands->signer)
    msg.u.stored.n_newer = (size_t)hv_store_show(&dht->store, asked->stands, &newer);
  newer.key = hv_span_of(NULL, 0);
  dht->env->reply(dht->env, asked->request, &msg);
  dht_consider(dht, &asked->peer, &asked->seen, asked->me);
}

/* ---- those that wait ---- */

static hv_span copy(uint8_t **to, hv_span from) {
  hv_span out = hv_span_of(*to, from.size);
  if (from.size)
    memcpy(*to, from.data, from.size);
  *to += from.size;
  return out;
}

static size_t copied_bytes(const dht_asked *from) {
  size_t bytes = from->n * (sizeof(hv_record) + sizeof(hv_status)) + from->me.size;
  for (size_t i = 0; i < from->n; i++)
    bytes += bytes_of(&from->records[i]);
  return bytes;
}

/* A copy in one block of from->bytes, because the message is borrowed. NULL: no memory. */
static dht_asked *keep(hv_dht *dht, const dht_asked *from) {
  dht_asked *asked = hv_mem_alloc(dht->env->mem, sizeof *asked + from->bytes);
  if (!asked)
    return NULL;
  hv_record *records = (hv_record *)(asked + 1);
  *asked = *from;
  asked->records = records;
  asked->verdicts = (hv_status *)(records + from->n);
  uint8_t *at = (uint8_t *)(asked->verdicts + from->n);
  for (size_t i = 0; i < from->n; i++) {
    records[i] = from->records[i];
    records[i].key = copy(&at, records[i].key);
    records[i].subkey = copy(&at, records[i].subkey);
    records[i].value = copy(&at, records[i].value);
  }
  asked->me = copy(&at, from->me);
  return asked;
}

static size_t weight_of(const dht_asked *asked) {
  return asked->cost + MESSAGE_WEIGHT;
}

/* Keys cost nothing: those of one network count as one. */
static int same_origin(const dht_asked *a, const dht_asked *b) {
  return a->network == b->network && (a->network || hv_peer_equal(&a->peer, &b->peer));
}

/* The weight of all that waits from the origin of a message. */
static size_t weight_with(const dht_asked *first, const dht_asked *asked) {
  size_t weight = 0;
  for (; first; first = first->next)
    weight += same_origin(first, asked) ? weight_of(first) : 0;
  return weight;
}

/* Refuses messages of the origin with most until the newcomer finds room. False: its own origin would have most. */
static int make_room(hv_dht *dht, const dht_asked *newcomer, int class) {
  size_t own = weight_of(newcomer) + weight_with(dht->asked[class], newcomer);
  for (;;) {
    size_t all = weight_of(newcomer), most = own;
    dht_asked **goes = NULL;
    for (dht_asked **at = &dht->asked[class]; *at; at = &(*at)->next) {
      size_t weight = weight_with(dht->asked[class], *at);
      all += weight_of(*at);
      if (weight > most || (goes && weight == most)) { /* of one origin the last */
        most = weight;
        goes = at;
      }
    }
    if (all <= WAITING)
      return 1;
    if (!goes)
      return 0;
    dht_asked *victim = *goes;
    *goes = victim->next;
    hv_env_refuse(dht->env, victim->request, HV_BUSY, too_many);
    hv_mem_free(victim);
  }
}

static void add_last(dht_asked **at, dht_asked *asked) {
  while (*at)
    at = &(*at)->next;
  asked->next = NULL;
  *at = asked;
}

/* The answer is complete. The get may end with that. */
static void close_answer(dht_asked *asked, int waited) {
  hv_gather_close(&asked->work->gather, asked->answer);
  asked->work->ops->checked(asked->work, asked->lookup, asked->answer, asked->depth, waited);
}

static void no_longer_waits(const dht_asked *asked) {
  if (asked->work) {
    asked->work->waiting--;
    asked->work->waiting_bytes -= asked->bytes;
  }
}

/* A turn for each message in the order in which they wait, as long as there is room. */
static void serve(hv_dht *dht, int class) {
  for (size_t room; dht->asked[class] && (room = room_of(dht, class)) > 0;) {
    dht_asked *asked = dht->asked[class];
    dht->asked[class] = asked->next;
    check_some(dht, asked, class, room < TURN ? room : TURN);
    if (asked->at < asked->n) {
      add_last(&dht->asked[class], asked);
      continue;
    }
    no_longer_waits(asked);
    if (asked->work)
      close_answer(asked, 1);
    else
      answer(dht, asked);
    hv_mem_free(asked);
  }
}

static int is_empty(const hv_dht *dht) {
  int class = 0;
  while (class < DHT_CLASSES && !dht->asked[class])
    class ++;
  return class == DHT_CLASSES;
}

static void serve_all(hv_timer *timer, const hv_event *event) {
  hv_dht *dht = timer->owner;
  (void)event;
  for (int class = DHT_CLASSES; class -- > 0;)
    serve(dht, class);
  if (!is_empty(dht))
    dht->env->timer_set(dht->env, timer, PAUSE_US);
}

/* Lets a copy wait for its next turn. */
static hv_status put_in_line(hv_dht *dht, const dht_asked *from, int class) {
  dht_asked *asked = keep(dht, from);
  if (!asked)
    return HV_NOMEM;
  if (is_empty(dht)) {
    dht->env->timer_clear(dht->env, &dht->asked_timer);
    dht->asked_timer = (hv_timer){.fire = serve_all, .owner = dht};
    dht->env->timer_set(dht->env, &dht->asked_timer, PAUSE_US);
  }
  add_last(&dht->asked[class], asked);
  return HV_OK;
}

static void wait(hv_dht *dht, dht_asked *from, int class) {
  from->bytes = copied_bytes(from);
  if (!make_room(dht, from, class))
    hv_env_refuse(dht->env, from->request, HV_BUSY, too_many);
  else if (put_in_line(dht, from, class) != HV_OK)
    hv_env_refuse(dht->env, from->request, HV_NOMEM, "this peer has no memory left");
}

void dht_asked_store(hv_dht *dht, const hv_event *event) {
  const hv_msg_store *store = &event->msg->u.store;
  dht_asked asked = {
      .request = event->request, .peer = event->request->peer, .records = store->records, .n = store->n_records, .me = store->me};
  asked.seen = event->request->from;
  asked.network = hv_contact_network(&event->request->from);
  int class = class_of(dht, &asked.peer);
  for (size_t i = 0; i < asked.n; i++)
    asked.cost += cost_of(&asked.records[i]);
  if (dht->asked[class] || asked.cost > room_of(dht, class)) {
    wait(dht, &asked, class);
    return;
  }
  asked.verdicts = hv_mem_array(dht->env->mem, asked.n, sizeof *asked.verdicts);
  if (!asked.verdicts) {
    hv_env_refuse(dht->env, asked.request, HV_NOMEM, "this peer has no memory left");
    return;
  }
  check_some(dht, &asked, class, ROOM);
  answer(dht, &asked);
  hv_mem_free(asked.verdicts);
}

void dht_asked_answer(dht_work *work, hv_lookup *lookup, size_t answer, unsigned depth, const hv_msg_found *found) {
  hv_dht *dht = work->dht;
  dht_asked asked = {
      .work = work, .lookup = lookup, .answer = answer, .depth = depth, .records = found->records, .n = found->n_records};
  size_t room = dht->asked[DHT_ANSWERS] ? 0 : room_of(dht, DHT_ANSWERS);
  if (room)
    check_some(dht, &asked, DHT_ANSWERS, room);
  asked.records += asked.at;
  asked.n -= asked.at;
  asked.at = 0;
  asked.bytes = copied_bytes(&asked);
  if (asked.n == 0 || work->gather.bytes + work->waiting_bytes + asked.bytes > HV_GATHER_BYTES_MAX ||
      put_in_line(dht, &asked, DHT_ANSWERS) != HV_OK) {
    close_answer(&asked, 0);
    return;
  }
  work->waiting++;
  work->waiting_bytes += asked.bytes;
}

void dht_asked_forget(dht_work *work) {
  for (dht_asked **at = &work->dht->asked[DHT_ANSWERS], *asked; (asked = *at);)
    if (asked->work == work) {
      *at = asked->next;
      hv_mem_free(asked);
    } else {
      at = &asked->next;
    }
}

void dht_asked_end(hv_dht *dht, const char *why) {
  for (int class = 0; class < DHT_CLASSES; class ++)
    for (dht_asked *asked; (asked = dht->asked[class]); hv_mem_free(asked)) {
      dht->asked[class] = asked->next;
      no_longer_waits(asked);
      if (why && !asked->work)
        hv_env_refuse(dht->env, asked->request, HV_UNSUPPORTED, why);
    }
  if (dht->asked_timer.fire)
    dht->env->timer_clear(dht->env, &dht->asked_timer);
}
