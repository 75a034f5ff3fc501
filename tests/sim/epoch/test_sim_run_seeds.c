/* Seeds of the swarm room `run` that once found something, by their numbers. */
#include "sim/swarm/swarm_liar.c"
#include "sim/swarm/swarm_run.c"
#include "sim/swarm/swarm_run_checks.c"
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_seed.h"

enum { NO_FAULTS = 0 };

/* Once the sums of an epoch's end did not count in the report any more, the others waited for them again. */
static void samples_of_an_epoch_that_ends_still_count(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 5, 4, 1);
  plays_well_under(NO_FAULTS, swarm_run_play, 10, 4, 1);
}

/* A peer that was left out of an epoch waited for the state of the one after the next, where the next one leaves time enough. */
static void peer_left_out_loads_the_next_epoch(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 73, 4, 1);
  plays_well_under(NO_FAULTS, swarm_run_play, 92, 4, 1);
}

/* A joiner that could be dialled kept the hub from asking the clients, who alone had the swarm's state. */
static void hub_asks_clients_while_open_peers_are_behind(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 1044, 4, 1);
}

/* A hub whose round had failed was in the next epoch, and all who were still in that one were left out of it. */
static void hub_leaves_no_trainer_out(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 1057, 4, 1);
}

/* Two clients loaded a state, and counted at the third one, which waited for them to end an epoch. */
static void clients_aside_hold_up_no_other(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 1155, 4, 1);
  plays_well_under(NO_FAULTS, swarm_run_play, 1218, 4, 1);
}

/* A host sent clients to a peer that had come back, which they took for ended: they stayed, and the swarm had two groups. */
static void clients_follow_a_redirect_to_a_peer_that_came_back(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 1174, 4, 1); /* it had left */
  plays_well_under(NO_FAULTS, swarm_run_play, 1215, 4, 1); /* it was killed, and was back at once */
  plays_well_under(NO_FAULTS, swarm_run_play, 1298, 4, 1); /* it was back 30 s later */
}

/* A hub's request ended before the client had its copy: no gift was begun, and the client heard no request any more. */
static void client_hears_the_next_request_if_no_gift_was_begun(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 1684, 4, 1);
  plays_well_under(NO_FAULTS, swarm_run_play, 1835, 4, 1);
}

/* An average of the state came while the batch that ended the next epoch stepped: nobody took it over, and the peer waited for
 * good. */
static void average_that_comes_during_a_local_step_is_taken(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_local_play, 63, 4, 1);
  plays_well_under(NO_FAULTS, swarm_run_local_play, 69, 4, 1);
}

/* A client that nobody came to stepped by itself beside a peer that could be dialled: neither could load the other's state. */
static void client_and_open_peer_do_not_part(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 1004, 4, 1);
}

/* A hub still waited for a state's group while the trainers sought those of the next epoch, and left one of them out. */
static void hub_is_in_time_for_the_next_epoch(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_play, 1179, 4, 1);
}

/* The hub does not come for a single trainer, whose search lasted its whole time. */
static void last_client_goes_on_when_the_other_left(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 12; seed++)
    plays_well_under(NO_FAULTS, swarm_run_pair_play, seed, 3, 1);
}

/* Of rounds, offers and claims, by the seed. */
static void liars_move_nobody_for_good(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 8; seed++)
    plays_well_under(SWARM_LIARS, swarm_run_play, seed, 6, 1);
}

/* Beside one liar that claimed the next epoch each of two loaded again and again, and trusted whoever had given it a state. */
static void liar_that_claims_the_next_epoch_is_doubted(void **unused) {
  (void)unused;
  plays_well_under(SWARM_LIARS, swarm_run_play, 115, 6, 1);
  plays_well_under(SWARM_LIARS, swarm_run_play, 147, 6, 1);
}

/* A keeper of the log that sent nothing delayed each entry by 15 s: 39. The others have other values, and epochs far ahead. */
static void false_logs_delay_no_peer_that_was_away(void **unused) {
  (void)unused;
  plays_well_under(SWARM_LIARS, swarm_run_play, 15, 6, 1);
  plays_well_under(SWARM_LIARS, swarm_run_play, 39, 6, 1);
}

/* The hub alone made the averages, and kept them under another stamp than their members had: a step that was repeated by its log
 * had a mark that nobody had. */
static void step_by_the_log_of_a_hub_has_the_mark_of_its_members(void **unused) {
  (void)unused;
  plays_well_under(NO_FAULTS, swarm_run_anchor_play, 7, 6, 1);
}

static void under_all_faults_nobody_is_lost_for_good(void **unused) {
  (void)unused;
  plays_well(swarm_run_play, 1, 6, 4);
  plays_well(swarm_run_play, 3, 6, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(samples_of_an_epoch_that_ends_still_count),
      cmocka_unit_test(peer_left_out_loads_the_next_epoch),
      cmocka_unit_test(hub_asks_clients_while_open_peers_are_behind),
      cmocka_unit_test(hub_leaves_no_trainer_out),
      cmocka_unit_test(clients_aside_hold_up_no_other),
      cmocka_unit_test(clients_follow_a_redirect_to_a_peer_that_came_back),
      cmocka_unit_test(client_hears_the_next_request_if_no_gift_was_begun),
      cmocka_unit_test(last_client_goes_on_when_the_other_left),
      cmocka_unit_test(liars_move_nobody_for_good),
      cmocka_unit_test(liar_that_claims_the_next_epoch_is_doubted),
      cmocka_unit_test(false_logs_delay_no_peer_that_was_away),
      cmocka_unit_test(step_by_the_log_of_a_hub_has_the_mark_of_its_members),
      cmocka_unit_test(under_all_faults_nobody_is_lost_for_good),
      cmocka_unit_test(average_that_comes_during_a_local_step_is_taken),
      cmocka_unit_test(client_and_open_peer_do_not_part),
      cmocka_unit_test(hub_is_in_time_for_the_next_epoch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
