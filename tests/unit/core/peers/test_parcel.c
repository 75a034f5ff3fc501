/* How much room parcels that nobody takes may have: by peer, by network of strangers, and in all. */
#include "lib/fake_env.h"

#include "core/peers/parcel.h"

#include <string.h>

enum { STREAMS = 64 };
#define MIB ((size_t)1 << 20)

typedef struct world {
  fake_env fake;
  hv_parcels parcels;
  hv_peer_id friend; /* the peer that is trusted */
  hv_stream streams[STREAMS];
  size_t n;
} world;

static void set_timer(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  (void)env, (void)timer, (void)delay_us;
}

static void clear_timer(hv_env *env, hv_timer *timer) {
  (void)env, (void)timer;
}

static hv_tier tier_of(void *arg, const hv_peer_id *peer) {
  return hv_peer_equal(&((world *)arg)->friend, peer) ? HV_TIER_TRUSTED : HV_TIER_MET;
}

static void open_world(world *w) {
  memset(w, 0, sizeof *w);
  fake_env_init(&w->fake, 1);
  w->fake.env.timer_set = set_timer;
  w->fake.env.timer_clear = clear_timer;
  w->friend = fake_peer(1000);
  hv_parcels_init(&w->parcels, &w->fake.env, 16 * MIB, 32 * MIB, 16 * MIB, NULL, w);
  w->parcels.tier = tier_of;
}

static void close_world(world *w) {
  hv_parcels_fini(&w->parcels);
  assert_int_equal(w->fake.mem.blocks, 0);
}

/* True if a parcel of this peer from that network is taken in. */
static int sends(world *w, hv_peer_id peer, uint64_t network, size_t size) {
  hv_stream *stream = &w->streams[w->n++];
  hv_msg msg = {.kind = HV_MSG_PARCEL, .u.parcel = {.size = size}};
  assert_true(w->n <= STREAMS);
  *stream = (hv_stream){.peer = peer, .network = network};
  hv_parcels_opened(&w->parcels, &(hv_event){.kind = HV_EVENT_STREAM_OPENED, .stream = stream, .msg = &msg});
  return stream->on != NULL;
}

/* Each of its peers is another one: keys cost nothing. */
static void strangers_of_one_network_have_half_of_theirs(void **unused) {
  (void)unused;
  world w;
  uint64_t key = 1;
  size_t taken = 0;
  open_world(&w);
  while (sends(&w, fake_peer(key++), 7, MIB))
    taken++;
  assert_int_equal(taken, 7); /* and what each costs beside its bytes */
  for (uint64_t network = 8; network <= 9; network++)
    assert_true(sends(&w, fake_peer(key++), network, MIB));
  assert_false(sends(&w, fake_peer(key++), 7, MIB));
  close_world(&w);
}

static void all_strangers_leave_the_rest_to_trusted_peers(void **unused) {
  (void)unused;
  world w;
  uint64_t key = 1;
  size_t taken = 0;
  open_world(&w);
  while (sends(&w, fake_peer(key), key, MIB))
    key++, taken++;
  assert_int_equal(taken, 15);
  assert_true(sends(&w, w.friend, 7, 12 * MIB));
  close_world(&w);
}

/* Private networks are not told apart, so each of their peers counts for itself. */
static void private_strangers_and_friends_share_no_network(void **unused) {
  (void)unused;
  world w;
  open_world(&w);
  for (uint64_t key = 1; key <= 12; key++)
    assert_true(sends(&w, fake_peer(key), 0, MIB));
  assert_true(sends(&w, w.friend, 7, 10 * MIB));
  assert_true(sends(&w, fake_peer(50), 7, MIB)); /* the trusted peer does not count for its network */
  close_world(&w);
}

static void network_that_holds_nothing_may_send_a_large_one(void **unused) {
  (void)unused;
  world w;
  open_world(&w);
  assert_true(sends(&w, fake_peer(1), 7, 12 * MIB));
  assert_false(sends(&w, fake_peer(2), 7, 1));
  assert_false(sends(&w, fake_peer(3), 8, 17 * MIB)); /* larger than any may be */
  assert_true(sends(&w, fake_peer(4), 8, 1));
  close_world(&w);
}

static void strangers_have_less_than_a_trusted_peer(void **unused) {
  (void)unused;
  world w;
  open_world(&w);
  w.parcels.strange_max = 4 * MIB;
  assert_false(sends(&w, fake_peer(1), 0, 4 * MIB)); /* and what it costs beside its bytes */
  assert_true(sends(&w, fake_peer(1), 0, 3 * MIB));
  assert_false(sends(&w, fake_peer(2), 0, MIB));
  assert_true(sends(&w, w.friend, 0, 15 * MIB));
  close_world(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(strangers_of_one_network_have_half_of_theirs),
      cmocka_unit_test(all_strangers_leave_the_rest_to_trusted_peers),
      cmocka_unit_test(private_strangers_and_friends_share_no_network),
      cmocka_unit_test(network_that_holds_nothing_may_send_a_large_one),
      cmocka_unit_test(strangers_have_less_than_a_trusted_peer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
