/* Which state the swarm means: announcements as bytes, and the count against liars. */
#include "lib/check.h"

#include "core/state/ballot.h"

#include <math.h>
#include <string.h>

enum { VOICES_MAX = 600 };

typedef struct urn {
  hv_ballot ballots[VOICES_MAX];
  size_t n;
} urn;

static void kin_vote(urn *u, size_t how_many, uint64_t epoch, uint8_t digest, uint8_t lineage) {
  for (size_t i = 0; i < how_many; i++)
    u->ballots[u->n++] = (hv_ballot){.epoch = epoch, .digest = {{digest}}, .lineage = {lineage}};
}

static void votes(urn *u, size_t how_many, uint64_t epoch, uint8_t digest) {
  kin_vote(u, how_many, epoch, digest, 0);
}

static void shuffle(urn *u, check_rng *rng) {
  for (size_t i = u->n; i > 1; i--) {
    size_t other = check_random(rng) % i;
    hv_ballot moved = u->ballots[i - 1];
    u->ballots[i - 1] = u->ballots[other];
    u->ballots[other] = moved;
  }
}

static void elects_of(urn *u, uint64_t least, hv_status status, uint64_t epoch, uint8_t digest) {
  check_rng rng = {u->n + epoch};
  for (int again = 0; again < 3; again++) {
    size_t at;
    shuffle(u, &rng);
    assert_int_equal(hv_ballot_count(u->ballots, u->n, least, &at), status);
    if (status == HV_OK) {
      assert_int_equal(u->ballots[at].epoch, epoch);
      assert_int_equal(u->ballots[at].digest.bytes[0], digest);
    }
  }
}

static void elects(urn *u, uint64_t epoch, uint8_t digest) {
  elects_of(u, 0, HV_OK, epoch, digest);
}

static void the_majority_of_the_newest_epoch_is_chosen(void **unused) {
  (void)unused;
  urn u = {.n = 0};
  votes(&u, 7, 5, 1);
  votes(&u, 2, 5, 2);
  votes(&u, 1, 4, 3);
  elects(&u, 5, 1);
}

static void single_vote_is_believed(void **unused) {
  (void)unused;
  urn u = {.n = 0};
  votes(&u, 1, 0, 9);
  elects(&u, 0, 9);
}

static void election_without_votes_finds_nothing(void **unused) {
  (void)unused;
  urn u = {.n = 0};
  elects_of(&u, 0, HV_NOT_FOUND, 0, 0);
  votes(&u, 5, 7, 1);
  elects_of(&u, 8, HV_NOT_FOUND, 0, 0);
  elects_of(&u, 7, HV_OK, 7, 1);
}

static void an_epoch_that_a_minority_makes_up_is_never_chosen(void **unused) {
  (void)unused;
  for (size_t honest = 1; honest <= 200; honest++)
    for (size_t liars = 1; liars <= honest; liars = liars * 2 + 1) {
      urn u = {.n = 0};
      votes(&u, honest, 5, 1);
      votes(&u, liars, 1000000000, 2);
      elects(&u, 5, 1);
    }
}

static void tie_of_two_states_at_one_epoch_elects_none(void **unused) {
  (void)unused;
  urn u = {.n = 0};
  votes(&u, 1, 5, 1);
  votes(&u, 1, 5, 2);
  elects_of(&u, 0, HV_STATE, 0, 0);
}

static void newer_epoch_is_elected_only_if_half_have_reached_it(void **unused) {
  (void)unused;
  for (size_t ahead = 0; ahead <= 30; ahead++) {
    urn u = {.n = 0};
    votes(&u, ahead, 6, 1);
    votes(&u, 30 - ahead, 5, 2);
    elects(&u, ahead > 15 ? 6 : 5, ahead > 15 ? 1 : 2); /* alone, the newer one also has to be reached by half */
  }
}

static void replicas_of_one_history_that_differ_by_rounding_are_found(void **unused) {
  (void)unused;
  urn two = {.n = 0}, many = {.n = 0}, hardware = {.n = 0};
  kin_vote(&two, 1, 5, 9, 7);
  kin_vote(&two, 1, 5, 3, 7);
  elects(&two, 5, 3);
  for (uint8_t i = 0; i < 40; i++)
    kin_vote(&many, 1, 5, (uint8_t)(100 - i), 7);
  votes(&many, 19, 4, 1); /* not quite a third is elsewhere */
  elects(&many, 5, 61);
  kin_vote(&hardware, 3, 5, 1, 7);
  kin_vote(&hardware, 4, 5, 2, 7); /* the most common kind */
  kin_vote(&hardware, 1, 5, 3, 7);
  votes(&hardware, 1, 5, 4);
  elects(&hardware, 5, 2);
}

static void one_history_is_found_behind_any_number_of_others(void **unused) {
  (void)unused;
  for (uint8_t others = 0; others <= 20; others++) {
    urn u = {.n = 0};
    for (uint8_t i = 0; i < others; i++)
      kin_vote(&u, 1, 5, (uint8_t)(1 + i), i % 3 == 2 ? 0 : (uint8_t)(100 + i)); /* their digests come first */
    for (uint8_t i = 0; i < 2 * others + 1; i++)
      kin_vote(&u, 1, 5, (uint8_t)(150 + i), 7);
    elects(&u, 5, 150);
  }
}

/* Fewer than half of the voters for the elected state lie, by a majority or by its lineage. */
static void false_size_of_the_elected_state_is_not_believed(void **unused) {
  (void)unused;
  const uint64_t lies[] = {0, UINT64_MAX, 999, 1001};
  for (size_t liars = 0; liars < 40; liars++)
    for (uint8_t others = 0; others < 60; others += 59) {
      urn u = {.n = 0};
      check_rng rng = {liars};
      kin_vote(&u, 2 * liars + 1, 5, 1, 7);
      for (size_t i = 0; i < u.n; i++)
        u.ballots[i].size = i < liars ? lies[liars % 4] : 1000;
      for (uint8_t i = 0; i < others && liars > 0; i++)
        kin_vote(&u, 1, 5, 2 + i, 7);
      for (int again = 0; again < 3; again++) {
        size_t at;
        shuffle(&u, &rng);
        assert_int_equal(hv_ballot_count(u.ballots, u.n, 0, &at), HV_OK);
        assert_int_equal(u.ballots[at].digest.bytes[0], 1);
        assert_int_equal(u.ballots[at].size, 1000);
      }
    }
}

static void lineage_needs_over_two_thirds_and_silence_adds_nothing(void **unused) {
  (void)unused;
  urn u = {.n = 0}, untold = {.n = 0};
  kin_vote(&u, 2, 5, 1, 7);
  kin_vote(&u, 2, 5, 2, 7);
  kin_vote(&u, 2, 5, 3, 8);
  elects_of(&u, 0, HV_STATE, 0, 0);
  kin_vote(&u, 1, 5, 4, 7);
  elects(&u, 5, 1);
  votes(&untold, 2, 5, 1);
  votes(&untold, 2, 5, 2);
  elects_of(&untold, 0, HV_STATE, 0, 0);
}

/* For any votes of liars under a third, together or alone, at any epoch, the elected state has an honest vote. */
static void liars_under_a_third_never_choose(void **unused) {
  (void)unused;
  check_rng rng = {77};
  size_t chosen = 0;
  for (int round = 0; round < 20000; round++) {
    urn u = {.n = 0};
    size_t n = 3 + check_random(&rng) % 60, liars = check_random(&rng) % ((n - 1) / 3 + 1), at;
    uint64_t spread = 1 + check_random(&rng) % 4, together = check_random(&rng) % 2, way = check_random(&rng) % 4;
    for (size_t i = 0; i < n - liars; i++) {
      uint64_t epoch = 100 + check_random(&rng) % spread;
      kin_vote(&u, 1, epoch, (uint8_t)(epoch - 99), (uint8_t)epoch);
    }
    uint64_t same = way == 0   ? 100 + check_random(&rng) % spread
                    : way == 1 ? UINT64_MAX
                    : way == 2 ? 0
                               : 99 + check_random(&rng) % 6;
    for (size_t i = 0; i < liars; i++) {
      uint64_t said = together ? same : 98 + check_random(&rng) % 6;
      kin_vote(&u, 1, said, together ? 200 : (uint8_t)(200 + i % 50), (uint8_t)said); /* the lineage is known to all */
    }
    shuffle(&u, &rng);
    hv_status status = hv_ballot_count(u.ballots, u.n, 0, &at);
    assert_true(status == HV_OK || status == HV_STATE);
    if (status != HV_OK)
      continue;
    chosen++;
    assert_in_range(u.ballots[at].digest.bytes[0], 1, 4);
    if (spread == 1)
      assert_int_equal(u.ballots[at].epoch, 100);
  }
  assert_true(chosen > 12000);
}

/* While honest peers stand at one epoch, nobody short of a half poisons them or holds them up. */
static void honest_peers_of_one_epoch_are_heard_against_any_minority(void **unused) {
  (void)unused;
  static const uint64_t epochs[] = {1000000000, 7, 6, 5, 0};
  for (size_t honest = 1; honest <= 80; honest++)
    for (size_t liars = 0; liars < honest; liars++)
      for (size_t way = 0; way < 5; way++) {
        urn u = {.n = 0};
        votes(&u, honest, 6, 1);
        votes(&u, liars, epochs[way], 200);
        elects(&u, 6, 1);
      }
}

/* While they are between two epochs 30% of liars cannot poison them: they can only make a joiner look again. */
static void liars_between_two_epochs_can_only_delay_a_joiner(void **unused) {
  (void)unused;
  static const uint64_t epochs[] = {1000000000, 6, 5, 0};
  for (size_t ahead = 0; ahead <= 70; ahead++)
    for (int way = 0; way < 4; way++) {
      urn u = {.n = 0};
      size_t at;
      votes(&u, ahead, 6, 1);
      votes(&u, 70 - ahead, 5, 2);
      votes(&u, 30, epochs[way], 200);
      hv_status status = hv_ballot_count(u.ballots, u.n, 0, &at);
      assert_true(status == HV_OK || (status == HV_STATE && ahead > 30 && ahead < 55));
      if (status == HV_OK)
        assert_in_range(u.ballots[at].digest.bytes[0], 1, 2);
    }
}

/* ---- networks ---- */

static void seen_in(urn *u, size_t from, uint64_t network) {
  for (size_t i = from; i < u->n; i++) {
    u->ballots[i].seen = 1;
    u->ballots[i].network = network;
  }
}

static void keys_of_one_public_network_share_one_vote(void **unused) {
  (void)unused;
  for (size_t keys = 1; keys <= 500; keys = keys * 3 + 1) {
    urn u = {.n = 0};
    for (size_t i = 0; i < 2; i++) {
      votes(&u, 1, 5, 1);
      seen_in(&u, i, 2 * i + 1);
    }
    votes(&u, keys, keys % 2 ? 5 : 9, 200);
    seen_in(&u, 2, 99);
    elects(&u, 5, 1);
  }
}

static void peers_at_private_addresses_vote_one_by_one(void **unused) {
  (void)unused;
  urn u = {.n = 0};
  votes(&u, 5, 5, 1);
  votes(&u, 4, 5, 2);
  seen_in(&u, 0, 0);
  elects(&u, 5, 1);
}

/* The parts add up to one vote, with any remainder of the division: a tie stays a tie. */
static void vote_of_any_number_of_keys_is_exactly_one(void **unused) {
  (void)unused;
  for (size_t keys = 1; keys < 100; keys++) {
    urn u = {.n = 0};
    votes(&u, 1, 5, 1);
    seen_in(&u, 0, 1);
    votes(&u, keys, 5, 2);
    seen_in(&u, 1, 3);
    elects_of(&u, 0, HV_STATE, 0, 0);
  }
}

static void keys_that_do_not_answer_share_one_vote(void **unused) {
  (void)unused;
  urn u = {.n = 0}, none = {.n = 0};
  votes(&u, 2, 5, 1);
  seen_in(&u, 0, 0);
  votes(&u, 400, 5, 2);
  elects(&u, 5, 1);
  votes(&none, 2, 5, 1); /* no vote is certain: they count as they are */
  votes(&none, 4, 5, 2);
  elects(&none, 5, 2);
}

static void an_initial_peer_has_a_vote_of_its_own(void **unused) {
  (void)unused;
  urn u = {.n = 0};
  votes(&u, 2, 5, 1);
  u.ballots[0].standing = u.ballots[1].standing = HV_STANDING_INITIAL;
  votes(&u, 300, 5, 2);
  seen_in(&u, 0, 77); /* all are in one network */
  elects(&u, 5, 1);
}

static void an_announcement_reads_as_it_was_written(void **unused) {
  (void)unused;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX], bytes[HV_BALLOT_BYTES_MAX];
  check_rng rng = {3};
  for (size_t size = 0; size <= sizeof addrs; size++) {
    hv_ballot said = {.epoch = check_random(&rng), .size = check_random(&rng), .priority = (float)check_normal(&rng)},
              heard = {.epoch = 0};
    for (size_t i = 0; i < sizeof addrs; i++)
      addrs[i] = (uint8_t)check_random(&rng);
    memcpy(said.digest.bytes, addrs, 32);
    memcpy(said.lineage, addrs + 40, sizeof said.lineage);
    said.addrs = hv_span_of(addrs, size);
    size_t n = hv_ballot_write(&said, bytes);
    assert_int_equal(hv_ballot_read(hv_span_of(bytes, n), &heard), HV_OK);
    assert_int_equal(heard.epoch, said.epoch);
    assert_int_equal(heard.size, said.size);
    assert_true(heard.priority == said.priority);
    assert_memory_equal(&heard.digest, &said.digest, 32);
    assert_memory_equal(heard.lineage, said.lineage, sizeof said.lineage);
    assert_true(hv_span_equal(heard.addrs, said.addrs));
    for (size_t cut = 0; cut < n; cut++) { /* shorter ones are refused, or have fewer bytes of addresses */
      hv_status status = hv_ballot_read(hv_span_of(bytes, cut), &heard);
      assert_true(status == HV_MALFORMED || (cut >= n - size && heard.addrs.size == size - (n - cut)));
    }
  }
}

static void malformed_announcement_is_refused(void **unused) {
  (void)unused;
  uint8_t bytes[HV_BALLOT_BYTES_MAX + 1];
  hv_ballot out;
  size_t n = hv_ballot_write(&(hv_ballot){.epoch = 1}, bytes);
  bytes[0] = 1;
  assert_int_equal(hv_ballot_read(hv_span_of(bytes, n), &out), HV_VERSION);
  assert_int_equal(hv_ballot_read(hv_span_of(bytes, 0), &out), HV_MALFORMED);
  memset(bytes, 2, sizeof bytes);
  assert_int_equal(hv_ballot_read(hv_span_of(bytes, sizeof bytes), &out), HV_MALFORMED);
  static const float wrong[] = {INFINITY, -INFINITY, NAN};
  for (size_t i = 0; i < 3; i++) {
    n = hv_ballot_write(&(hv_ballot){.epoch = 1, .priority = wrong[i]}, bytes);
    assert_int_equal(hv_ballot_read(hv_span_of(bytes, n), &out), HV_MALFORMED);
  }
}

static void a_signer_has_one_subkey(void **unused) {
  (void)unused;
  char subkey[HV_BALLOT_SUBKEY_MAX];
  hv_peer_id peer = {{1, 2, 3}};
  size_t n = hv_ballot_subkey(&peer, subkey);
  assert_int_equal(n, strlen("[owner:]") + 52);
  assert_memory_equal(subkey, "[owner:12D3KooW", 15);
  assert_int_equal(subkey[n - 1], ']');
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_majority_of_the_newest_epoch_is_chosen),
      cmocka_unit_test(single_vote_is_believed),
      cmocka_unit_test(election_without_votes_finds_nothing),
      cmocka_unit_test(an_epoch_that_a_minority_makes_up_is_never_chosen),
      cmocka_unit_test(tie_of_two_states_at_one_epoch_elects_none),
      cmocka_unit_test(newer_epoch_is_elected_only_if_half_have_reached_it),
      cmocka_unit_test(replicas_of_one_history_that_differ_by_rounding_are_found),
      cmocka_unit_test(one_history_is_found_behind_any_number_of_others),
      cmocka_unit_test(false_size_of_the_elected_state_is_not_believed),
      cmocka_unit_test(lineage_needs_over_two_thirds_and_silence_adds_nothing),
      cmocka_unit_test(liars_under_a_third_never_choose),
      cmocka_unit_test(honest_peers_of_one_epoch_are_heard_against_any_minority),
      cmocka_unit_test(liars_between_two_epochs_can_only_delay_a_joiner),
      cmocka_unit_test(keys_of_one_public_network_share_one_vote),
      cmocka_unit_test(peers_at_private_addresses_vote_one_by_one),
      cmocka_unit_test(vote_of_any_number_of_keys_is_exactly_one),
      cmocka_unit_test(keys_that_do_not_answer_share_one_vote),
      cmocka_unit_test(an_initial_peer_has_a_vote_of_its_own),
      cmocka_unit_test(an_announcement_reads_as_it_was_written),
      cmocka_unit_test(malformed_announcement_is_refused),
      cmocka_unit_test(a_signer_has_one_subkey),
  };
  return cmocka_run_group_tests_name("ballot", tests, NULL, NULL);
}
