/* Seeds of the swarm room `average` (12 nodes, 6 epochs, all faults; some with liars) that once found something, by their numbers;
 * the last one has 64 nodes. */
#include "sim/swarm/swarm_trouble.c"

#include "sim/swarm/swarm_average.c"
#include "sim/swarm/swarm_liar.c"

#include "sim/swarm/swarm_seed.h"

static const double six_epochs = 6 * (double)SWARM_EPOCH_US / 60e6;

static void a_silent_coordinator_is_missed_by_those_who_are_done_and_they_stay_while_others_need_them(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 6, 12, six_epochs);
  plays_well(swarm_average_play, 30, 12, six_epochs);
  plays_well(swarm_average_play, 49, 12, six_epochs);
}

static void who_was_silent_may_yet_coordinate(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 1057, 12, six_epochs);
}

static void no_try_is_begun_with_less_time_than_its_round_takes(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 10013, 12, six_epochs);
}

static void an_owner_whose_words_are_false_owns_nothing_more_and_one_alone_does_not_say_that_nobodys_values_count(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 5018, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 10224, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 10247, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 10266, 12, six_epochs);
}

static void a_coordinator_that_all_must_do_without_goes_itself(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 5072, 12, six_epochs);
}

static void a_suspect_that_says_anything_has_as_long_to_answer_as_the_others(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 60057, 12, six_epochs);
}

static void a_view_that_a_liar_alone_reports_puts_nobody_out(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 5044, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 10200, 12, six_epochs);
}

static void a_coordinator_that_never_says_it_is_there_is_missed_by_all(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 10433, 12, six_epochs);
  plays_well(swarm_average_play, 50108, 12, six_epochs);
}

static void who_coordinates_only_now_is_asked_before_it_is_given_up(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 20908, 12, six_epochs);
}

static void who_was_left_out_for_its_silence_is_a_suspect_and_asked_no_longer_than_the_others(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 5140, 12, six_epochs);
}

/* These the checker got wrong: one took who died, came back and died again for one who had been there all the time between; the
 * others were cut off when their group began, and heard of it when the others had just ended without them. */
static void who_is_gone_or_cut_off_for_longer_than_a_suspect_is_waited_for_is_not_missed_by_the_checker(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 10470, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 60411, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 55, 8, six_epochs * 4 / 6);
}

/* Two clients had BEGIN from a host that died within it; who could be dialled had not, and ended elsewhere, or died before they
 * ended. One's time was over when three who never came, one after the other, had been missed. One that had stood still before the
 * round, and came back into it, was cut off from one member only. The one of three who could be dialled died while nothing was cut.
 * (test_sim_average_checker.c holds what is not let pass.) */
static void who_began_elsewhere_or_came_back_in_time_is_known_to_the_checker(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 211677, 12, six_epochs);
  plays_well(swarm_average_play, 220064, 12, six_epochs);
  plays_well(swarm_average_play, 221316, 12, six_epochs);
  plays_well(swarm_average_play, 400538, 12, six_epochs);
  plays_well(swarm_average_play, 401861, 12, six_epochs);
  plays_well(swarm_average_play, 402523, 12, six_epochs);
}

/* It had given up a coordinator that stood still for a moment, and waited so long at another one that stood still that all others
 * had ended the round when it came back. */
static void a_second_trouble_does_not_make_the_wait_for_a_silent_coordinator_longer(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 221161, 12, six_epochs);
}

/* A line is cut one way: one breaks off because of the other, which alone holds a chunk, and had to take it from that one again and
 * again. */
static void what_one_alone_holds_goes_over_somebody_whom_it_reaches(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 301772, 12, six_epochs);
}

static void whom_a_liar_names_again_and_again_has_as_long_to_answer_as_the_others(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 301332, 12, six_epochs);
}

/* Of all the others one came, and died: they were with a coordinator that had stood still for a moment. */
static void a_coordinator_with_whom_nobody_is_left_goes_back_to_those_it_has_given_up(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 500939, 12, six_epochs);
}

/* An auxiliary that owns a chunk gave its average to one member, which was left out then; the others averaged the same values anew,
 * in another order. */
static void who_holds_what_was_averaged_anew_for_the_others_has_another_stamp(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 501926, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 503287, 12, six_epochs);
}

/* One said that it had been in the view that the others were in, but of other members. */
static void who_tells_of_other_members_of_the_same_view_is_not_believed(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 505858, 12, six_epochs);
}

/* Two of four tell what is false, and the coordinator alone hears it. */
static void a_coordinator_believes_its_own_eyes(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 507717, 12, six_epochs);
}

/* The next coordinator was not asked by the one that died, and took who had broken off its streams for that for one that is gone.
 */
static void who_stopped_for_a_coordinator_that_died_has_as_long_to_come_to_the_next_as_the_others(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 503998, 12, six_epochs);
}

/* The word that a round begins was sent in a cut, and came when the others had ended it; two hosts began a round each of the same
 * two members, both of whom had changed sides; one lost the others one after the other; one stood still for longer than a suspect
 * is waited for, and a liar had named it; one was left with a liar alone. (test_sim_average_checker.c holds what is not let pass.)
 */
static void who_was_left_alone_in_the_end_is_known_to_the_checker(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 501245, 12, six_epochs);
  plays_well(swarm_average_play, 503154, 12, six_epochs);
  plays_well(swarm_average_play, 509150, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 503105, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 505262, 12, six_epochs);
  plays_well(swarm_average_play, 601816, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 601949, 12, six_epochs);
}

/* Two coordinators were lost, and the third died when those who were done had waited for three stall_ms since they were. */
static void who_is_done_waits_anew_for_each_coordinator(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 499528, 12, six_epochs);
}

/* A coordinator was cut off while it asked, had not one's answer, and told that one alone that it is out: all others were with the
 * next one by then. */
static void who_is_told_that_it_is_out_asks_the_next_coordinator(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 600389, 12, six_epochs);
}

/* A coordinator stood still, or its words were lost, and it asked as soon as it went on. Who had just given it up coordinated
 * alone, or attended the next one, and came back when the others had the new view or had ended. */
static void who_missed_a_coordinator_goes_back_at_its_first_word_while_nobody_else_has_asked(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 602984, 12, six_epochs);
  plays_well(swarm_average_play, 604737, 12, six_epochs);
  plays_well(swarm_average_play, 614187, 12, six_epochs);
  plays_well(swarm_average_play, 616139, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 600672, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 614187, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 616139, 12, six_epochs);
}

/* All who had come to the next coordinator went back to the one before, which had stood still; it waited for others, alone. */
static void a_coordinator_whom_all_leave_again_goes_with_them(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 617644, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 617644, 12, six_epochs);
  plays_well(swarm_average_play, 617699, 12, six_epochs);
}

/* One alone had heard the second coordinator, broken off its streams when it was asked, and missed it later than the others did;
 * also where its own values had come to the next one, but not yet its first word as an owner. */
static void who_stopped_for_a_coordinator_that_others_never_heard_has_time_to_miss_it(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 614579, 12, six_epochs);
  plays_well(swarm_average_play, 860490, 12, six_epochs);
}

/* A coordinator whose streams told lies missed one member again and again, which was asked last, and had named those who had
 * stopped before it. */
static void whose_streams_broke_since_others_were_asked_is_not_out_for_that(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 623552, 12, six_epochs);
}

/* Two clients were left when the last one who could be dialled stood still, for eight seconds, and ended well then. */
static void who_misses_one_that_stands_still_is_known_to_the_checker(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 618247, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 618247, 12, six_epochs);
}

/* The plan to one member was lost, and its coordinator died 47 ms later: all others had the plan, had heard nothing of that member
 * in the new view, and the next coordinator gave it a suspect's time. */
/* Two who had been cut off with the first coordinator, and one who alone had never heard of it, had their plan, or were alone,
 * before the others came back. */
static void whom_fewer_than_half_have_answered_hastens_nobody(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 616577, 12, six_epochs);
  plays_well(swarm_average_play, 620602, 12, six_epochs);
}

/* All who had come were with another one meanwhile, and on their way back. */
static void who_asks_does_not_say_that_all_have_finished(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 625761, 12, six_epochs);
}

/* It was cut off from one other; and the last one that another could reach stood still, and ended well later. */
static void who_came_back_into_a_round_is_known_to_the_checker_for_what_it_was(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 617300, 12, six_epochs);
  plays_well(swarm_average_play, 629975, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 629975, 12, six_epochs);
}

/* It had stood still, waited for one that was gone, and had its averages on their way when the time of one who waited was over. */
static void a_coordinator_that_owns_in_vain_and_says_that_it_is_there_is_asked_before_it_is_given_up(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 660195, 12, six_epochs);
}

static void who_may_lack_the_plan_of_a_coordinator_that_died_has_time_to_miss_it(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 607726, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 607726, 12, six_epochs);
}

/* In a group of four the honest one charged both of two liars, one of whom another one had charged, too. */
static void who_is_not_alone_with_its_charges_is_not_out_for_them(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 609651, 12, six_epochs);
}

/* The time of the steps was over while two others could not reach each other; or soon after a liar had died that gave itself for
 * another one; or one had everything when its own time was over, and stayed for the others no longer; or one had stood still, and
 * came into the round when the others had waited for it for as long as for anybody; or several never had the round, and were missed
 * one after the other; or one that had stood still before stood still once more. */
static void who_is_out_of_time_since_two_others_were_cut_off_is_known_to_the_checker(void **unused) {
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

/* One coordinator had a member's answer, stood still, was missed and came back, and waited for others; its plan was 0.05 s late. */
static void who_has_the_answer_is_waited_for_as_long_after_it_was_missed(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 690009, 12, six_epochs);
}

/* One missed a coordinator that asked, went to another one, was sent back at once, and answered 0.05 s after the plan. */
static void who_goes_while_it_is_asked_has_a_suspects_time_to_come_back(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 687113, 12, six_epochs);
  plays_well(swarm_average_play, 689461, 12, six_epochs);
}

/* A first coordinator took two back, made a view with them and was cut off; the second put both out, and one of them came next. */
static void who_is_put_out_by_another_side_goes_on_with_those_of_its_own_view(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 682744, 12, six_epochs);
}

/* Two of four lied; one after the other coordinated, was out by its own count, and was waited for by the next one for three
 * seconds. */
static void a_coordinator_whose_line_has_ended_is_waited_for_no_longer_than_a_suspect(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 692426, 12, six_epochs);
}

/* It heard the last answers but one when it went on, and took the time in which it had stood still for theirs. */
static void a_coordinator_that_stood_still_while_it_asked_hears_what_came_meanwhile(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 730581, 12, six_epochs);
}

/* The one before had only stood still, and all went back to it but one, which stood still itself since it had come. */
static void a_coordinator_whom_most_have_left_goes_with_them(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 721811, 12, six_epochs);
}

/* A liar that four had charged named one that lost its coordinator's question, and then its answer. */
static void whom_one_with_false_words_names_has_as_long_to_answer_as_the_others(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 732124, 12, six_epochs);
}

/* A coordinator had stood still; one member was asked by the next one in the moment in which all others went back to it. */
static void who_was_asked_by_another_one_has_time_to_come_back(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 760243, 12, six_epochs);
}

/* Two clients, and only a liar could be dialled; nothing was cut. */
static void clients_who_are_left_with_a_liar_alone_are_known_to_the_checker(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 762107, 12, six_epochs);
}

/* A round of 3 KB lost a packet; the next one, of 5 KB, was held to 2.5 KB a second for that, and took longer than its step had. */
static void a_small_round_is_not_held_to_the_speed_of_one_that_lost_packets(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 757252, 12, six_epochs);
}

/* A coordinator that had stood still was done as it went on; all had gone to another one, came back, and lacked what it owned. */
static void who_is_done_waits_for_those_who_went_while_it_stood_still(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 810817, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 811850, 12, six_epochs);
}

/* All had answered a coordinator that stood still then, and gone to another one. */
static void the_answers_of_those_who_have_gone_are_not_enough(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 814141, 12, six_epochs);
}

/* A coordinator made a view without one member, vanished, and only a client had its plan. */
static void who_alone_is_in_a_view_goes_back_to_the_one_before(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 772436, 12, six_epochs);
}

/* Those who had gone to another one while it stood still were not half of all, as many were gone for good. */
static void who_was_left_by_most_of_those_who_are_still_there_goes_with_them(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 838931, 12, six_epochs);
}

/* A coordinator stood still as its round began, and never saw who came and went. The other one named them. */
static void those_whom_the_other_coordinator_names_have_left(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 778270, 16, six_epochs);
}

/* A coordinator stood still while it asked, and made its view at once with all who had gone but one. */
static void who_stood_still_while_it_asked_may_have_been_left(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 972292, 12, six_epochs);
}

/* Three came back to one that went on before the next one's question had reached them, each had four of ten; it died, and who came
 * after it. */
static void who_goes_on_listens_before_it_calls_anybody_back(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1054335, 12, six_epochs);
}

/* One broke off a liar's stream, and the liar said that it could not reach it; its own answer was lost in a cut of 0.2 s. */
static void whom_only_a_liar_misses_has_as_long_to_answer_as_all(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1083185, 12, six_epochs);
}

/* A liar named one that came late, whose line was lost on its way; its values came. */
static void who_opens_a_stream_lives_and_is_no_suspect(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1130036, 12, six_epochs);
}

/* A lone liar charged the honest coordinator twice, and two more of the five that were left. */
static void who_charges_many_of_the_few_left_does_not_lead_the_coordinator_astray(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1032030, 12, six_epochs);
}

/* One broke off a coordinator's stream, or refused it, as its words were false, and answered later than a suspect may. */
static void who_broke_off_itself_has_as_long_to_answer_as_all(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 952641, 12, six_epochs);
  plays_well_under(AND_LIARS, swarm_average_play, 1010554, 12, six_epochs);
}

/* Of two coordinators one after the other one stood still, and one vanished. */
static void a_second_coordinator_that_is_lost_is_not_waited_for_twice_as_long(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 788544, 8, six_epochs);
}

/* A leader had stood still before its round. One line to it was cut, so its view was without that member; 0.2 s later it vanished.
 */
static void who_came_back_before_the_round_and_died_in_it_is_known_to_the_checker(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1054355, 12, six_epochs);
}

/* Two of nine had a view's plan, and averaged a chunk; the next one left out whom that view left out, though it held nothing. */
static void who_holds_nothing_is_in_whatever_view_the_others_were_in(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1054371, 12, six_epochs);
}

/* Of the first two coordinators one is gone and one had stood still: all were called back to that one, but for who coordinated
 * meanwhile, who went to the other one first. */
static void who_is_left_by_all_goes_to_the_one_that_has_spoken(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1600401, 12, six_epochs);
}

/* Five of nine were left, three with a coordinator that had stood still and two with the next one; one of these died. */
static void who_has_fewer_than_the_one_before_goes_back_with_them(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1112737, 12, six_epochs);
}

/* A coordinator's view was without one; nobody had its plan, and it averaged a chunk with itself alone. */
static void who_is_alone_in_its_own_view_comes_back_to_the_one_before(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1248264, 12, six_epochs);
}

/* One stood still for 7.7 s, and the two others had tried it once more when it said its first word. */
static void who_was_tried_in_vain_is_attended_at_its_own_word(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 1343637, 12, six_epochs);
}

/* Where one was to go was lost on its way while the coordinator was listening. */
static void who_may_come_back_has_its_time_from_when_the_other_one_comes(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1352690, 12, six_epochs);
}

/* A coordinator died 0.07 s after its last word to one that lacked something. */
static void who_misses_a_dead_coordinator_late_finds_the_others(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1353065, 12, six_epochs);
}

/* Of three that were missed one after the other two went on; one had the first of these, and then the second one's word. */
static void who_is_called_back_does_not_go_on_to_one_that_comes_later_in_order(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 1366806, 12, six_epochs);
}

/* Two clients were left with two liars; a third that could be dialled was never told of that round, and died in another one. */
static void who_came_to_another_round_later_is_known_to_the_checker(void **unused) {
  (void)unused;
  plays_well_under(AND_LIARS, swarm_average_play, 1376572, 12, six_epochs);
}

/* The same of groups in runs with liars. */
static void who_began_elsewhere_or_came_back_in_time_beside_liars_is_known_to_the_checker(void **unused) {
  static const uint64_t seeds[] = {301007, 301710, 320135, 320597, 321684, 321893};
  (void)unused;
  for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
    plays_well_under(AND_LIARS, swarm_average_play, seeds[i], 12, six_epochs);
}

/* One of 64 nodes, up to the epoch that found it. */
static void who_hears_of_its_round_late_goes_where_the_others_are(void **unused) {
  (void)unused;
  plays_well(swarm_average_play, 720298, 64, 26 * (double)SWARM_EPOCH_US / 60e6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_silent_coordinator_is_missed_by_those_who_are_done_and_they_stay_while_others_need_them),
      cmocka_unit_test(who_was_silent_may_yet_coordinate),
      cmocka_unit_test(an_owner_whose_words_are_false_owns_nothing_more_and_one_alone_does_not_say_that_nobodys_values_count),
      cmocka_unit_test(a_coordinator_that_all_must_do_without_goes_itself),
      cmocka_unit_test(a_suspect_that_says_anything_has_as_long_to_answer_as_the_others),
      cmocka_unit_test(a_view_that_a_liar_alone_reports_puts_nobody_out),
      cmocka_unit_test(a_coordinator_that_never_says_it_is_there_is_missed_by_all),
      cmocka_unit_test(who_coordinates_only_now_is_asked_before_it_is_given_up),
      cmocka_unit_test(who_was_left_out_for_its_silence_is_a_suspect_and_asked_no_longer_than_the_others),
      cmocka_unit_test(who_is_gone_or_cut_off_for_longer_than_a_suspect_is_waited_for_is_not_missed_by_the_checker),
      cmocka_unit_test(no_try_is_begun_with_less_time_than_its_round_takes),
      cmocka_unit_test(who_began_elsewhere_or_came_back_in_time_is_known_to_the_checker),
      cmocka_unit_test(a_second_trouble_does_not_make_the_wait_for_a_silent_coordinator_longer),
      cmocka_unit_test(what_one_alone_holds_goes_over_somebody_whom_it_reaches),
      cmocka_unit_test(whom_a_liar_names_again_and_again_has_as_long_to_answer_as_the_others),
      cmocka_unit_test(a_coordinator_with_whom_nobody_is_left_goes_back_to_those_it_has_given_up),
      cmocka_unit_test(who_holds_what_was_averaged_anew_for_the_others_has_another_stamp),
      cmocka_unit_test(who_tells_of_other_members_of_the_same_view_is_not_believed),
      cmocka_unit_test(a_coordinator_believes_its_own_eyes),
      cmocka_unit_test(who_stopped_for_a_coordinator_that_died_has_as_long_to_come_to_the_next_as_the_others),
      cmocka_unit_test(who_was_left_alone_in_the_end_is_known_to_the_checker),
      cmocka_unit_test(who_is_done_waits_anew_for_each_coordinator),
      cmocka_unit_test(who_is_told_that_it_is_out_asks_the_next_coordinator),
      cmocka_unit_test(who_missed_a_coordinator_goes_back_at_its_first_word_while_nobody_else_has_asked),
      cmocka_unit_test(a_coordinator_whom_all_leave_again_goes_with_them),
      cmocka_unit_test(who_stopped_for_a_coordinator_that_others_never_heard_has_time_to_miss_it),
      cmocka_unit_test(whose_streams_broke_since_others_were_asked_is_not_out_for_that),
      cmocka_unit_test(who_misses_one_that_stands_still_is_known_to_the_checker),
      cmocka_unit_test(whom_fewer_than_half_have_answered_hastens_nobody),
      cmocka_unit_test(who_asks_does_not_say_that_all_have_finished),
      cmocka_unit_test(who_came_back_into_a_round_is_known_to_the_checker_for_what_it_was),
      cmocka_unit_test(a_coordinator_that_owns_in_vain_and_says_that_it_is_there_is_asked_before_it_is_given_up),
      cmocka_unit_test(who_may_lack_the_plan_of_a_coordinator_that_died_has_time_to_miss_it),
      cmocka_unit_test(who_is_not_alone_with_its_charges_is_not_out_for_them),
      cmocka_unit_test(who_is_out_of_time_since_two_others_were_cut_off_is_known_to_the_checker),
      cmocka_unit_test(who_has_the_answer_is_waited_for_as_long_after_it_was_missed),
      cmocka_unit_test(who_goes_while_it_is_asked_has_a_suspects_time_to_come_back),
      cmocka_unit_test(who_is_put_out_by_another_side_goes_on_with_those_of_its_own_view),
      cmocka_unit_test(a_coordinator_whose_line_has_ended_is_waited_for_no_longer_than_a_suspect),
      cmocka_unit_test(a_coordinator_that_stood_still_while_it_asked_hears_what_came_meanwhile),
      cmocka_unit_test(a_coordinator_whom_most_have_left_goes_with_them),
      cmocka_unit_test(whom_one_with_false_words_names_has_as_long_to_answer_as_the_others),
      cmocka_unit_test(who_was_asked_by_another_one_has_time_to_come_back),
      cmocka_unit_test(clients_who_are_left_with_a_liar_alone_are_known_to_the_checker),
      cmocka_unit_test(a_small_round_is_not_held_to_the_speed_of_one_that_lost_packets),
      cmocka_unit_test(who_is_done_waits_for_those_who_went_while_it_stood_still),
      cmocka_unit_test(the_answers_of_those_who_have_gone_are_not_enough),
      cmocka_unit_test(who_alone_is_in_a_view_goes_back_to_the_one_before),
      cmocka_unit_test(who_was_left_by_most_of_those_who_are_still_there_goes_with_them),
      cmocka_unit_test(those_whom_the_other_coordinator_names_have_left),
      cmocka_unit_test(who_stood_still_while_it_asked_may_have_been_left),
      cmocka_unit_test(who_goes_on_listens_before_it_calls_anybody_back),
      cmocka_unit_test(whom_only_a_liar_misses_has_as_long_to_answer_as_all),
      cmocka_unit_test(who_opens_a_stream_lives_and_is_no_suspect),
      cmocka_unit_test(who_charges_many_of_the_few_left_does_not_lead_the_coordinator_astray),
      cmocka_unit_test(who_broke_off_itself_has_as_long_to_answer_as_all),
      cmocka_unit_test(a_second_coordinator_that_is_lost_is_not_waited_for_twice_as_long),
      cmocka_unit_test(who_came_back_before_the_round_and_died_in_it_is_known_to_the_checker),
      cmocka_unit_test(who_holds_nothing_is_in_whatever_view_the_others_were_in),
      cmocka_unit_test(who_is_left_by_all_goes_to_the_one_that_has_spoken),
      cmocka_unit_test(who_has_fewer_than_the_one_before_goes_back_with_them),
      cmocka_unit_test(who_is_alone_in_its_own_view_comes_back_to_the_one_before),
      cmocka_unit_test(who_was_tried_in_vain_is_attended_at_its_own_word),
      cmocka_unit_test(who_may_come_back_has_its_time_from_when_the_other_one_comes),
      cmocka_unit_test(who_misses_a_dead_coordinator_late_finds_the_others),
      cmocka_unit_test(who_is_called_back_does_not_go_on_to_one_that_comes_later_in_order),
      cmocka_unit_test(who_came_to_another_round_later_is_known_to_the_checker),
      cmocka_unit_test(who_began_elsewhere_or_came_back_in_time_beside_liars_is_known_to_the_checker),
      cmocka_unit_test(who_hears_of_its_round_late_goes_where_the_others_are),
  };
  return cmocka_run_group_tests_name("seeds of averaging", tests, NULL, NULL);
}
