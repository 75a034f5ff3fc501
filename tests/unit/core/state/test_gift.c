/* core/state/gift and gift_turn: a hub's request, and whom it asks. The clock is the test's. */
#include "lib/check.h"
#include "lib/fake_env.h"

#include "core/state/gift_turn.h"

#include <string.h>

/* ---- the request ---- */

static hv_gift_request a_request(uint64_t hub, uint64_t giver) {
  hv_gift_request request = {.hub = fake_peer(hub), .giver = fake_peer(giver), .least = 7, .every = 2, .size_max = 1ull << 40};
  memset(request.ticket, (int)hub, sizeof request.ticket);
  return request;
}

typedef struct written {
  uint8_t value[HV_GIFT_REQUEST_SIZE];
  char subkey[HV_BALLOT_SUBKEY_MAX];
} written;

static hv_record record_of(const hv_gift_request *request, written *w) {
  hv_gift_request_write(request, w->value);
  size_t size = hv_ballot_subkey(&request->hub, w->subkey);
  return (hv_record){.subkey = hv_span_of(w->subkey, size),
                     .has_subkey = 1,
                     .value = hv_span_of(w->value, sizeof w->value),
                     .signer = request->hub};
}

static void request_reads_as_it_was_written(void **unused) {
  (void)unused;
  written w;
  hv_gift_request request = a_request(1, 2), again = {.hub = request.hub};
  hv_record record = record_of(&request, &w);
  assert_int_equal(hv_gift_request_read(record.value, &again), HV_OK);
  assert_memory_equal(&again, &request, sizeof request);
  for (size_t cut = 1; cut < HV_GIFT_REQUEST_SIZE; cut++)
    assert_int_equal(hv_gift_request_read(hv_span_of(w.value, cut), &again), HV_MALFORMED);
  w.value[0]++;
  assert_int_equal(hv_gift_request_read(record.value, &again), HV_VERSION);
}

static void giver_finds_requests_to_itself_that_their_hub_signed(void **unused) {
  (void)unused;
  written w[4];
  hv_gift_request to_me = a_request(1, 9), to_other = a_request(2, 8), of_liar = a_request(3, 9), other_to_me = a_request(4, 9),
                  found = {.least = 0};
  hv_peer_id me = fake_peer(9);
  hv_record records[4] = {record_of(&to_other, &w[0]), record_of(&of_liar, &w[1]), record_of(&to_me, &w[2]),
                          record_of(&other_to_me, &w[3])};
  records[1].signer = fake_peer(5); /* under another's subkey */
  assert_int_equal(hv_gift_request_find(records, 4, &me, &found), 1);
  assert_memory_equal(&found, &to_me, sizeof found);
  found.hub = other_to_me.hub; /* the hub that asked before */
  assert_int_equal(hv_gift_request_find(records, 4, &me, &found), 1);
  assert_memory_equal(&found, &other_to_me, sizeof found);
  assert_int_equal(hv_gift_request_find(records, 2, &me, &found), 0);
  records[2].has_subkey = 0;
  assert_int_equal(hv_gift_request_find(records, 3, &me, &found), 0);
}

/* ---- whom a hub asks ---- */

enum { AMBER = 1, BLUE, CORAL, SECOND = 1000000 };

typedef struct hub {
  hv_gift_turn turn;
  uint64_t now_us, lot;
  hv_gift_figures figures;
} hub;

static hub a_hub(void) {
  return (hub){.now_us = 1000ull * SECOND, .figures = {.has_room = 1}};
}

/* The trainer that is asked after so many seconds, a look each; 0: nobody. */
static uint64_t look(hub *h, const hv_gift_trainer *trainers, size_t n, double seconds) {
  h->figures.trainers = trainers;
  h->figures.n_trainers = n;
  for (double left = seconds; left >= 0; left -= 1) {
    h->now_us += left < 1 ? (uint64_t)(left * SECOND) : SECOND;
    h->figures.lot = h->lot++;
    hv_gift_turn_look(&h->turn, h->now_us, &h->figures);
  }
  for (uint64_t i = 1; i <= CORAL; i++) {
    hv_peer_id id = fake_peer(i);
    if (h->turn.is_asking && hv_peer_equal(&h->turn.giver, &id))
      return i;
  }
  return 0;
}

static hv_gift_trainer client(uint64_t number, uint64_t epoch) {
  return (hv_gift_trainer){fake_peer(number), 1, epoch};
}

static void hub_asks_a_trainer_of_the_newest_epoch(void **unused) {
  (void)unused;
  hv_gift_trainer trainers[] = {client(AMBER, 1), client(BLUE, 2), client(CORAL, 1)};
  for (uint64_t lot = 0; lot < 30; lot++) { /* others wait for a state, and give none: each choice must be the newest */
    hub h = a_hub();
    h.lot = lot;
    assert_int_equal(look(&h, trainers, 3, 0), BLUE);
  }
  size_t asked[CORAL + 1] = {0};
  trainers[0].epoch = trainers[2].epoch = 2;
  for (uint64_t lot = 0; lot < 30; lot++) {
    hub h = a_hub();
    h.lot = lot;
    asked[look(&h, trainers, 3, 0)]++;
  }
  assert_int_equal(asked[AMBER], 10); /* among equals the lot decides */
  assert_int_equal(asked[BLUE], 10);
}

static void hub_asks_peers_of_the_swarms_replica_only(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 1), client(BLUE, 2)};
  hv_peer_id right = fake_peer(AMBER);
  hv_gift_turn_met(&h.turn, h.now_us, 1, &right, 1, NULL);
  assert_int_equal(look(&h, trainers, 2, 0), AMBER);
}

static void hub_leaves_a_trainer_that_falls_behind(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 1), client(BLUE, 2)};
  assert_int_equal(look(&h, trainers, 1, 0), AMBER);
  assert_int_equal(look(&h, trainers, 2, 2), AMBER);
  assert_int_equal(look(&h, trainers, 2, 4), BLUE);
}

static void hub_leaves_a_trainer_that_began_three_epochs_and_gave_none(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 1), client(BLUE, 4)};
  assert_int_equal(look(&h, trainers, 1, 5), AMBER);
  trainers[0].epoch = 3;
  assert_int_equal(look(&h, trainers, 1, 5), AMBER);
  trainers[0].epoch = 4;
  assert_int_equal(look(&h, trainers, 2, 0), BLUE);
}

static void hub_leaves_a_trainer_that_began_anew(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 5), client(BLUE, 4)};
  assert_int_equal(look(&h, trainers, 2, 0), AMBER);
  trainers[0].epoch = 4; /* it goes back by one when the others left it out */
  assert_int_equal(look(&h, trainers, 2, 0), AMBER);
  trainers[0].epoch = 0;
  assert_int_equal(look(&h, trainers, 2, 0), BLUE);
}

static void liar_about_its_epoch_is_asked_once(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 5), client(BLUE, 1000000000)};
  assert_int_equal(look(&h, trainers, 2, 0), BLUE);
  assert_int_equal(look(&h, trainers, 2, 62), AMBER);
  /* the epoch of the liar counts no longer: amber may take as long as its epochs take */
  assert_int_equal(look(&h, trainers, 2, 50), AMBER);
}

static void trainer_is_asked_again_once_all_gave_nothing(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer amber = client(AMBER, 1);
  assert_int_equal(look(&h, &amber, 1, 0), AMBER);
  assert_int_equal(look(&h, &amber, 1, 62), AMBER);
  assert_int_equal(h.turn.n_failed, 0);
}

/* The others may lack its state, as it is ahead of them. */
static void trainer_that_starts_again_is_asked_again(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 1), client(BLUE, 1)};
  assert_int_equal(look(&h, &trainers[1], 1, 0), BLUE);
  hv_gift_turn_fail(&h.turn);
  assert_int_equal(look(&h, trainers, 2, 0), AMBER);
  trainers[1].epoch = 5; /* one that failed is no measure */
  assert_int_equal(look(&h, trainers, 2, 8), AMBER);
  hv_peer_id blue = fake_peer(BLUE), amber = fake_peer(AMBER);
  hv_gift_turn_gone(&h.turn, &blue);
  assert_int_equal(look(&h, trainers, 2, 8), BLUE);
  hv_gift_turn_gone(&h.turn, &blue);
  assert_int_equal(look(&h, trainers, 1, 62), AMBER); /* the only one that is there */
  hv_gift_turn_gone(&h.turn, &amber);
  assert_int_equal(look(&h, trainers, 0, 0), 0);
}

/* It was asked each minute, and copied its state each time. */
static void trainer_with_a_state_too_large_is_asked_once_an_hour(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 1), client(BLUE, 1)};
  uint64_t first = look(&h, trainers, 2, 0);
  assert_true(hv_gift_turn_large(&h.turn, h.now_us));
  uint64_t second = look(&h, trainers, 2, 0); /* at once; a liar about its size does not stop others */
  assert_int_equal(first + second, AMBER + BLUE);
  assert_false(hv_gift_turn_large(&h.turn, h.now_us));
  assert_int_equal(look(&h, trainers, 2, 3500), 0);
  assert_int_not_equal(look(&h, trainers, 2, 200), 0);
  assert_true(hv_gift_turn_large(&h.turn, h.now_us)); /* the log says it again */
}

static void trainers_share_the_work(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 1), client(BLUE, 1)};
  uint64_t first = look(&h, trainers, 2, 0);
  size_t turns = 0;
  for (int minute = 0; minute < 60; minute++) { /* an epoch a minute, each given at once */
    trainers[0].epoch++;
    trainers[1].epoch++;
    hv_gift_turn_came(&h.turn, h.now_us, trainers[0].epoch);
    turns += look(&h, trainers, 2, 59) != first;
  }
  assert_in_range(turns, 10, 50);
}

/* A state took 24 s, and its giver sends none for 96 s. */
static void another_trainer_is_asked_while_one_rests(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 1), client(BLUE, 1)};
  uint64_t first = look(&h, trainers, 2, 0);
  h.figures.arrived = 1000;
  look(&h, trainers, 2, 24);
  h.figures.arrived = 0;
  hv_gift_turn_came(&h.turn, h.now_us, 1);
  h.figures.least = 2;
  assert_int_equal(look(&h, trainers, 2, 1), first);
  trainers[0].epoch = trainers[1].epoch = 2;
  uint64_t second = look(&h, trainers, 2, 1);
  assert_int_not_equal(second, first);
  h.figures.arrived = 1000;
  look(&h, trainers, 2, 24);
  h.figures.arrived = 0;
  hv_gift_turn_came(&h.turn, h.now_us, 2);
  assert_int_equal(look(&h, trainers, 2, 1), second);
}

static void hub_waits_for_bytes_that_come(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 1), client(BLUE, 1)};
  uint64_t first = look(&h, trainers, 2, 0);
  for (int second = 0; second < 300; second++) { /* a slow line: longer than a turn, and never silent */
    h.figures.arrived += 1000;
    assert_int_equal(look(&h, trainers, 2, 1), first);
  }
  assert_int_equal(look(&h, trainers, 2, 59), first);
  assert_int_not_equal(look(&h, trainers, 2, 3), first);
}

static void hub_does_not_ask_while_a_trainer_can_be_dialled(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer trainers[] = {client(AMBER, 3), client(BLUE, 3)};
  trainers[1].is_client = 0;
  assert_int_equal(look(&h, trainers, 2, 0), 0);
  assert_int_equal(look(&h, trainers, 0, 0), 0);
  assert_int_equal(look(&h, trainers, 1, 0), AMBER);
  assert_int_equal(look(&h, trainers, 2, 0), 0); /* one has come that joiners can ask */
  trainers[1].epoch = 2;
  assert_int_equal(look(&h, trainers, 2, 0), 0);
  trainers[1].epoch = 1; /* it is behind, and wants the state itself */
  assert_int_equal(look(&h, trainers, 2, 0), AMBER);
}

static void hub_asks_nobody_without_room_or_for_an_older_epoch(void **unused) {
  (void)unused;
  hub h = a_hub();
  hv_gift_trainer amber = client(AMBER, 3);
  h.figures.has_room = 0;
  assert_int_equal(look(&h, &amber, 1, 0), 0);
  h.figures.has_room = 1;
  h.figures.least = 4;
  assert_int_equal(look(&h, &amber, 1, 0), 0);
  h.figures.least = 0;
  amber.epoch = 0; /* it has made no step */
  assert_int_equal(look(&h, &amber, 1, 0), 0);
}

static void failures_are_remembered_up_to_a_limit(void **unused) {
  (void)unused;
  hub h = a_hub();
  for (uint64_t i = 0; i < 3 * HV_GIFT_FAILED; i++) {
    hv_peer_id id = fake_peer(100 + i);
    hv_gift_turn_met(&h.turn, h.now_us, 1, NULL, 0, &id);
    hv_gift_turn_fail(&h.turn);
    assert_int_equal(h.turn.is_asking, 0);
  }
  hv_gift_trainer amber = client(AMBER, 1);
  assert_int_equal(look(&h, &amber, 1, 0), AMBER);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(request_reads_as_it_was_written),
      cmocka_unit_test(giver_finds_requests_to_itself_that_their_hub_signed),
      cmocka_unit_test(hub_asks_a_trainer_of_the_newest_epoch),
      cmocka_unit_test(hub_asks_peers_of_the_swarms_replica_only),
      cmocka_unit_test(hub_leaves_a_trainer_that_falls_behind),
      cmocka_unit_test(hub_leaves_a_trainer_that_began_three_epochs_and_gave_none),
      cmocka_unit_test(hub_leaves_a_trainer_that_began_anew),
      cmocka_unit_test(liar_about_its_epoch_is_asked_once),
      cmocka_unit_test(trainer_is_asked_again_once_all_gave_nothing),
      cmocka_unit_test(trainer_that_starts_again_is_asked_again),
      cmocka_unit_test(trainer_with_a_state_too_large_is_asked_once_an_hour),
      cmocka_unit_test(trainers_share_the_work),
      cmocka_unit_test(another_trainer_is_asked_while_one_rests),
      cmocka_unit_test(hub_waits_for_bytes_that_come),
      cmocka_unit_test(hub_does_not_ask_while_a_trainer_can_be_dialled),
      cmocka_unit_test(hub_asks_nobody_without_room_or_for_an_older_epoch),
      cmocka_unit_test(failures_are_remembered_up_to_a_limit),
  };
  return cmocka_run_group_tests_name("gift", tests, NULL, NULL);
}
