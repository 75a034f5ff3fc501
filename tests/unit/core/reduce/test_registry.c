/* Where streams wait whose round has not begun here: nobody takes all the places, or more memory than its window counts. */
#include "lib/fake_env.h"

#include "core/reduce/allreduce.h"

#include <string.h>

enum { STREAMS = 2 * HV_ALLREDUCE_REGISTRY_ROOM };

typedef struct place {
  fake_env fake; /* first */
  hv_allreduce_registry registry;
  hv_stream streams[STREAMS];
  size_t n, cancelled;
  hv_stream *ended; /* the last one that was cancelled */
  int sweeps;       /* the timer is set */
} place;

static void timer_set(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  (void)timer, (void)delay_us;
  ((place *)env)->sweeps = 1;
}

static void timer_clear(hv_env *env, hv_timer *timer) {
  (void)timer;
  ((place *)env)->sweeps = 0;
}

static void stream_cancel(hv_env *env, hv_stream *stream) {
  ((place *)env)->cancelled++;
  ((place *)env)->ended = stream;
}

static hv_tier trusts_the_first_thousand(void *arg, const hv_peer_id *peer) {
  (void)arg;
  for (uint64_t i = 0; i < 1000; i++) {
    hv_peer_id friend = fake_peer(i);
    if (hv_peer_equal(peer, &friend))
      return HV_TIER_TRUSTED;
  }
  return HV_TIER_MET;
}

static void open_on(place *p, hv_mem *mem) {
  memset(p, 0, sizeof *p);
  fake_env_init_on(&p->fake, 1, mem ? mem : &p->fake.mem);
  if (!mem)
    hv_mem_init(&p->fake.mem, NULL, HV_MEM_UNLIMITED);
  p->fake.env.timer_set = timer_set;
  p->fake.env.timer_clear = timer_clear;
  p->fake.env.stream_cancel = stream_cancel;
  hv_allreduce_registry_init(&p->registry, &p->fake.env);
}

static void close_all(place *p) {
  hv_allreduce_registry_fini(&p->registry);
  assert_int_equal(p->registry.n_early, 0);
  assert_int_equal(atomic_load(&p->fake.env.mem->blocks), 0);
}

/* A peer opens a stream for a round that nobody here knows; NULL: it was refused. */
static hv_stream *comes(place *p, uint64_t peer) {
  static const uint8_t lacks[100];
  hv_stream *stream = &p->streams[p->n++];
  stream->peer = fake_peer(peer);
  hv_msg first = {.kind = HV_MSG_SHARE, .u.share = {.round = {7}, .lacks = hv_span_of(lacks, sizeof lacks)}};
  hv_allreduce_opened(&p->registry,
                      &(hv_event){.kind = HV_EVENT_STREAM_OPENED, .stream = stream, .msg = &first, .now_us = p->fake.now_us});
  return stream->on ? stream : NULL;
}

static void goes(hv_stream *stream) {
  stream->on->closed(stream, &(hv_event){.kind = HV_EVENT_STREAM_CLOSED, .status = HV_CLOSED, .text = ""});
}

static void one_peer_has_a_few_places_and_gets_them_back(void **state) {
  (void)state;
  static place p;
  open_on(&p, NULL);
  hv_stream *one = NULL;
  for (int i = 0; i < HV_ALLREDUCE_REGISTRY_OF_PEER; i++)
    assert_non_null(one = comes(&p, 1));
  assert_null(comes(&p, 1));
  assert_non_null(comes(&p, 2)); /* others are let in */
  goes(one);
  assert_non_null(comes(&p, 1));
  assert_null(comes(&p, 1));
  close_all(&p);
}

static void untrusted_have_half_of_all_places_and_friends_the_rest(void **state) {
  (void)state;
  static place p;
  open_on(&p, NULL);
  p.registry.tier = trusts_the_first_thousand;
  for (uint64_t i = 0; i < HV_ALLREDUCE_REGISTRY_OF_STRANGERS; i++)
    assert_non_null(comes(&p, 1000 + i));
  assert_null(comes(&p, 5000));
  hv_stream *friend = NULL;
  for (uint64_t i = HV_ALLREDUCE_REGISTRY_OF_STRANGERS; i < HV_ALLREDUCE_REGISTRY_ROOM; i++)
    assert_non_null(friend = comes(&p, i % 1000));
  assert_null(comes(&p, 999)); /* all is taken */
  goes(friend);
  assert_null(comes(&p, 5000));
  assert_non_null(comes(&p, 999));
  assert_int_equal(p.registry.n_early, HV_ALLREDUCE_REGISTRY_ROOM);
  close_all(&p);
}

static void stream_that_waits_too_long_is_cancelled(void **state) {
  (void)state;
  static place p;
  open_on(&p, NULL);
  comes(&p, 1);
  assert_true(p.sweeps);
  p.fake.now_us += 14999999;
  comes(&p, 2);
  p.registry.sweep.fire(&p.registry.sweep, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = p.fake.now_us});
  assert_int_equal(p.cancelled, 0);
  p.fake.now_us += 1;
  p.registry.sweep.fire(&p.registry.sweep, &(hv_event){.kind = HV_EVENT_TIMER, .now_us = p.fake.now_us});
  assert_int_equal(p.cancelled, 1);
  close_all(&p);
}

/* Messages without bytes hold no window open: they are counted here. */
static void stream_with_many_empty_messages_is_cancelled(void **state) {
  (void)state;
  static place p;
  open_on(&p, NULL);
  hv_stream *stream = comes(&p, 1);
  hv_msg msg = {.kind = HV_MSG_NEWS};
  for (int i = 0; i < 1000 && !p.cancelled; i++)
    stream->on->data(stream, &(hv_event){.kind = HV_EVENT_STREAM_DATA, .stream = stream, .msg = &msg});
  assert_int_equal(p.cancelled, 1);
  assert_in_range(atomic_load(&p.fake.mem.used), 0, 20000);
  close_all(&p);
}

/* ---- the bytes that wait ---- */

enum { PAYLOAD = 4 << 20 };

/* A key of that network opens a stream, and brings one payload. True: it is kept. */
static int brings(place *p, uint64_t key, uint64_t network, hv_payload *payload) {
  hv_msg msg = {.kind = HV_MSG_CHUNK};
  p->streams[p->n].network = network;
  hv_stream *stream = comes(p, key);
  stream->on->data(stream, &(hv_event){.kind = HV_EVENT_STREAM_DATA, .stream = stream, .msg = &msg, .payload = payload});
  return p->ended != stream;
}

static hv_payload *open_full(place *p) {
  static uint8_t bytes[PAYLOAD];
  open_on(p, NULL);
  p->registry.tier = trusts_the_first_thousand;
  return hv_payload_copy(&p->fake.mem, bytes, PAYLOAD);
}

static void one_network_keeps_a_quarter_of_the_waiting_bytes(void **state) {
  (void)state;
  static place p;
  hv_payload *payload = open_full(&p);
  uint64_t key = 1000;
  while (brings(&p, key, 7, payload))
    key++;
  assert_int_equal(key - 1000, HV_ALLREDUCE_REGISTRY_ORIGIN_BYTES / PAYLOAD);
  assert_int_equal(p.cancelled, 1);
  assert_true(brings(&p, key, 8, payload));
  assert_false(brings(&p, key, 7, payload));
  hv_payload_release(payload);
  close_all(&p);
}

/* Four networks fill all that untrusted peers may have: a fifth one gets its part, and a trusted peer does not count. */
static void network_with_most_waiting_bytes_makes_way(void **state) {
  (void)state;
  static place p;
  hv_payload *payload = open_full(&p);
  uint64_t key = 1000;
  for (uint64_t network = 1; network <= 4; network++)
    while (brings(&p, key, network, payload))
      key++;
  assert_int_equal(p.registry.strange_bytes, HV_ALLREDUCE_REGISTRY_BYTES);
  size_t before = p.cancelled;
  for (int i = 0; i < 12; i++)
    assert_true(brings(&p, key++, 5, payload));
  assert_int_equal(p.cancelled - before, 12);
  assert_true(brings(&p, 1, 5, payload)); /* kept, and not counted */
  assert_int_equal(p.registry.strange_bytes, HV_ALLREDUCE_REGISTRY_BYTES);
  assert_int_equal(p.cancelled - before, 12);
  hv_payload_release(payload);
  close_all(&p);
  assert_int_equal(p.registry.strange_bytes, 0);
}

static int is_noted_of(const place *p, uint64_t number, int round) {
  hv_peer_id peer = fake_peer(number);
  for (size_t i = 0; i < 2 * HV_ALLREDUCE_DEPARTED; i++) {
    size_t trusted = i / HV_ALLREDUCE_DEPARTED, at = i % HV_ALLREDUCE_DEPARTED;
    if (hv_peer_equal(&p->registry.departed[trusted][at].peer, &peer) &&
        (round < 0 || p->registry.departed[trusted][at].round[0] == round))
      return 1;
  }
  return 0;
}

static int is_noted(const place *p, uint64_t number) {
  return is_noted_of(p, number, -1);
}

static void departs(place *p, uint64_t number, uint8_t round) {
  hv_peer_id peer = fake_peer(number);
  uint8_t id[HV_ROUND_ID_SIZE] = {round};
  hv_allreduce_departed(&p->registry, &peer, id);
}

/* A peer has one note, and a peer that only said hello takes no place of a trusted one. */
static void departures_of_met_peers_leave_trusted_notes(void **state) {
  (void)state;
  place p;
  open_on(&p, NULL);
  p.registry.tier = trusts_the_first_thousand;
  departs(&p, 1, 7);
  departs(&p, 2000, 7);
  for (uint8_t i = 1; i < 100; i++) /* one peer, many rounds */
    departs(&p, 2001, i), departs(&p, 2, i);
  assert_true(is_noted(&p, 1) && is_noted(&p, 2) && is_noted(&p, 2000) && is_noted(&p, 2001));
  for (uint64_t i = 0; i < 100; i++) /* many peers */
    departs(&p, 3000 + i, 7);
  assert_true(is_noted(&p, 1) && is_noted(&p, 2) && is_noted(&p, 3099));
  close_all(&p);
}

/* Two groups have formed with it: of gradients and of the state. */
static int is_in_seven_and_eight(void *averages, const uint8_t round[HV_ROUND_ID_SIZE], const hv_peer_id *peer) {
  hv_peer_id member = fake_peer(2000);
  (void)averages;
  return (round[0] == 7 || round[0] == 8) && hv_peer_equal(peer, &member);
}

static hv_tier trusts_nobody(void *arg, const hv_peer_id *peer) {
  (void)arg, (void)peer;
  return HV_TIER_STRANGER;
}

/* In a swarm that is larger than the table of peers, members of one group do not know each other. A member that left before the
 * round began was a stranger, so the round waited for its connection. */
static void departure_of_a_member_without_a_place_among_peers_counts(void **state) {
  (void)state;
  place p;
  open_on(&p, NULL);
  p.registry.tier = trusts_nobody;
  departs(&p, 2000, 7);
  assert_false(is_noted(&p, 2000));
  p.registry.has_member = is_in_seven_and_eight;
  departs(&p, 2000, 6);
  departs(&p, 2001, 7);
  assert_false(is_noted(&p, 2000) || is_noted(&p, 2001));
  departs(&p, 2000, 7);
  assert_true(is_noted(&p, 2000));
  close_all(&p);
}

/* A peer that leaves has two groups. Its note of the second one replaced that of the first, whose round waited for it. */
static void departures_from_two_groups_that_formed_both_count(void **state) {
  (void)state;
  place p;
  open_on(&p, NULL);
  p.registry.has_member = is_in_seven_and_eight;
  departs(&p, 2000, 1);
  departs(&p, 2000, 7);
  departs(&p, 2000, 8);
  for (uint8_t i = 10; i < 100; i++)
    departs(&p, 2000, i);
  assert_true(is_noted_of(&p, 2000, 7) && is_noted_of(&p, 2000, 8) && is_noted_of(&p, 2000, 99));
  assert_false(is_noted_of(&p, 2000, 1) || is_noted_of(&p, 2000, 98));
  for (uint64_t i = 0; i < 100; i++) /* others leave rounds that are over: their notes make way first */
    departs(&p, 3000 + i, 1);
  assert_true(is_noted_of(&p, 2000, 7) && is_noted_of(&p, 2000, 8));
  close_all(&p);
}

static void stream_with_a_forbidden_message_is_cancelled(void **state) {
  (void)state;
  static place p;
  open_on(&p, NULL);
  hv_stream *stream = comes(&p, 1);
  static const uint8_t much[HV_CHUNK_FROM_MAX + 1];
  hv_msg wrong[] = {{.kind = HV_MSG_PARCEL}, {.kind = HV_MSG_CHUNK, .u.chunk.from = hv_span_of(much, sizeof much)}};
  for (size_t i = 0; i < 2; i++)
    stream->on->data(stream, &(hv_event){.kind = HV_EVENT_STREAM_DATA, .stream = stream, .msg = &wrong[i]});
  assert_int_equal(p.cancelled, 2);
  close_all(&p);
}

static hv_status wait_a_little(hv_mem *mem, void *arg) {
  place *p = arg;
  open_on(p, mem);
  hv_stream *stream = comes(p, 1);
  hv_payload *payload = hv_payload_copy(mem, "bytes", 5);
  hv_msg msg = {.kind = HV_MSG_CHUNK, .u.chunk = {.from = hv_span_of("f", 1)}};
  if (stream && payload)
    stream->on->data(stream, &(hv_event){.kind = HV_EVENT_STREAM_DATA, .stream = stream, .msg = &msg, .payload = payload});
  hv_payload_release(payload);
  hv_allreduce_registry_fini(&p->registry);
  return stream && payload && !p->cancelled ? HV_OK : HV_NOMEM;
}

static void stream_without_memory_is_refused_or_cancelled(void **state) {
  (void)state;
  static place p;
  assert_int_equal(check_out_of_memory(wait_a_little, &p), 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_peer_has_a_few_places_and_gets_them_back),
      cmocka_unit_test(untrusted_have_half_of_all_places_and_friends_the_rest),
      cmocka_unit_test(stream_that_waits_too_long_is_cancelled),
      cmocka_unit_test(stream_with_many_empty_messages_is_cancelled),
      cmocka_unit_test(one_network_keeps_a_quarter_of_the_waiting_bytes),
      cmocka_unit_test(network_with_most_waiting_bytes_makes_way),
      cmocka_unit_test(departures_of_met_peers_leave_trusted_notes),
      cmocka_unit_test(departure_of_a_member_without_a_place_among_peers_counts),
      cmocka_unit_test(departures_from_two_groups_that_formed_both_count),
      cmocka_unit_test(stream_with_a_forbidden_message_is_cancelled),
      cmocka_unit_test(stream_without_memory_is_refused_or_cancelled),
  };
  return cmocka_run_group_tests_name("the registry", tests, NULL, NULL);
}
