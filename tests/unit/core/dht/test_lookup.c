/* Lookups over disjoint paths: who is asked, who told of whom, and how far a liar leads. The test answers the calls. */
#include "lib/fake_env.h"

#include "core/dht/lookup.h"

#include <string.h>

enum { CALLS = 256, TOLD_MAX = 20, WIDTH = 4 };

/* Nodes stand where their key says; what is looked for is at 0, so the first byte is how far they are. */
enum { NEAREST_LIARS = 1, NEAREST = 2, ON_THE_WAY = 0x20, LIAR = 0x40, HONEST = 0x50, THIRD = 0x60, FOURTH = 0x70 };

typedef struct world {
  fake_env fake;
  hv_route route;
  hv_asker asker;
  hv_call *calls[CALLS]; /* under way; NULL: answered */
  size_t n_calls;
  size_t asked[256]; /* how many of those that stand so far away */
  size_t open, most; /* calls under way now, and at most */
  hv_lookup *lookup;
  int done;
  int silent; /* nodes so far away do not answer yet; 0: all do */
} world;

static hv_peer_id node(uint8_t far, uint8_t number) {
  return (hv_peer_id){.key = {far, number, 7}};
}

static void place(hv_env *env, hv_span bytes, hv_hash *out) {
  (void)env;
  assert_int_equal(bytes.size, sizeof out->bytes);
  memcpy(out->bytes, bytes.data, sizeof out->bytes);
}

static hv_status take_call(hv_env *env, hv_call *call, const hv_msg *msg) {
  world *w = env->world;
  assert_int_equal(msg->kind, HV_MSG_FIND);
  assert_true(w->n_calls < CALLS);
  w->calls[w->n_calls++] = call;
  w->asked[call->to.id.key[0]]++;
  w->most = ++w->open > w->most ? w->open : w->most;
  return HV_OK;
}

static void take_cancel(hv_env *env, hv_call *call) {
  (void)env, (void)call;
}

static void no_timer(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  (void)env, (void)timer, (void)delay_us;
}

static void clear_timer(hv_env *env, hv_timer *timer) {
  (void)env, (void)timer;
}

static void open_world(world *w) {
  memset(w, 0, sizeof *w);
  fake_env_init(&w->fake, 1);
  w->fake.me = node(0xff, 0);
  hv_env *env = &w->fake.env;
  env->world = w;
  env->sha256 = place;
  env->call = take_call;
  env->call_cancel = take_cancel;
  env->timer_set = no_timer;
  env->timer_clear = clear_timer;
  hv_route_init(&w->route, env, &(hv_route_config){.me = w->fake.me});
  hv_asker_init(&w->asker, env, &w->route, 3000);
}

static void close_world(world *w) {
  hv_lookup_end(w->lookup);
  hv_asker_fini(&w->asker);
  hv_route_fini(&w->route);
  assert_int_equal(w->fake.mem.blocks, 0);
}

static hv_addr addr_of(const hv_peer_id *id) {
  return (hv_addr){.kind = HV_ADDR_IP4, .port = 4000, .host.ip = {id->key[0], id->key[1], 0, 1}};
}

static void knows(world *w, uint8_t far) {
  hv_peer_id id = node(far, 0);
  hv_addr addr = addr_of(&id);
  assert_true(hv_route_answered(&w->route, &id, &addr, 1, 20000));
}

/* Of whom a node tells: the liar of its like at the very target, an honest one of those on the way, those of the nearest. */
static size_t told_by(const hv_peer_id *id, hv_peer_id out[TOLD_MAX]) {
  switch (id->key[0]) {
  case LIAR:
    for (uint8_t i = 0; i < TOLD_MAX; i++)
      out[i] = node(NEAREST_LIARS, i);
    return TOLD_MAX;
  case HONEST:
    for (uint8_t i = 0; i < WIDTH; i++)
      out[i] = node(ON_THE_WAY, i);
    return WIDTH;
  case ON_THE_WAY:
    for (uint8_t i = 0; i < WIDTH; i++)
      out[i] = node(NEAREST, i);
    return WIDTH;
  default:
    return 0;
  }
}

/* Each that is told of with its address so many times. */
static void answer_with(world *w, hv_call *call, const hv_peer_id *told, size_t n, size_t times) {
  hv_contact contacts[TOLD_MAX];
  uint8_t addrs[TOLD_MAX][2 * HV_CONTACT_ADDRS_MAX];
  hv_msg msg = {.kind = HV_MSG_FOUND, .u.found = {.contacts = contacts, .n_contacts = n}};
  for (size_t i = 0; i < n; i++) {
    hv_addr addr = addr_of(&told[i]);
    size_t size = hv_contact_pack(&addr, 1, addrs[i]);
    assert_true(size * times <= sizeof addrs[i]);
    for (size_t t = 1; t < times; t++)
      memcpy(addrs[i] + t * size, addrs[i], size);
    contacts[i] = (hv_contact){.id = told[i], .addrs = hv_span_of(addrs[i], size * times)};
  }
  hv_event event = {
      .kind = HV_EVENT_CALL_DONE, .now_us = w->fake.now_us, .status = HV_OK, .msg = &msg, .peer = call->to.id, .text = ""};
  call->done(call, &event);
}

static void answer(world *w, hv_call *call) {
  hv_peer_id told[TOLD_MAX];
  answer_with(w, call, told, told_by(&call->to.id, told), 1);
}

/* Answers all but the silent, until nobody is asked any more. */
static void let_answer(world *w) {
  for (size_t i = 0; i < w->n_calls; i++) {
    hv_call *call = w->calls[i];
    if (!call || (w->silent && call->to.id.key[0] == w->silent))
      continue;
    w->calls[i] = NULL;
    w->open--;
    answer(w, call);
    i = (size_t)-1; /* from the front: an earlier one may be allowed now */
  }
}

static void looked(void *owner, hv_lookup *lookup) {
  world *w = owner;
  assert_ptr_equal(lookup, w->lookup);
  w->done++;
}

static void look_with(world *w, size_t paths, size_t parallel) {
  hv_lookup_config config = {.width = WIDTH, .parallel = parallel, .paths = paths, .done = looked, .owner = w};
  assert_int_equal(hv_lookup_start(&w->asker, &config, &w->lookup), HV_OK);
}

static void look(world *w, size_t paths) {
  look_with(w, paths, 4);
}

/* One lookup by who knows the first so many of the liar, the honest one, and two more. */
static void open_and_look(world *w, size_t known, size_t paths) {
  static const uint8_t first[] = {LIAR, HONEST, THIRD, FOURTH};
  open_world(w);
  for (size_t i = 0; i < known; i++)
    knows(w, first[i]);
  look(w, paths);
}

static const hv_lookup_node *find(const world *w, uint8_t far, uint8_t number) {
  hv_peer_id id = node(far, number);
  for (size_t i = 0; i < w->lookup->n; i++)
    if (hv_peer_equal(&w->lookup->nodes[i].id, &id))
      return &w->lookup->nodes[i];
  return NULL;
}

/* A node that an answer names is on the path of the node that named it. */
static void first_contacts_are_spread_over_all_paths(void **unused) {
  (void)unused;
  world w;
  open_and_look(&w, 4, 2);
  assert_int_equal(find(&w, LIAR, 0)->path, 0);
  assert_int_equal(find(&w, HONEST, 0)->path, 1);
  assert_int_equal(find(&w, THIRD, 0)->path, 0);
  assert_int_equal(find(&w, FOURTH, 0)->path, 1);
  let_answer(&w);
  for (size_t i = 0; i < w.lookup->n; i++) {
    const hv_lookup_node *one = &w.lookup->nodes[i];
    assert_true(one->guide < 0 || one->path == w.lookup->nodes[one->guide].path);
  }
  assert_int_equal(find(&w, NEAREST_LIARS, 0)->path, 0);
  assert_int_equal(find(&w, NEAREST, 0)->path, 1);
  assert_int_equal(w.done, 1);
  close_world(&w);
}

/* How many of the nearest honest nodes are asked, where a liar tells of its like, who stand nearer. */
static size_t honest_asked(size_t paths) {
  world w;
  open_and_look(&w, 2, paths);
  let_answer(&w);
  assert_int_equal(w.done, 1);
  assert_true(w.asked[NEAREST_LIARS] >= WIDTH); /* it is believed on its path */
  size_t asked = w.asked[NEAREST];
  close_world(&w);
  return asked;
}

static void liar_misleads_its_own_path_and_no_other(void **unused) {
  (void)unused;
  assert_int_equal(honest_asked(1), 0); /* a single path ends among its like */
  assert_true(honest_asked(2) >= WIDTH / 2);
}

static void path_of_silent_nodes_does_not_delay_the_others(void **unused) {
  (void)unused;
  world w;
  open_and_look(&w, 2, 2);
  w.silent = NEAREST_LIARS;
  let_answer(&w);
  assert_true(w.asked[NEAREST] >= WIDTH / 2); /* the other came to its end */
  assert_false(w.lookup->joined);
  assert_int_equal(w.done, 0);
  w.silent = 0;
  let_answer(&w);
  assert_true(w.lookup->joined);
  assert_int_equal(w.done, 1);
  for (size_t i = 0; i < WIDTH; i++)
    assert_int_equal(hv_lookup_nearest(w.lookup, i)->id.key[0], NEAREST_LIARS); /* joined, they are the nearest of all */
  close_world(&w);
}

static void lookup_asks_no_node_twice(void **unused) {
  (void)unused;
  world w;
  open_and_look(&w, 3, 2);
  let_answer(&w);
  for (size_t i = 0; i < w.lookup->n; i++)
    for (size_t j = 0; j < i; j++)
      assert_false(hv_peer_equal(&w.lookup->nodes[i].id, &w.lookup->nodes[j].id));
  assert_int_equal(w.n_calls, w.lookup->calls);
  assert_true(w.lookup->calls <= w.lookup->n);
  close_world(&w);
}

static void no_more_are_asked_at_once_than_may_be(void **unused) {
  (void)unused;
  for (size_t paths = 1; paths <= 2; paths++)
    for (size_t parallel = paths; parallel <= WIDTH; parallel += paths) {
      world w;
      open_world(&w);
      for (uint8_t i = 0; i < 12; i++)
        knows(&w, (uint8_t)(THIRD + i));
      look_with(&w, paths, parallel);
      assert_int_equal(w.most, parallel);
      let_answer(&w);
      assert_true(w.most <= parallel);
      assert_int_equal(w.done, 1);
      close_world(&w);
    }
}

/* The first call that nobody has answered: by 20 so far away, each with its address so many times. */
static void tell_of_20(world *w, uint8_t far, size_t times) {
  hv_peer_id told[TOLD_MAX];
  size_t i = 0;
  for (uint8_t t = 0; t < TOLD_MAX; t++)
    told[t] = node(far, t);
  while (!w->calls[i])
    i++;
  hv_call *call = w->calls[i];
  w->calls[i] = NULL;
  w->open--;
  answer_with(w, call, told, TOLD_MAX, times);
}

static void contact_too_large_to_keep_displaces_no_other(void **unused) {
  (void)unused;
  world w;
  uint8_t far = 0x80;
  open_world(&w);
  knows(&w, HONEST);
  knows(&w, LIAR);
  hv_lookup_config config = {.width = HV_LOOKUP_ROOM, .parallel = 4, .paths = 1, .done = looked, .owner = &w};
  assert_int_equal(hv_lookup_start(&w.asker, &config, &w.lookup), HV_OK);
  while (w.lookup->n < HV_LOOKUP_ROOM)
    tell_of_20(&w, far--, 1);
  hv_lookup before = *w.lookup;
  tell_of_20(&w, NEAREST, HV_CONTACT_ADDRS_MAX / 8 + 1); /* more than a contact has room for */
  assert_int_equal(w.lookup->n, HV_LOOKUP_ROOM);
  assert_memory_equal(w.lookup->order, before.order, sizeof before.order);
  assert_null(find(&w, NEAREST, 0));
  tell_of_20(&w, NEAREST, 1);
  assert_int_equal(w.lookup->n, HV_LOOKUP_ROOM);
  assert_non_null(find(&w, NEAREST, 0));
  close_world(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(first_contacts_are_spread_over_all_paths),
      cmocka_unit_test(liar_misleads_its_own_path_and_no_other),
      cmocka_unit_test(path_of_silent_nodes_does_not_delay_the_others),
      cmocka_unit_test(lookup_asks_no_node_twice),
      cmocka_unit_test(no_more_are_asked_at_once_than_may_be),
      cmocka_unit_test(contact_too_large_to_keep_displaces_no_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
