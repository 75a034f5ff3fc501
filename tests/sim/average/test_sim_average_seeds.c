/* Seeds of the swarm room `average` (12 nodes, 6 epochs, all faults; some with liars) that once found something, by their numbers;
 * the last one has 64 nodes. */
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_average.c"
#include "sim/swarm/swarm_liar.c"
#include "sim/swarm/swarm_nat.c"

#include "sim/swarm/swarm_seed.h"

static const double six_epochs = 6 * (double)SWARM_EPOCH_US / 60e6;

/* Members that are done miss a silent coordinator, and stay while others need them. */
static void done_members_replace_a_silent_coordinator(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 6, 12, six_epochs);
  plays_well(swarm_average_play, 30, 12, six_epochs);
  plays_well(swarm_average_play, 49, 12, six_epochs);
}

static void silent_member_may_coordinate_later(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 1057, 12, six_epochs);
}

static void no_try_is_begun_with_less_time_than_its_round_takes(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 10013, 12, six_epochs);
}

/* An owner that sends false reports owns nothing from then on. One member alone cannot declare that nobody's values count. */
static void owner_with_false_reports_loses_its_chunks(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 5018, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 10224, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 10247, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 10266, 12, six_epochs);
}

static void coordinator_missed_by_all_leaves_by_itself(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 5072, 12, six_epochs);
}

static void suspect_that_reports_gets_the_full_answer_time(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 60057, 12, six_epochs);
}

static void view_reported_by_a_liar_alone_excludes_nobody(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 5044, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 10200, 12, six_epochs);
}

static void coordinator_that_never_reports_is_missed_by_all(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 10433, 12, six_epochs);
  plays_well(swarm_average_play, 50108, 12, six_epochs);
}

static void new_coordinator_is_asked_before_it_is_replaced(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 20908, 12, six_epochs);
}

/* A member that was excluded for its silence is a suspect. It is asked for no longer than the others. */
static void excluded_silent_member_gets_no_more_time_than_others(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 5140, 12, six_epochs);
}

/* These the checker got wrong: one took who died, came back and died again for one who had been there all the time between; the
 * others were cut off when their group began, and heard of it when the others had just ended without them. */
static void checker_excuses_members_gone_longer_than_suspect_time(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 10470, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 60411, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 55, 8, six_epochs * 4 / 6);
}

/* Two clients had BEGIN from a host that died within it; who could be dialled had not, and ended elsewhere, or died before they
 * ended. One's time was over when three who never came, one after the other, had been missed. One that had stood still before the
 * round, and came back into it, was cut off from one member only. The one of three who could be dialled died while nothing was cut.
 * (test_sim_average_checker.c holds what is not let pass.) */
static void checker_knows_members_that_began_elsewhere_or_returned(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 211677, 12, six_epochs);
  plays_well(swarm_average_play, 220064, 12, six_epochs);
  plays_well(swarm_average_play, 221316, 12, six_epochs);
  plays_well(swarm_average_play, 400538, 12, six_epochs);
  plays_well(swarm_average_play, 401861, 12, six_epochs);
  plays_well(swarm_average_play, 402523, 12, six_epochs);
}

/* A member had given up a coordinator that stalled for a moment. It waited so long at another stalled one that all others had ended
 * the round when it came back. */
static void second_stall_does_not_extend_the_wait_for_a_coordinator(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 221161, 12, six_epochs);
}

/* A line is cut one way: one breaks off because of the other, which alone holds a chunk, and had to take it from that one again and
 * again. */
static void chunk_of_one_holder_is_relayed_around_a_broken_link(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 301772, 12, six_epochs);
}

/* A liar names a member again and again. The member has as long to answer as the others. */
static void member_named_often_by_a_liar_gets_the_full_time(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 301332, 12, six_epochs);
}

/* Of all the others one came, and died: they were with a coordinator that had stood still for a moment. */
static void abandoned_coordinator_returns_to_members_it_gave_up(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 500939, 12, six_epochs);
}

/* An auxiliary that owns a chunk gave its average to one member, which was left out then; the others averaged the same values anew,
 * in another order. */
static void chunk_averaged_again_gets_another_stamp(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 501926, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 503287, 12, six_epochs);
}

/* One said that it had been in the view that the others were in, but of other members. */
static void report_with_other_members_of_a_view_is_rejected(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 505858, 12, six_epochs);
}

/* Two of four tell what is false, and the coordinator alone hears it. */
static void coordinator_trusts_its_own_observation(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 507717, 12, six_epochs);
}

/* The next coordinator was not asked by the one that died. It took a member that had closed its streams for one that is gone. */
static void member_of_a_dead_coordinator_gets_time_to_reach_the_next(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 503998, 12, six_epochs);
}

/* The word that a round begins was sent in a cut, and came when the others had ended it; two hosts began a round each of the same
 * two members, both of whom had changed sides; one lost the others one after the other; one stood still for longer than a suspect
 * is waited for, and a liar had named it; one was left with a liar alone. (test_sim_average_checker.c holds what is not let pass.)
 */
static void checker_knows_a_member_left_alone_at_the_end(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 501245, 12, six_epochs);
  plays_well(swarm_average_play, 509150, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 503105, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 505262, 12, six_epochs);
  plays_well(swarm_average_play, 601816, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 601949, 12, six_epochs);
}

/* Two coordinators were lost. The third died when the done members had waited for three stall_ms. */
static void done_member_waits_anew_for_each_coordinator(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 499528, 12, six_epochs);
}

/* A coordinator was cut off while it asked, had not one's answer, and told that one alone that it is out: all others were with the
 * next one by then. */
static void excluded_member_asks_the_next_coordinator(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 600389, 12, six_epochs);
}

/* While nobody else has asked, a member that missed a coordinator returns at its first message. A coordinator stood still, or its
 * words were lost, and it asked as soon as it went on. A member that had just given it up coordinated alone, or attended the next
 * one, and came back when the others had the new view or had ended. */
static void member_returns_to_a_resumed_coordinator_at_once(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 602984, 12, six_epochs);
  plays_well(swarm_average_play, 604737, 12, six_epochs);
  plays_well(swarm_average_play, 614187, 12, six_epochs);
  plays_well(swarm_average_play, 616139, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 600672, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 614187, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 616139, 12, six_epochs);
}

/* All members of the next coordinator went back to the one before, which had stalled. The next one waited for others, alone. */
static void coordinator_left_by_all_follows_them(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 617644, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 617644, 12, six_epochs);
  plays_well(swarm_average_play, 617699, 12, six_epochs);
}

/* One member alone had heard the second coordinator, and closed its streams when it was asked. It missed that coordinator later
 * than the others did. Another time its own values had come to the next one, but not yet its first message as an owner. */
static void member_that_stopped_early_has_time_to_miss_coordinator(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 614579, 12, six_epochs);
  plays_well(swarm_average_play, 860490, 12, six_epochs);
}

/* A coordinator with false streams missed one member again and again. The member was asked last, and had named those that stopped
 * before it. */
static void member_is_not_excluded_for_streams_broken_by_the_ask(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 623552, 12, six_epochs);
}

/* Two clients were left when the last peer they could dial stalled for eight seconds. It ended well then. */
static void checker_knows_clients_with_a_stalled_last_peer(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 618247, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 618247, 12, six_epochs);
}

/* The plan to one member was lost, and its coordinator died 47 ms later: all others had the plan, had heard nothing of that member
 * in the new view, and the next coordinator gave it a suspect's time. */
/* Two who had been cut off with the first coordinator, and one who alone had never heard of it, had their plan, or were alone,
 * before the others came back. */
static void coordinator_with_under_half_of_the_answers_waits(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 616577, 12, six_epochs);
  plays_well(swarm_average_play, 620602, 12, six_epochs);
}

/* All members that had come were with another coordinator meanwhile, and on their way back. */
static void asking_coordinator_does_not_declare_the_round_finished(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 625761, 12, six_epochs);
}

/* The member was cut off from one other. In the second run the last peer that another could reach stalled, and ended well later. */
static void checker_knows_a_member_that_returned_to_its_round(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 617300, 12, six_epochs);
  plays_well(swarm_average_play, 629975, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 629975, 12, six_epochs);
}

/* The coordinator had stalled and waited for one that was gone. Its averages were on their way when another member's time was over.
 */
static void coordinator_that_shows_life_is_asked_before_replacement(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 660195, 12, six_epochs);
}

/* The coordinator died, and one member may lack its plan. */
static void member_without_the_plan_has_time_to_miss_a_coordinator(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 607726, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 607726, 12, six_epochs);
}

/* In a group of four the honest member charged both of two liars. Another one had charged one of them, too. */
static void member_with_supported_charges_is_not_excluded(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 609651, 12, six_epochs);
}

/* The time of the steps was over while two others could not reach each other; or soon after a liar had died that gave itself for
 * another one; or one had everything when its own time was over, and stayed for the others no longer; or one had stood still, and
 * came into the round when the others had waited for it for as long as for anybody; or several never had the round, and were missed
 * one after the other; or one that had stood still before stood still once more. */
static void checker_knows_timeouts_caused_by_other_members(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 605814, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 605814, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 605364, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 653175, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 653748, 12, six_epochs);
  plays_well(swarm_average_play, 925944, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 873358, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 950805, 12, six_epochs);
  plays_well(swarm_average_play, 682780, 12, six_epochs);
}

/* A coordinator had a member's answer, stalled, was missed and came back. It waited for others, and its plan was 0.05 s late. */
static void coordinator_with_answers_is_waited_for_after_it_was_missed(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 690009, 12, six_epochs);
}

/* One missed a coordinator that asked, went to another one, and was sent back at once. It answered 0.05 s after the plan. */
static void member_that_leaves_while_asked_has_time_to_return(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 687113, 12, six_epochs);
  plays_well(swarm_average_play, 689461, 12, six_epochs);
}

/* A first coordinator took two back, made a view with them and was cut off; the second put both out, and one of them came next. */
static void member_excluded_elsewhere_continues_with_its_own_view(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 682744, 12, six_epochs);
}

/* Two of four lied; one after the other coordinated, was out by its own count, and was waited for by the next one for three
 * seconds. */
static void coordinator_that_closed_its_stream_gets_only_suspect_time(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 692426, 12, six_epochs);
}

/* The coordinator stalled while it asked. It resumed with the last answers but one, and took its own stall for their silence. */
static void resumed_coordinator_reads_answers_that_came_meanwhile(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 730581, 12, six_epochs);
}

/* The coordinator before had only stalled. All went back to it but one, which had stalled itself since it came. */
static void coordinator_left_by_most_follows_them(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 721811, 12, six_epochs);
}

/* A liar that four had charged named one that lost its coordinator's question, and then its answer. */
static void member_named_by_a_liar_gets_the_full_answer_time(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 732124, 12, six_epochs);
}

/* A coordinator had stood still; one member was asked by the next one in the moment in which all others went back to it. */
static void member_asked_by_another_coordinator_has_time_to_return(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 760243, 12, six_epochs);
}

/* Two clients, and only a liar could be dialled; nothing was cut. */
static void checker_knows_clients_left_with_a_liar(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 762107, 12, six_epochs);
}

/* A round of 3 KB lost a packet; the next one, of 5 KB, was held to 2.5 KB a second for that, and took longer than its step had. */
static void small_round_is_not_throttled_by_an_earlier_packet_loss(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 757252, 12, six_epochs);
}

/* A coordinator that had stood still was done as it went on; all had gone to another one, came back, and lacked what it owned. */
static void done_coordinator_waits_for_members_that_left_in_its_stall(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 810817, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 811850, 12, six_epochs);
}

/* All had answered a coordinator that stood still then, and gone to another one. */
static void answers_of_departed_members_are_not_enough(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 814141, 12, six_epochs);
}

/* A coordinator made a view without one member, vanished, and only a client had its plan. */
static void member_alone_in_a_view_returns_to_the_one_before(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 772436, 12, six_epochs);
}

/* Those that had gone to another one in its stall were not half of all, because as many had died. */
static void coordinator_left_by_most_of_the_living_follows_them(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 838931, 12, six_epochs);
}

/* A coordinator stalled as its round began, and never saw the members that came and went. The other coordinator named them. */
static void members_named_by_the_other_coordinator_have_left(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 778270, 16, six_epochs);
}

/* It stalled while it asked. It made its view at once with all that had gone but one. */
static void coordinator_that_stalled_while_asking_may_be_left(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 972292, 12, six_epochs);
}

/* Three came back to a resumed coordinator before the next one's question had reached them. Each of both had four of ten members.
 * The resumed one died, and so did the next in order. */
static void resumed_coordinator_listens_before_it_recalls_members(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1054335, 12, six_epochs);
}

/* One broke off a liar's stream, and the liar said that it could not reach it; its own answer was lost in a cut of 0.2 s. */
static void member_missed_by_a_liar_alone_gets_the_full_time(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1083185, 12, six_epochs);
}

/* A liar named a member that came late. Its stream to the coordinator was lost on its way, but its values came. */
static void member_that_opens_a_stream_is_no_suspect(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1130036, 12, six_epochs);
}

/* A lone liar charged the honest coordinator twice, and two more of the five that were left. */
static void lone_liar_with_many_charges_does_not_sway_the_coordinator(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1032030, 12, six_epochs);
}

/* One closed or refused a coordinator's stream with false values. It answered later than a suspect may. */
static void member_that_closed_its_stream_gets_the_full_answer_time(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 952641, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 1010554, 12, six_epochs);
}

/* Of two coordinators one after the other one stood still, and one vanished. */
static void second_lost_coordinator_is_not_waited_for_twice_as_long(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 788544, 8, six_epochs);
}

/* A leader had stood still before its round. One line to it was cut, so its view was without that member; 0.2 s later it vanished.
 */
static void checker_knows_a_member_that_returned_and_died(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1054355, 12, six_epochs);
}

/* Two of nine had a view's plan, and averaged a chunk. The next view excluded a member that this view excluded, though it held
 * nothing. */
static void member_without_values_stays_in_the_view_of_the_others(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1054371, 12, six_epochs);
}

/* Of the first two coordinators one is gone, and one had stalled. All were called back to that one. Only the coordinator of the
 * meantime went to the other one first. */
static void coordinator_left_by_all_joins_the_one_that_reported(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1600401, 12, six_epochs);
}

/* Five of nine were left, three with a coordinator that had stood still and two with the next one; one of these died. */
static void smaller_coordinator_returns_with_its_members(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1112737, 12, six_epochs);
}

/* A coordinator's view was without one; nobody had its plan, and it averaged a chunk with itself alone. */
static void lone_coordinator_returns_to_the_one_before(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1248264, 12, six_epochs);
}

/* One stalled for 7.7 s. The two others had tried it once more in vain when its first message came. */
static void member_joins_a_failed_coordinator_at_its_first_message(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 1343637, 12, six_epochs);
}

/* The message that names its new coordinator was lost on its way, while the old coordinator was listening. */
static void returning_member_gets_time_from_the_others_arrival(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1352690, 12, six_epochs);
}

/* A coordinator died 0.07 s after its last word to one that lacked something. */
static void member_that_misses_a_dead_coordinator_late_finds_others(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1353065, 12, six_epochs);
}

/* Of three that were missed one after the other two resumed. One member had the first one's message, and then the second one's. */
static void recalled_member_does_not_move_to_a_later_coordinator(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 1366806, 12, six_epochs);
}

/* Two clients were left with two liars; a third that could be dialled was never told of that round, and died in another one. */
static void checker_knows_a_member_that_joined_another_round_later(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1376572, 12, six_epochs);
}

/* As above, in runs with liars: members that began elsewhere or came back in time. */
static void checker_knows_returned_members_beside_liars(void **unused) {
  static const uint64_t seeds[] = {301007, 301710, 320135, 320597, 321684, 321893};
  (void)unused;
  for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
    plays_well_under(AND_LIARS, swarm_average_play, seeds[i], 12, six_epochs);
}

/* One of 64 nodes hears of its round late. The run ends with the epoch that found it. */
static void late_member_joins_the_coordinator_of_the_others(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 720298, 64, 26 * (double)SWARM_EPOCH_US / 60e6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(done_members_replace_a_silent_coordinator),
      cmocka_unit_test(silent_member_may_coordinate_later),
      cmocka_unit_test(owner_with_false_reports_loses_its_chunks),
      cmocka_unit_test(coordinator_missed_by_all_leaves_by_itself),
      cmocka_unit_test(suspect_that_reports_gets_the_full_answer_time),
      cmocka_unit_test(view_reported_by_a_liar_alone_excludes_nobody),
      cmocka_unit_test(coordinator_that_never_reports_is_missed_by_all),
      cmocka_unit_test(new_coordinator_is_asked_before_it_is_replaced),
      cmocka_unit_test(excluded_silent_member_gets_no_more_time_than_others),
      cmocka_unit_test(checker_excuses_members_gone_longer_than_suspect_time),
      cmocka_unit_test(no_try_is_begun_with_less_time_than_its_round_takes),
      cmocka_unit_test(checker_knows_members_that_began_elsewhere_or_returned),
      cmocka_unit_test(second_stall_does_not_extend_the_wait_for_a_coordinator),
      cmocka_unit_test(chunk_of_one_holder_is_relayed_around_a_broken_link),
      cmocka_unit_test(member_named_often_by_a_liar_gets_the_full_time),
      cmocka_unit_test(abandoned_coordinator_returns_to_members_it_gave_up),
      cmocka_unit_test(chunk_averaged_again_gets_another_stamp),
      cmocka_unit_test(report_with_other_members_of_a_view_is_rejected),
      cmocka_unit_test(coordinator_trusts_its_own_observation),
      cmocka_unit_test(member_of_a_dead_coordinator_gets_time_to_reach_the_next),
      cmocka_unit_test(checker_knows_a_member_left_alone_at_the_end),
      cmocka_unit_test(done_member_waits_anew_for_each_coordinator),
      cmocka_unit_test(excluded_member_asks_the_next_coordinator),
      cmocka_unit_test(member_returns_to_a_resumed_coordinator_at_once),
      cmocka_unit_test(coordinator_left_by_all_follows_them),
      cmocka_unit_test(member_that_stopped_early_has_time_to_miss_coordinator),
      cmocka_unit_test(member_is_not_excluded_for_streams_broken_by_the_ask),
      cmocka_unit_test(checker_knows_clients_with_a_stalled_last_peer),
      cmocka_unit_test(coordinator_with_under_half_of_the_answers_waits),
      cmocka_unit_test(asking_coordinator_does_not_declare_the_round_finished),
      cmocka_unit_test(checker_knows_a_member_that_returned_to_its_round),
      cmocka_unit_test(coordinator_that_shows_life_is_asked_before_replacement),
      cmocka_unit_test(member_without_the_plan_has_time_to_miss_a_coordinator),
      cmocka_unit_test(member_with_supported_charges_is_not_excluded),
      cmocka_unit_test(checker_knows_timeouts_caused_by_other_members),
      cmocka_unit_test(coordinator_with_answers_is_waited_for_after_it_was_missed),
      cmocka_unit_test(member_that_leaves_while_asked_has_time_to_return),
      cmocka_unit_test(member_excluded_elsewhere_continues_with_its_own_view),
      cmocka_unit_test(coordinator_that_closed_its_stream_gets_only_suspect_time),
      cmocka_unit_test(resumed_coordinator_reads_answers_that_came_meanwhile),
      cmocka_unit_test(coordinator_left_by_most_follows_them),
      cmocka_unit_test(member_named_by_a_liar_gets_the_full_answer_time),
      cmocka_unit_test(member_asked_by_another_coordinator_has_time_to_return),
      cmocka_unit_test(checker_knows_clients_left_with_a_liar),
      cmocka_unit_test(small_round_is_not_throttled_by_an_earlier_packet_loss),
      cmocka_unit_test(done_coordinator_waits_for_members_that_left_in_its_stall),
      cmocka_unit_test(answers_of_departed_members_are_not_enough),
      cmocka_unit_test(member_alone_in_a_view_returns_to_the_one_before),
      cmocka_unit_test(coordinator_left_by_most_of_the_living_follows_them),
      cmocka_unit_test(members_named_by_the_other_coordinator_have_left),
      cmocka_unit_test(coordinator_that_stalled_while_asking_may_be_left),
      cmocka_unit_test(resumed_coordinator_listens_before_it_recalls_members),
      cmocka_unit_test(member_missed_by_a_liar_alone_gets_the_full_time),
      cmocka_unit_test(member_that_opens_a_stream_is_no_suspect),
      cmocka_unit_test(lone_liar_with_many_charges_does_not_sway_the_coordinator),
      cmocka_unit_test(member_that_closed_its_stream_gets_the_full_answer_time),
      cmocka_unit_test(second_lost_coordinator_is_not_waited_for_twice_as_long),
      cmocka_unit_test(checker_knows_a_member_that_returned_and_died),
      cmocka_unit_test(member_without_values_stays_in_the_view_of_the_others),
      cmocka_unit_test(coordinator_left_by_all_joins_the_one_that_reported),
      cmocka_unit_test(smaller_coordinator_returns_with_its_members),
      cmocka_unit_test(lone_coordinator_returns_to_the_one_before),
      cmocka_unit_test(member_joins_a_failed_coordinator_at_its_first_message),
      cmocka_unit_test(returning_member_gets_time_from_the_others_arrival),
      cmocka_unit_test(member_that_misses_a_dead_coordinator_late_finds_others),
      cmocka_unit_test(recalled_member_does_not_move_to_a_later_coordinator),
      cmocka_unit_test(checker_knows_a_member_that_joined_another_round_later),
      cmocka_unit_test(checker_knows_returned_members_beside_liars),
      cmocka_unit_test(late_member_joins_the_coordinator_of_the_others),
  };
  return cmocka_run_group_tests_name("seeds of averaging", tests, NULL, NULL);
}
