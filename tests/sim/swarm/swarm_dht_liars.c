/* The DHT among those who lie: Sybils that answer falsely, identities made for one key, forged and replayed records.
 * The right value is known from the outside: each key has one value that its writer stored. */
#include "lib/dht_swarm.h"
#include "sim/swarm/swarm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUND = 20, NAMED = 20 };

typedef struct plot {
  swarm_run *run;
  dht_swarm s;
  size_t honest;      /* the first so many; the rest lie */
  hv_hash *places;    /* of all nodes, as the liars see them */
  hv_hash victim;     /* ground: the place of the one key */
  double ground_bits; /* how near to it they stand, in bits */
  dht_try *tries;
} plot;

static uint64_t below(swarm_run *run, uint64_t n) {
  return check_random(&run->rng) % n;
}

static plot *open_plot(swarm_run *run, size_t liars, size_t replicas, size_t tries) {
  plot *p = hv_mem_zalloc(&run->mem, sizeof *p);
  if (!p)
    abort();
  hv_sim_link link = {.delay_us = 10000, .jitter_us = 5000};
  hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  p->run = run;
  p->honest = run->options->nodes;
  p->s.config.num_replicas = replicas;
  p->s.config.cache_nearest = -1;
  p->s.config.cache_locally = -1;
  p->s.hello_every_ms = 3600000;
  p->s.peers_room = 2;
  p->s.scenario = p;
  dht_swarm_init(&p->s, run->sim, &run->mem, p->honest + liars);
  p->places = hv_mem_array(&run->mem, p->honest + liars, sizeof *p->places);
  p->tries = hv_mem_array(&run->mem, tries, sizeof *p->tries);
  return p;
}

/* Honest nodes first, then liars; all know somebody honest. */
static void fill_plot(plot *p, size_t liars) {
  for (size_t i = 0; i < p->honest + liars; i++) {
    size_t knows = i ? below(p->run, i < p->honest ? i : p->honest) : 0;
    p->s.seats[i].is_liar = i >= p->honest;
    dht_swarm_add(&p->s, &knows, i > 0, 0);
  }
  for (size_t i = 0; i < p->s.n; i++) {
    hv_env *env = p->s.seats[i].env;
    hv_peer_id id = hv_sim_target(p->run->sim, i).id;
    env->sha256(env, hv_span_of(id.key, sizeof id.key), &p->places[i]);
  }
}

static void close_plot(plot *p) {
  swarm_run *run = p->run;
  swarm_over(run);
  hv_mem_free(p->places);
  hv_mem_free(p->tries);
  dht_swarm_fini(&p->s);
  hv_mem_free(p);
}

/* ---- how they lie ---- */

/* Names the liars nearest to the point, and behind them people who do not exist. */
static size_t name_liars(plot *p, const hv_hash *target, hv_contact *out, uint8_t packed[][HV_CONTACT_ADDRS_MAX], size_t invented) {
  size_t chosen[NAMED], n = 0, most = NAMED - invented;
  for (size_t i = p->honest; i < p->s.n; i++) {
    size_t at = n < most ? n++ : most - 1;
    if (at == most - 1 && n == most && at < n && i >= p->honest + most &&
        hv_hash_nearer(target, &p->places[i], &p->places[chosen[at]]) >= 0)
      continue;
    for (; at > 0 && hv_hash_nearer(target, &p->places[i], &p->places[chosen[at - 1]]) < 0; at--)
      chosen[at] = chosen[at - 1];
    chosen[at] = i;
  }
  for (size_t i = 0; i < n; i++) {
    hv_target liar = hv_sim_target(p->run->sim, chosen[i]);
    out[i] = (hv_contact){liar.id, hv_span_of(packed[i], hv_contact_pack(&liar.addr, 1, packed[i]))};
  }
  for (size_t i = 0; i < invented; i++, n++) {
    hv_addr nowhere = hv_sim_target(p->run->sim, p->s.n + 10 + below(p->run, 1000)).addr;
    for (size_t b = 0; b < sizeof out[n].id.key; b++)
      out[n].id.key[b] = (uint8_t)check_random(&p->run->rng);
    out[n].addrs = hv_span_of(packed[n], hv_contact_pack(&nowhere, 1, packed[n]));
  }
  return n;
}

static void say_stored(dht_seat *liar, const hv_event *event) {
  static const hv_status fine[HV_RECORDS_MAX];
  hv_msg answer = {.kind = HV_MSG_STORED, .u.stored = {fine, event->msg->u.store.n_records, NULL, 0}};
  liar->env->reply(liar->env, event->request, &answer);
}

/* Several questions at once: none is answered, so that each comes again by itself. */
static int is_asked_many(dht_seat *liar, const hv_event *event) {
  hv_msg answer = {.kind = HV_MSG_FOUNDS};
  if (event->msg->kind != HV_MSG_FINDS)
    return 0;
  liar->env->reply(liar->env, event->request, &answer);
  return 1;
}

/* All liars tell the same lie about every key, and for as long as can be; they claim to keep what they throw away. */
static int tell_lies(dht_seat *liar, const hv_event *event) {
  plot *p = liar->swarm->scenario;
  hv_contact contacts[NAMED];
  uint8_t packed[NAMED][HV_CONTACT_ADDRS_MAX];
  hv_record lies[2] = {{.value = hv_span_of("a lie", 5), .ttl_ms = 3600000}, {.value = hv_span_of("a lie", 5), .ttl_ms = 3600000}};
  if (event->msg->kind == HV_MSG_STORE) {
    say_stored(liar, event);
    return 1;
  }
  if (event->msg->kind != HV_MSG_FIND)
    return is_asked_many(liar, event);
  lies[1].signer = hv_sim_target(p->run->sim, 0).id; /* not theirs to give */
  lies[1].version = UINT64_MAX;
  lies[1].lease_ms = 3600000;
  hv_msg answer = {.kind = HV_MSG_FOUND};
  answer.u.found = (hv_msg_found){lies, event->msg->u.find.want_records ? 2 : 0, contacts, 0};
  answer.u.found.n_contacts = name_liars(p, &event->msg->u.find.target, contacts, packed, NAMED / 2);
  liar->env->reply(liar->env, event->request, &answer);
  return 1;
}

/* Those that stand around one key keep silent about it, and name each other only. */
static int hide(dht_seat *liar, const hv_event *event) {
  plot *p = liar->swarm->scenario;
  hv_contact contacts[NAMED];
  uint8_t packed[NAMED][HV_CONTACT_ADDRS_MAX];
  if (event->msg->kind == HV_MSG_STORE) {
    say_stored(liar, event);
    return 1;
  }
  if (event->msg->kind != HV_MSG_FIND)
    return is_asked_many(liar, event);
  hv_msg answer = {.kind = HV_MSG_FOUND, .u.found = {.contacts = contacts}};
  answer.u.found.n_contacts = name_liars(p, &event->msg->u.find.target, contacts, packed, 0);
  liar->env->reply(liar->env, event->request, &answer);
  return 1;
}

/* ---- stores and gets ---- */

static void key_of(plot *p, size_t i, size_t writer, int owned, char key[120], char value[64]) {
  char who[HV_PEER_TEXT_MAX];
  hv_peer_id id = hv_sim_target(p->run->sim, writer).id;
  snprintf(value, 64, "value %zu", i);
  if (owned)
    snprintf(key, 120, "key %zu[owner:%s]", i, hv_peer_print(&id, who));
  else
    snprintf(key, 120, "key %zu", i);
}

/* How many of so many keys the honest get right, each asked once. */
static size_t store_and_get(plot *p, size_t n, int owned) {
  char key[120], value[64];
  size_t *writers = hv_mem_array(&p->run->mem, n, sizeof *writers), right = 0;
  for (size_t i = 0; i < n; i++) {
    writers[i] = below(p->run, p->honest);
    key_of(p, i, writers[i], owned, key, value);
    dht_swarm_store(&p->s, writers[i], &p->tries[i], key, NULL, value, 600000);
    if (i % 20 == 19)
      dht_swarm_run(&p->s, 0.2);
  }
  dht_swarm_finish(&p->s, p->tries, n, 60);
  for (size_t i = 0; i < n; i++) {
    key_of(p, i, writers[i], owned, key, value);
    dht_swarm_get(&p->s, below(p->run, p->honest), &p->tries[i], key, 1);
    if (i % 20 == 19)
      dht_swarm_run(&p->s, 0.2);
  }
  if (!dht_swarm_finish(&p->s, p->tries, n, 60))
    swarm_fail(p->run, "a get does not end");
  for (size_t i = 0; i < n; i++) {
    key_of(p, i, writers[i], owned, key, value);
    right += p->tries[i].found && p->tries[i].value_size == strlen(value) && memcmp(p->tries[i].value, value, strlen(value)) == 0;
  }
  hv_mem_free(writers);
  return right;
}

static void liars_play(swarm_run *run, size_t replicas, int owned, double least) {
  size_t keys = run->options->nodes * 4 < 2000 ? run->options->nodes * 4 : 2000;
  size_t liars = run->options->nodes / 4; /* a fifth of all */
  plot *p = open_plot(run, liars, replicas, keys);
  p->s.lie = tell_lies;
  fill_plot(p, liars);
  dht_swarm_run(&p->s, 20);
  size_t right = store_and_get(p, keys, owned);
  swarm_figure(run, "keys", (double)keys);
  swarm_figure(run, "right", (double)right);
  if ((double)right < least * (double)keys)
    swarm_fail(run, "only %zu of %zu answers are right among %zu liars", right, keys, liars);
  close_plot(p);
}

void swarm_dht_liars_play(swarm_run *run) {
  liars_play(run, 5, 1, 0.99);
}

/* Without owners a lie is as good a record as any other: only many replicas outvote it. */
void swarm_dht_liars_unowned_play(swarm_run *run) {
  liars_play(run, 20, 0, 0.99);
}

/* ---- ground identities ---- */

static void ground_sha256(dht_swarm *swarm, hv_env *env, hv_span bytes, hv_hash *out) {
  plot *p = swarm->scenario;
  swarm->true_sha256(env, bytes, out);
  if (bytes.size != sizeof(hv_peer_id))
    return;
  for (size_t i = p->honest; i < p->honest + GROUND; i++) {
    hv_peer_id id = hv_sim_target(p->run->sim, i).id;
    if (memcmp(id.key, bytes.data, sizeof id.key) != 0)
      continue;
    int bits = (int)p->ground_bits;
    hv_hash place = p->victim;
    for (int bit = bits; bit < 256; bit++) { /* what they could not reach stays as it fell */
      uint8_t mask = (uint8_t)(0x80 >> bit % 8);
      place.bytes[bit / 8] = (uint8_t)((place.bytes[bit / 8] & ~mask) | (out->bytes[bit / 8] & mask));
    }
    *out = place;
    return;
  }
}

static void ground_play(swarm_run *run, double nearer_bits) {
  enum { GETS = 100 };
  char key[120], value[64];
  plot *p = open_plot(run, GROUND, 5, GETS);
  key_of(p, 0, 1, 1, key, value);
  p->s.lie = hide;
  p->s.sha256 = ground_sha256;
  p->ground_bits = floor(log2((double)p->honest / 5) + nearer_bits);
  /* The place of the key: as anyone computes it, by a node that is not in the swarm's way. */
  dht_swarm_add(&p->s, NULL, 0, 0);
  p->s.true_sha256(p->s.seats[0].env, hv_span_of(key, strlen(key)), &p->victim);
  for (size_t i = 1; i < p->honest + GROUND; i++) {
    size_t knows = below(run, i < p->honest ? i : p->honest);
    p->s.seats[i].is_liar = i >= p->honest;
    dht_swarm_add(&p->s, &knows, 1, 0);
  }
  for (size_t i = 0; i < p->s.n; i++) {
    hv_peer_id id = hv_sim_target(run->sim, i).id;
    ground_sha256(&p->s, p->s.seats[i].env, hv_span_of(id.key, sizeof id.key), &p->places[i]);
  }
  dht_swarm_run(&p->s, 30);
  dht_swarm_store(&p->s, 1, &p->tries[0], key, NULL, value, 3600000);
  dht_swarm_finish(&p->s, p->tries, 1, 60);
  size_t right = 0, keepers = dht_swarm_keepers(&p->s, key);
  for (size_t i = 0; i < GETS; i++)
    dht_swarm_get(&p->s, 2 + below(run, p->honest - 2), &p->tries[i], key, (int)(i % 2));
  if (!dht_swarm_finish(&p->s, p->tries, GETS, 60))
    swarm_fail(run, "a get does not end");
  for (size_t i = 0; i < GETS; i++)
    right += p->tries[i].found && p->tries[i].value_size == strlen(value) && memcmp(p->tries[i].value, value, strlen(value)) == 0;
  swarm_figure(run, "gets", GETS);
  swarm_figure(run, "right", (double)right);
  swarm_figure(run, "keepers", (double)keepers);
  if (right < GETS * 95 / 100)
    swarm_fail(run, "only %zu of %d gets are right around a key with %d ground identities", right, GETS, GROUND);
  close_plot(p);
}

/* As near as a year of grinding gets them, and only as near as the honest are: both must not do. */
void swarm_dht_ground_play(swarm_run *run) {
  ground_play(run, run->seed % 2 ? 40 : 0);
}

/* ---- forged, altered, replayed ---- */

enum { OWNERS = 8, VERSIONS = 4, BATCH = 50 };

typedef struct forger forger;

/* A call of its own each: what follows a forgery in the same call is not looked at. */
typedef struct forgery {
  forger *by;
  hv_call call;
  hv_record record;
  uint8_t may_pass; /* the living record itself, once more: that is no harm, and none of ours */
  char scratch[24];
} forgery;

struct forger {
  plot *p;
  hv_command command;
  hv_record said[OWNERS][VERSIONS]; /* as they were overheard */
  char keys[OWNERS][100], values[OWNERS][VERSIONS][16];
  forgery batch[BATCH];
  size_t under_way;
  uint64_t sent, accepted, answered, batches;
  int over;
};

static void send_batch(forger *f);

static void one_done(hv_call *call, const hv_event *event) {
  forgery *one = call->owner;
  forger *f = one->by;
  if (event->status == HV_OK && event->msg->kind == HV_MSG_STORED && event->msg->u.stored.n_verdicts == 1) {
    f->answered++;
    f->accepted += event->msg->u.stored.verdicts[0] == HV_OK && !one->may_pass;
  }
  if (--f->under_way)
    return;
  if (f->batches-- > 1)
    send_batch(f);
  else
    f->over = 1;
}

static void forge(forger *f, forgery *one) {
  check_rng *rng = &f->p->run->rng;
  size_t o = check_random(rng) % OWNERS, v = check_random(rng) % VERSIONS;
  hv_record r = f->said[o][v];
  hv_env *env = f->p->s.seats[f->p->honest].env;
  hv_hash place;
  one->may_pass = 0;
  switch (check_random(rng) % 7) {
  case 0: /* signed by somebody else */
    env->sha256(env, r.key, &place);
    r.version += 1000;
    hv_record_sign(env, &r.signer, &place, &r);
    r.signer = f->said[o][0].signer;
    break;
  case 1:
    r.version += 1 + check_random(rng) % 1000;
    break;
  case 2:
    r.value =
        hv_span_of(one->scratch, (size_t)snprintf(one->scratch, sizeof one->scratch, "forged %u", (unsigned)check_random(rng)));
    break;
  case 3: /* another's key */
    r.key = f->said[(o + 1) % OWNERS][0].key;
    break;
  case 4:
    r.signature[check_random(rng) % 64] ^= (uint8_t)(1 + check_random(rng) % 255);
    break;
  case 5:
    r.lease_ms += 1 + (uint32_t)(check_random(rng) % 1000);
    r.ttl_ms = r.lease_ms;
    break;
  default: /* as it is, again: an older version, or one that is said already */
    one->may_pass = v == VERSIONS - 1;
    break;
  }
  one->record = r;
}

static void send_batch(forger *f) {
  plot *p = f->p;
  hv_env *env = p->s.seats[p->honest].env;
  for (size_t i = 0; i < BATCH; i++) {
    forgery *one = &f->batch[i];
    one->by = f;
    forge(f, one);
    hv_msg msg = {.kind = HV_MSG_STORE, .u.store = {&one->record, 1, hv_span_of(NULL, 0)}};
    one->call =
        (hv_call){.done = one_done, .owner = one, .timeout_ms = 3000, .to = hv_sim_target(p->run->sim, below(p->run, p->honest))};
    f->sent++;
    f->under_way += env->call(env, &one->call, &msg) == HV_OK;
  }
  f->over = f->under_way == 0;
}

static void begin_forging(hv_command *command, void *core) {
  forger *f = (forger *)((char *)command - offsetof(forger, command));
  if (core)
    send_batch(f);
}

static int is_over(void *arg) {
  return ((forger *)arg)->over;
}

/* The owners say all their versions, one after the other, to every node; the forger hears it. */
static void overhear(forger *f) {
  plot *p = f->p;
  char who[HV_PEER_TEXT_MAX];
  for (size_t o = 0; o < OWNERS; o++) {
    hv_peer_id id = hv_sim_target(p->run->sim, o).id;
    hv_env *env = p->s.seats[o].env;
    hv_hash place;
    snprintf(f->keys[o], sizeof f->keys[o], "k%zu[owner:%s]", o, hv_peer_print(&id, who));
    hv_span key = hv_span_of(f->keys[o], strlen(f->keys[o]));
    env->sha256(env, key, &place);
    for (size_t v = 0; v < VERSIONS; v++) {
      size_t size = (size_t)snprintf(f->values[o][v], sizeof f->values[o][v], "o%zu v%zu", o, v);
      f->said[o][v] = (hv_record){.key = key, .value = hv_span_of(f->values[o][v], size), .version = v + 1};
      f->said[o][v].ttl_ms = f->said[o][v].lease_ms = 3600000;
      hv_record_sign(env, &id, &place, &f->said[o][v]);
      for (size_t n = 0; n < p->honest; n++)
        hv_store_put((hv_store *)hv_dht_kept(dht_swarm_dht(&p->s, n)), &f->said[o][v], &id, NULL);
    }
  }
}

/* Every living record of every honest node is the last word of its owner. */
static size_t count_wrong(forger *f) {
  plot *p = f->p;
  size_t wrong = 0;
  for (size_t n = 0; n < p->honest; n++)
    for (size_t o = 0; o < OWNERS; o++) {
      hv_hash place;
      hv_record r;
      p->s.seats[n].env->sha256(p->s.seats[n].env, f->said[o][0].key, &place);
      const hv_store *kept = hv_dht_kept(dht_swarm_dht(&p->s, n));
      for (const hv_store_item *item = hv_store_first(kept, &place); item; item = item->next)
        wrong += hv_store_show(kept, item, &r) && !hv_span_equal(r.value, f->said[o][VERSIONS - 1].value);
    }
  return wrong;
}

void swarm_dht_forged_play(swarm_run *run) {
  plot *p = open_plot(run, 1, 5, 1);
  forger *f = hv_mem_zalloc(&run->mem, sizeof *f);
  fill_plot(p, 1);
  dht_swarm_run(&p->s, 5);
  f->p = p;
  f->batches = (uint64_t)(run->options->minutes * 1000000 / BATCH); /* a million for a minute */
  f->command.run = begin_forging;
  overhear(f);
  hv_sim_command(run->sim, p->honest, &f->command);
  hv_sim_drive(run->sim, is_over, f, UINT64_C(3000000000));
  size_t wrong = count_wrong(f);
  swarm_figure(run, "sent", (double)f->sent);
  swarm_figure(run, "answered", (double)f->answered);
  swarm_figure(run, "accepted", (double)f->accepted);
  swarm_figure(run, "wrong_in_store", (double)wrong);
  if (f->accepted || wrong || f->answered < f->sent)
    swarm_fail(run, "%llu of %llu forgeries were accepted, %zu stand in stores", (unsigned long long)f->accepted,
               (unsigned long long)f->sent, wrong);
  close_plot(p);
  hv_mem_free(f);
}
