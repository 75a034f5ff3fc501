/* A DHT node's reaction to one peer's messages, and the most work that they may make. The test answers the calls. */
#include "lib/fake_env.h"

#include "core/dht/dht.h"

#include <stdio.h>
#include <string.h>

enum { MANY = 100, GOOD = 3, PAUSE_US = 5000, CHECKS_MAX = 32, CROWD = 12, FULL = HV_RECORDS_MAX };

typedef struct world {
  fake_env fake;
  hv_dht *dht;
  hv_timer *due;         /* the last that was set to fire at once */
  hv_timer *pause;       /* set to fire after PAUSE_US */
  hv_peer_id friend;     /* the peer that is trusted */
  hv_call *find, *store; /* under way */
  hv_status verdicts[FULL], ended;
  const hv_request *answered; /* the last one */
  hv_status refused;          /* the status of the last refusal */
  size_t n_busy;              /* refused with HV_BUSY */
  size_t n_answered;
  size_t n_verdicts;
  int done;
} world;

static hv_status take_call(hv_env *env, hv_call *call, const hv_msg *msg) {
  world *w = env->world;
  hv_call **at = msg->kind == HV_MSG_STORE ? &w->store : &w->find;
  assert_null(*at);
  *at = call;
  return HV_OK;
}

static void take_cancel(hv_env *env, hv_call *call) {
  (void)env, (void)call;
}

static void take_reply(hv_env *env, hv_request *request, const hv_msg *answer) {
  world *w = env->world;
  w->answered = request;
  w->n_answered++;
  w->refused = answer->kind == HV_MSG_REFUSAL ? answer->u.refusal.status : HV_OK;
  w->n_busy += w->refused == HV_BUSY;
  if (answer->kind == HV_MSG_REFUSAL)
    return;
  assert_int_equal(answer->kind, HV_MSG_STORED);
  w->n_verdicts = answer->u.stored.n_verdicts;
  memcpy(w->verdicts, answer->u.stored.verdicts, w->n_verdicts * sizeof *w->verdicts);
}

static void set_timer(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  world *w = env->world;
  w->due = delay_us ? w->due : timer;
  w->pause = delay_us == PAUSE_US ? timer : w->pause;
}

static void clear_timer(hv_env *env, hv_timer *timer) {
  (void)env, (void)timer;
}

static hv_tier tier_of(void *tier_arg, const hv_peer_id *peer) {
  return hv_peer_equal(&((world *)tier_arg)->friend, peer) ? HV_TIER_TRUSTED : HV_TIER_MET;
}

static void open_world(world *w, const hv_dht_config *config) {
  memset(w, 0, sizeof *w);
  fake_env_init(&w->fake, 1);
  hv_env *env = &w->fake.env;
  hv_dht_config with = *config;
  env->world = w;
  env->call = take_call;
  env->call_cancel = take_cancel;
  env->reply = take_reply;
  env->timer_set = set_timer;
  env->timer_clear = clear_timer;
  env->tier = tier_of;
  env->tier_arg = w;
  with.me = w->fake.me;
  assert_int_equal(hv_dht_new(env, &with, &w->dht), HV_OK);
  hv_dht_start(w->dht, NULL, 0);
}

static void close_world(world *w) {
  hv_dht_stop(w->dht);
  hv_dht_free(w->dht);
  assert_int_equal(w->fake.mem.blocks, 0);
}

/* Lets the next pause pass. No step looks at more signatures than it may. False: nothing waits. */
static int pass(world *w) {
  hv_timer *timer = w->pause;
  size_t before = w->fake.verified;
  if (!timer)
    return 0;
  w->pause = NULL;
  w->fake.now_us += PAUSE_US;
  timer->fire(timer, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = w->fake.now_us});
  assert_in_range(w->fake.verified - before, 0, CHECKS_MAX);
  return 1;
}

static void answer(hv_call **at, const hv_msg *msg) {
  hv_call *call = *at;
  hv_event event = {.kind = HV_EVENT_CALL_DONE, .status = HV_OK, .msg = msg, .peer = call->to.id, .text = ""};
  *at = NULL;
  call->done(call, &event);
}

static hv_record signed_by(world *w, const hv_peer_id *owner, hv_span key, hv_span subkey, uint64_t version) {
  hv_hash place;
  hv_record record = {.key = key, .subkey = subkey, .has_subkey = subkey.size > 0, .value = hv_span_of("v", 1), .ttl_ms = 60000};
  hv_peer_id me = w->fake.me;
  record.version = version;
  record.lease_ms = 60000;
  w->fake.env.sha256(&w->fake.env, key, &place);
  w->fake.me = *owner;
  assert_int_equal(hv_record_sign(&w->fake.env, owner, &place, &record), HV_OK);
  w->fake.me = me;
  return record;
}

static void store_is_checked_up_to_its_first_forgery(void **unused) {
  (void)unused;
  world w;
  static char subkeys[MANY][24];
  char key[100], who[HV_PEER_TEXT_MAX];
  hv_peer_id owner = fake_peer(50);
  hv_record many[MANY];
  hv_request request = {.peer = fake_peer(7)};
  hv_msg msg = {.kind = HV_MSG_STORE, .u.store = {many, MANY, hv_span_of(NULL, 0)}};
  hv_event event = {.kind = HV_EVENT_REQUEST, .request = &request, .msg = &msg};
  open_world(&w, &(hv_dht_config){0});
  snprintf(key, sizeof key, "k[owner:%s]", hv_peer_print(&owner, who));
  for (int i = 0; i < MANY; i++) {
    snprintf(subkeys[i], sizeof subkeys[i], "s%d", i);
    many[i] = signed_by(&w, &owner, hv_span_of(key, strlen(key)), hv_span_of(subkeys[i], strlen(subkeys[i])), 1);
    many[i].signature[0] ^= i >= GOOD;
  }
  hv_dht_asked(w.dht, &event);
  while (pass(&w))
    ;
  assert_int_equal(w.fake.verified, GOOD + 1);
  assert_int_equal(w.n_verdicts, MANY);
  for (int i = 0; i < MANY; i++)
    assert_int_equal(w.verdicts[i], i < GOOD ? HV_OK : HV_CORRUPT);
  assert_int_equal(hv_store_count(hv_dht_kept(w.dht)), GOOD);
  close_world(&w);
}

/* The records of one message, each with a signature of its own. */
typedef struct bundle {
  hv_record records[FULL];
  char subkeys[FULL][24], key[100];
  hv_request request;
  hv_msg msg;
} bundle;

static bundle *make_bundle(world *w, uint64_t owner, const hv_peer_id *bringer, size_t n) {
  bundle *b = hv_mem_zalloc(&w->fake.mem, sizeof *b);
  char who[HV_PEER_TEXT_MAX];
  hv_peer_id id = fake_peer(owner);
  assert_non_null(b);
  snprintf(b->key, sizeof b->key, "k[owner:%s]", hv_peer_print(&id, who));
  for (size_t i = 0; i < n; i++) {
    snprintf(b->subkeys[i], sizeof b->subkeys[i], "s%zu", i);
    b->records[i] = signed_by(w, &id, hv_span_of(b->key, strlen(b->key)), hv_span_of(b->subkeys[i], strlen(b->subkeys[i])), 1);
  }
  b->request.peer = *bringer;
  b->msg = (hv_msg){.kind = HV_MSG_STORE, .u.store = {b->records, n, hv_span_of(NULL, 0)}};
  return b;
}

static void ask(world *w, bundle *b) {
  hv_dht_asked(w->dht, &(hv_event){.kind = HV_EVENT_REQUEST, .request = &b->request, .msg = &b->msg});
}

static void a_store_of_2048_signatures_takes_short_steps(void **unused) {
  (void)unused;
  static world w;
  hv_peer_id stranger = fake_peer(7);
  open_world(&w, &(hv_dht_config){0});
  bundle *b = make_bundle(&w, 50, &stranger, FULL);
  ask(&w, b);
  assert_int_equal(w.fake.verified + w.n_answered, 0);
  memset(b->records, 0, sizeof b->records); /* the message was borrowed */
  memset(b->subkeys, 0, sizeof b->subkeys);
  unsigned steps = 0;
  while (pass(&w))
    steps++;
  assert_in_range(steps, FULL / CHECKS_MAX, 2 * FULL / CHECKS_MAX);
  assert_int_equal(w.fake.verified, FULL);
  assert_int_equal(w.n_verdicts, FULL);
  for (int i = 0; i < FULL; i++)
    assert_int_equal(w.verdicts[i], HV_OK);
  assert_int_equal(hv_store_count(hv_dht_kept(w.dht)), FULL);
  hv_mem_free(b);
  close_world(&w);
}

/* The crowd asks for more checks than may wait; most of it is refused, and the networks keep as much as each other. A small message
 * of another stranger has its turn soon, and a known peer's is done at once. */
static void strangers_leave_signature_checks_to_known_peers(void **unused) {
  (void)unused;
  static world w;
  bundle *crowd[CROWD];
  open_world(&w, &(hv_dht_config){0});
  w.friend = fake_peer(1000);
  for (uint64_t i = 0; i < CROWD; i++) {
    hv_peer_id one = fake_peer(100 + i);
    crowd[i] = make_bundle(&w, 50 + i, &one, FULL);
    crowd[i]->request.from = (hv_addr){.kind = HV_ADDR_IP4, .port = 9, .host.ip = {198, 51, (uint8_t)(i / 6), 1}};
    ask(&w, crowd[i]);
  }
  assert_int_equal(w.n_busy, CROWD - 3);
  hv_peer_id other = fake_peer(999);
  bundle *small = make_bundle(&w, 80, &other, 1), *known = make_bundle(&w, 81, &w.friend, 8);
  pass(&w);
  ask(&w, known);
  assert_ptr_equal(w.answered, &known->request);
  assert_int_equal(w.n_verdicts, 8);
  ask(&w, small);
  assert_int_equal(w.n_busy, CROWD - 3);
  for (int steps = 0; w.answered != &small->request; steps++)
    assert_true(pass(&w) && steps < CROWD);
  assert_int_equal(w.refused, HV_OK);
  hv_dht_stop(w.dht); /* those that still wait are refused */
  assert_int_equal(w.n_answered, CROWD + 2);
  assert_int_equal(w.refused, HV_UNSUPPORTED);
  for (int i = 0; i < CROWD; i++)
    hv_mem_free(crowd[i]);
  hv_mem_free(small);
  hv_mem_free(known);
  close_world(&w);
}

static void op_done(hv_dht_op *op, hv_status status, const char *text) {
  world *w = op->owner;
  (void)text;
  w->done++;
  w->ended = status;
}

/* A node that is asked to store may name a newer word of the owner, which the owner checks; a liar names many. */
static void only_one_of_several_newer_versions_is_checked(void **unused) {
  (void)unused;
  world w;
  char key[100], who[HV_PEER_TEXT_MAX];
  hv_peer_id other = fake_peer(7);
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = 4000, .host.ip = {10, 0, 0, 1}};
  hv_record newer[MANY];
  hv_status exists = HV_EXISTS;
  open_world(&w, &(hv_dht_config){.client_mode = 1});
  hv_dht_met(w.dht, &other, &addr, 1, 20000);
  snprintf(key, sizeof key, "k[owner:%s]", hv_peer_print(&w.fake.me, who));
  hv_dht_item item = {.value = hv_span_of("v", 1), .ttl_ms = 60000};
  hv_dht_op op = {.done = op_done, .owner = &w, .key = hv_span_of(key, strlen(key)), .items = &item, .n_items = 1};
  assert_int_equal(hv_dht_store(w.dht, &op, NULL), HV_OK);
  w.due->fire(w.due, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = w.fake.now_us});
  hv_msg nobody = {.kind = HV_MSG_FOUND};
  while (w.find)
    answer(&w.find, &nobody);
  assert_non_null(w.store);
  for (int i = 0; i < MANY; i++) {
    newer[i] = signed_by(&w, &w.fake.me, op.key, hv_span_of(NULL, 0), UINT64_MAX - MANY + (uint64_t)i);
    newer[i].signature[0] ^= 1;
  }
  hv_msg msg = {.kind = HV_MSG_STORED, .u.stored = {&exists, 1, newer, MANY}};
  answer(&w.store, &msg);
  assert_int_equal(w.fake.verified, 1);
  assert_int_equal(w.done, 1);
  assert_int_equal(w.ended, HV_EXISTS);
  close_world(&w);
}

/* A get of a bundle's key, whose only node gives all of the bundle. */
static void get_bundle(world *w, hv_dht_op *op, const bundle *b) {
  hv_peer_id other = fake_peer(7);
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = 4000, .host.ip = {10, 0, 0, 1}};
  hv_msg found = {.kind = HV_MSG_FOUND, .u.found = {.records = b->records, .n_records = b->msg.u.store.n_records}};
  hv_dht_met(w->dht, &other, &addr, 1, 20000);
  *op = (hv_dht_op){.done = op_done, .owner = w, .key = hv_span_of(b->key, strlen(b->key))};
  w->done = 0;
  assert_int_equal(hv_dht_get(w->dht, op, NULL), HV_OK);
  w->due->fire(w->due, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = w->fake.now_us});
  assert_non_null(w->find);
  size_t before = w->fake.verified;
  answer(&w->find, &found);
  hv_msg nothing = {.kind = HV_MSG_FOUND};
  while (w->find)
    answer(&w->find, &nothing);
  assert_in_range(w->fake.verified - before, 1, CHECKS_MAX);
  assert_int_equal(w->done, 0);
}

/* The lookup is over long before its answer has been checked. Nothing is checked twice, also not for the cache. */
static void found_2048_signatures_are_checked_in_short_steps(void **unused) {
  (void)unused;
  static world w;
  hv_dht_op op;
  hv_peer_id me = fake_peer(7);
  open_world(&w, &(hv_dht_config){.client_mode = 1});
  bundle *b = make_bundle(&w, 50, &me, FULL);
  get_bundle(&w, &op, b);
  memset(b->records, 0, sizeof b->records); /* the message was borrowed */
  memset(b->subkeys, 0, sizeof b->subkeys);
  unsigned steps = 0;
  for (; !w.done; steps++)
    assert_true(pass(&w));
  assert_in_range(steps, FULL / CHECKS_MAX, 2 * FULL / CHECKS_MAX);
  assert_int_equal(w.ended, HV_OK);
  assert_int_equal(w.fake.verified, FULL);
  hv_mem_free(b);
  close_world(&w);
}

static void found_records_after_a_forgery_are_not_checked(void **unused) {
  (void)unused;
  static world w;
  hv_dht_op op;
  hv_peer_id me = fake_peer(7);
  open_world(&w, &(hv_dht_config){.client_mode = 1});
  bundle *b = make_bundle(&w, 50, &me, MANY);
  b->records[MANY / 2].signature[0] ^= 1;
  get_bundle(&w, &op, b);
  while (!w.done)
    assert_true(pass(&w));
  assert_int_equal(w.ended, HV_OK);
  assert_int_equal(w.fake.verified, MANY / 2 + 1);
  hv_mem_free(b);
  close_world(&w);
}

/* By the program, or by the end of the node. */
static void get_that_ends_drops_its_unchecked_answers(void **unused) {
  (void)unused;
  for (int stops = 0; stops < 2; stops++) {
    static world w;
    hv_dht_op op;
    hv_peer_id me = fake_peer(7);
    open_world(&w, &(hv_dht_config){.client_mode = 1});
    bundle *b = make_bundle(&w, 50, &me, MANY);
    get_bundle(&w, &op, b);
    if (stops)
      hv_dht_stop(w.dht);
    else
      hv_dht_cancel(w.dht, &op);
    assert_int_equal(w.done, 1);
    size_t before = w.fake.verified;
    pass(&w);
    assert_int_equal(w.fake.verified, before);
    hv_mem_free(b);
    close_world(&w);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(store_is_checked_up_to_its_first_forgery),
      cmocka_unit_test(a_store_of_2048_signatures_takes_short_steps),
      cmocka_unit_test(strangers_leave_signature_checks_to_known_peers),
      cmocka_unit_test(only_one_of_several_newer_versions_is_checked),
      cmocka_unit_test(found_2048_signatures_are_checked_in_short_steps),
      cmocka_unit_test(found_records_after_a_forgery_are_not_checked),
      cmocka_unit_test(get_that_ends_drops_its_unchecked_answers),
  };
  return cmocka_run_group_tests_name("dht", tests, NULL, NULL);
}
