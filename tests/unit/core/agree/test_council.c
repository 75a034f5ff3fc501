/* The coordinator of a round receives the members' reports of each other, at the moments of the reports. */
#include "lib/council_scene.h"

/* The coordinator cannot reach the fourth member, and asks all. Its ask reaches the fourth member late: by then two have stopped
 * and answered, and the fourth reports their streams as broken. The coordinator does not doubt it for that, however often it
 * happens. */
static void member_is_never_doubted_for_streams_broken_by_an_ask(void **unused) {
  (void)unused;
  scene s;
  set_scene(&s, 0);
  hv_members none = {{0}}, fourth = set_of(8);
  for (size_t i = 1; i < MEMBERS; i++)
    comes(&s, i);
  for (int k = 1; k <= 2; k++) {
    uint32_t view = s.w.view->number;
    hv_council_trouble(s.w.council, &fourth, &none, &none, &none);
    hv_council_report(s.w.council);
    answers(&s, 1);
    answers(&s, 2);
    says(&s, 3, HV_NEWS_TROUBLE, view, 2 | 4, NULL);
    answers(&s, 3);
    answers(&s, 4);
    assert_int_equal(s.w.plans[3], k);
    assert_int_equal(s.w.told[3].bits[0], 31);
  }
  strike_scene(&s);
}

/* The first coordinator is lost, and so is the second one's stream to the third member: because that is lost as well, or because it
 * has stopped, since it alone had heard of a view. The other two come at once, that one later. */
static void comes_later(scene *s, int stopped) {
  set_scene(s, 1);
  hv_members none = {{0}}, lost = set_of(1 | 4), third = set_of(4);
  hv_council_trouble(s->w.council, &lost, &none, &none, stopped ? &third : &none);
  is_lost(s, 0);
  hv_council_report(s->w.council);
  for (size_t i = 3; i < MEMBERS; i++) {
    comes(s, i);
    answers(s, i);
  }
  wait_us(s, STALL_MS * 1000);
}

static void member_that_stopped_has_time_to_miss_its_coordinator(void **unused) {
  (void)unused;
  scene s;
  comes_later(&s, 0);
  assert_int_equal(s.w.told[3].bits[0], 2 | 8 | 16);
  strike_scene(&s);
  comes_later(&s, 1);
  assert_int_equal(s.w.plans[3], 0);
  comes(&s, 2);
  answers(&s, 2);
  wait_us(&s, 2 * STALL_MS * 1000); /* the first one is not waited for any longer */
  assert_int_equal(s.w.told[2].bits[0], 2 | 4 | 8 | 16);
  assert_int_equal(s.w.told[3].bits[0], 2 | 4 | 8 | 16);
  strike_scene(&s);
}

/* The coordinator's stream to the fourth member broke, as that one is lost, or as it broke it off itself: then it lives, and its
 * answer may come later than a suspect's. */
static void member_that_closed_its_stream_gets_the_full_answer_time(void **unused) {
  (void)unused;
  for (int itself = 0; itself < 2; itself++) {
    scene s;
    set_scene(&s, 0);
    hv_members none = {{0}}, fourth = set_of(8);
    for (size_t i = 1; i < MEMBERS; i++)
      comes(&s, i);
    hv_council_trouble(s.w.council, &fourth, &none, &none, itself ? &fourth : &none);
    hv_council_report(s.w.council);
    answers(&s, 1);
    answers(&s, 2);
    answers(&s, 4);
    wait_us(&s, STALL_MS * 1000 / 2);
    assert_int_equal(s.w.plans[1], !itself);
    if (itself)
      answers(&s, 3);
    assert_int_equal(s.w.told[1].bits[0], itself ? 31 : 31 & ~8);
    strike_scene(&s);
  }
}

/* The second member says that it cannot reach the fourth one, which has not come yet. Its line is lost on its way, but it opens
 * another stream meanwhile. */
static void member_that_opens_a_stream_is_no_suspect(void **unused) {
  (void)unused;
  for (int seen = 0; seen < 2; seen++) {
    scene s;
    set_scene(&s, 0);
    comes(&s, 1);
    comes(&s, 2);
    comes(&s, 4);
    says(&s, 1, HV_NEWS_TROUBLE, 0, 8, NULL);
    hv_council_report(s.w.council);
    answers(&s, 1);
    answers(&s, 2);
    answers(&s, 4);
    if (seen)
      hv_council_seen(s.w.council, 3);
    wait_us(&s, STALL_MS * 1000 / 2);
    assert_int_equal(s.w.plans[1], !seen);
    if (seen) {
      comes(&s, 3);
      answers(&s, 3);
    }
    assert_int_equal(s.w.told[1].bits[0], seen ? 31 : 31 & ~8);
    strike_scene(&s);
  }
}

/* Its timer is late by so much. */
static void stands_still_us(scene *s, uint64_t us) {
  s->w.due_us = s->w.fake.now_us += us;
}

/* The second member says that it cannot reach the fourth one. The coordinator has heard nothing of that for longer than a suspect
 * is waited for, but for what came while it stood still, or it has just heard something. */
static void is_named(scene *s, int stood_still, int just_heard) {
  set_scene(s, 0);
  for (size_t i = 1; i < MEMBERS; i++)
    comes(s, i);
  wait_us(s, STALL_MS * 1000 / 2);
  if (stood_still)
    stands_still_us(s, STALL_MS * 1000 * 3 / 4);
  if (stood_still || just_heard)
    hv_pace_heard(&s->pace, 3, s->w.fake.now_us, NULL);
  if (just_heard)
    wait_us(s, STALL_MS * 1000 / 5);
  says(s, 1, HV_NEWS_TROUBLE, 0, 8, NULL);
  if (stood_still)
    wait_us(s, STALL_MS * 1000 / 5);
  hv_council_report(s->w.council);
  answers(s, 1);
  answers(s, 2);
  answers(s, 4);
  wait_us(s, STALL_MS * 1000 / 2);
  assert_int_equal(s->w.plans[1], !just_heard);
  if (just_heard)
    answers(s, 3);
  assert_int_equal(s->w.told[1].bits[0], just_heard ? 31 : 31 & ~8);
  strike_scene(s);
}

static void member_just_heard_by_the_coordinator_is_no_suspect(void **unused) {
  (void)unused;
  scene s;
  is_named(&s, 0, 0);
  is_named(&s, 1, 0);
  is_named(&s, 0, 1);
}

/* The coordinator misses the last `missed` members, whom it waits for while they are a suspect's time late; the others answer. */
static void misses(scene *s, size_t missed) {
  set_scene(s, 0);
  hv_members none = {{0}}, lost = {{0}};
  for (size_t i = 1; i < MEMBERS; i++) {
    comes(s, i);
    if (i >= MEMBERS - missed)
      hv_members_put(&lost, i);
  }
  hv_council_trouble(s->w.council, &lost, &lost, &none, &none);
  hv_council_report(s->w.council);
  for (size_t i = 1; i < MEMBERS - missed; i++)
    answers(s, i);
}

static void coordinator_with_under_half_of_the_answers_waits(void **unused) {
  (void)unused;
  scene s;
  misses(&s, 2);
  wait_us(&s, STALL_MS * 1000 / 2);
  assert_int_equal(s.w.told[1].bits[0], 1 | 2 | 4);
  strike_scene(&s);
  misses(&s, 3);
  says(&s, 2, HV_NEWS_HERE, 0, 2, NULL); /* it attends another one meanwhile */
  wait_us(&s, STALL_MS * 1000 * 3 / 2);
  assert_int_equal(s.w.plans[1], 0);
  for (size_t i = 2; i < MEMBERS; i++)
    answers(&s, i);
  assert_int_equal(s.w.told[1].bits[0], 31);
  strike_scene(&s);
  misses(&s, 3);
  wait_us(&s, STALL_MS * 1000 * 5 / 2); /* not for good */
  assert_int_equal(s.w.told[1].bits[0], 1 | 2);
  strike_scene(&s);
}

/* The last one goes to another coordinator while this one asks. */
static void asks_while_one_goes(scene *s) {
  set_scene(s, 0);
  hv_members none = {{0}};
  for (size_t i = 1; i < MEMBERS; i++)
    comes(s, i);
  hv_council_trouble(s->w.council, &none, &none, &none, &none);
  hv_council_report(s->w.council);
  wait_us(s, 1);
  says(s, 4, HV_NEWS_HERE, 0, 2, NULL);
  for (size_t i = 1; i < 4; i++)
    answers(s, i);
}

/* The last one's line ends, as it does when the other one asks. */
static void asks_while_the_line_of_one_ends(scene *s) {
  asks_while_one_goes(s);
  hv_stream *line = &s->w.streams[4];
  line->on->closed(line, &(hv_event){.kind = HV_EVENT_STREAM_CLOSED, .status = HV_CANCELLED, .text = ""});
}

/* The first of the others comes from the one that the last one attends, and all are asked anew. */
static void asks_anew_for_one_who_was_with_it(scene *s) {
  asks_while_one_goes(s);
  wait_us(s, STALL_MS * 1000 / 5);
  hv_msg_attend attend = {.member = 1, .view = s->w.asked + 1};
  hv_council_opened(s->w.council, &attend, &s->w.streams[1]);
  hv_council_report(s->w.council);
  for (size_t i = 1; i < 4; i++)
    answers(s, i);
  wait_us(s, STALL_MS * 1000 / 5);
}

static void member_asked_elsewhere_has_suspect_time_to_return(void **unused) {
  static void (*const asks[])(scene *) = {asks_while_the_line_of_one_ends, asks_anew_for_one_who_was_with_it};
  (void)unused;
  scene s;
  for (size_t k = 0; k < 2; k++) {
    asks[k](&s);
    assert_int_equal(s.w.plans[1], 0);
    comes(&s, 4);
    answers(&s, 4);
    assert_int_equal(s.w.told[1].bits[0], 31);
    strike_scene(&s);
    asks[k](&s);
    wait_us(&s, STALL_MS * 1000 / 2);
    assert_int_equal(s.w.told[1].bits[0], 15);
    strike_scene(&s);
  }
}

static void member_that_leaves_while_asked_has_time_to_return(void **unused) {
  (void)unused;
  scene s;
  asks_while_one_goes(&s);
  assert_int_equal(s.w.plans[1], 0);
  comes(&s, 4);
  answers(&s, 4);
  assert_int_equal(s.w.told[1].bits[0], 31);
  strike_scene(&s);
  asks_while_one_goes(&s);
  wait_us(&s, STALL_MS * 1000 / 2);
  assert_int_equal(s.w.told[1].bits[0], 15);
  strike_scene(&s);
}

/* All are with another one meanwhile, as far as they have said, when the one who coordinates has everything. */
static void asking_coordinator_does_not_declare_the_round_finished(void **unused) {
  (void)unused;
  scene s;
  misses(&s, 0);
  assert_int_equal(s.w.plans[1], 1);
  says(&s, 1, HV_NEWS_TROUBLE, s.w.view->number, 0, NULL);
  hv_council_report(s.w.council);
  for (size_t i = 1; i < MEMBERS; i++)
    says(&s, i, HV_NEWS_HERE, 0, 2, NULL);
  hv_council_done(s.w.council);
  assert_int_equal(s.w.finished, 0);
  for (size_t i = 1; i < MEMBERS; i++)
    says(&s, i, HV_NEWS_TROUBLE, s.w.view->number, 0, NULL); /* they are back */
  for (size_t i = 1; i < MEMBERS; i++)
    answers(&s, i);
  assert_int_equal(s.w.plans[1], 2);
  assert_int_equal(s.w.told[1].bits[0], 31);
  strike_scene(&s);
}

static void all_are_in_the_first_view(hv_view_report *reports) {
  static const uint8_t nothing[1] = {0};
  for (size_t i = 0; i < MEMBERS; i++)
    reports[i] = (hv_view_report){.members = set_of((1 << MEMBERS) - 1), .promised = 9 * MEMBERS, .held = nothing};
}

/* The first coordinator asks for a view, all answer, and it tells the plan for these. */
static void hears_the_plan(scene *s, uint32_t number, unsigned named, const hv_view_report *reports) {
  hv_members these = set_of(named);
  hv_view *view;
  says_on(s, &s->w.lines[0], HV_NEWS_ASK, number, 0, NULL);
  hv_council_report(s->w.council);
  assert_int_equal(hv_view_plan(&s->w.fake.mem, &s->round, number, reports, &these, &these, &view), HV_OK);
  hv_payload *plan = hv_view_write(&s->w.fake.mem, &s->round, view);
  says_from(s, &s->w.lines[0], HV_NEWS_PLAN, view->latest, number, named, plan);
  hv_view_free(view);
  hv_payload_release(plan);
}

/* The first view after the group's own; nobody holds anything. */
static void hears_a_plan(scene *s, unsigned named) {
  hv_view_report reports[MEMBERS];
  all_are_in_the_first_view(reports);
  hears_the_plan(s, MEMBERS, named, reports);
  assert_int_equal(s->w.view->number, MEMBERS);
}

/* The coordinator's averages do not come; it said on its line so long ago that it is there. */
static void waits_in_vain(scene *s, uint64_t us) {
  hv_members none = {{0}}, first = set_of(1);
  wait_us(s, STALL_MS * 1000 / 2);
  says_on(s, &s->w.lines[0], HV_NEWS_HERE, 0, 0, NULL);
  wait_us(s, us);
  hv_council_trouble(s->w.council, &first, &first, &none, &none);
}

/* The coordinator owns chunks, gets nothing from others, and reports that it is alive. It is asked in one view before it is given
 * up. */
static void coordinator_that_reports_is_asked_once_before_replacement(void **unused) {
  (void)unused;
  scene s;
  set_scene(&s, 1);
  waits_in_vain(&s, STALL_MS * 1000 / 4);
  assert_int_equal(hv_council_chair(s.w.council), 0);
  assert_int_equal(s.w.troubles, 1);
  waits_in_vain(&s, 0); /* there is more trouble in that view */
  assert_int_equal(hv_council_chair(s.w.council), 0);
  hears_a_plan(&s, 31);
  waits_in_vain(&s, STALL_MS * 1000 / 4);
  assert_int_equal(hv_council_chair(s.w.council), 1);
  strike_scene(&s);
  set_scene(&s, 1);
  waits_in_vain(&s, STALL_MS * 1000 * 3 / 4); /* its line is as silent */
  assert_int_equal(hv_council_chair(s.w.council), 1);
  strike_scene(&s);
}

/* The first coordinator asks, has the answer, stands still, and is there again when this member attends the second one: it has as
 * long to tell its plan as if it had never been away. */
static void coordinator_with_answers_is_waited_for_after_it_was_missed(void **unused) {
  (void)unused;
  scene s;
  set_scene(&s, 3);
  says_on(&s, &s.w.lines[0], HV_NEWS_ASK, MEMBERS, 0, NULL);
  hv_council_report(s.w.council);
  wait_us(&s, STALL_MS * 1000 * 6 / 5);
  assert_int_equal(s.w.n_lines, 2);
  for (int tenths = 0; tenths < 38; tenths++) {
    says_on(&s, &s.w.lines[0], HV_NEWS_HERE, 0, 0, NULL);
    wait_us(&s, STALL_MS * 1000 / 10);
  }
  assert_int_equal(s.w.n_lines, 2);
  for (int tenths = 0; tenths < 4; tenths++) {
    says_on(&s, &s.w.lines[0], HV_NEWS_HERE, 0, 0, NULL);
    wait_us(&s, STALL_MS * 1000 / 10);
  }
  assert_int_equal(s.w.n_lines, 3); /* not for good */
  strike_scene(&s);
}

/* This member was in a view with some others, whose coordinator is lost; the next one is with those who were not in it, and puts it
 * out. It comes next itself, and goes on with who is left. */
static void member_excluded_elsewhere_continues_with_its_own_view(void **unused) {
  (void)unused;
  scene s;
  set_scene(&s, 2);
  hears_a_plan(&s, 1 | 2 | 4 | 8);
  is_lost(&s, 0);
  assert_int_equal(s.w.n_lines, 2);
  hv_members none = {{0}}, lost = set_of(1);
  hv_council_trouble(s.w.council, &lost, &none, &none, &none);
  says_on(&s, &s.w.lines[1], HV_NEWS_OUT, 3 * MEMBERS + 1, 0, NULL);
  hv_council_report(s.w.council);
  comes(&s, 3);
  answers(&s, 3);
  wait_us(&s, 3 * STALL_MS * 1000);
  assert_int_equal(s.w.told[3].bits[0], 4 | 8);
  strike_scene(&s);
}

/* The last member has a plan without one member. Its coordinator is lost, and it hears from the next one who coordinates. */
static void is_alone_in_a_view(scene *s, unsigned left_out) {
  set_scene(s, 4);
  hears_a_plan(s, 31 & ~left_out);
  is_lost(s, 0);
}

static void hears_who_coordinates(scene *s, size_t line, unsigned who) {
  says_on(s, &s->w.lines[line], HV_NEWS_HERE, 0, who, NULL);
}

static void is_asked_by_1(scene *s) {
  says_on(s, &s->w.lines[2], HV_NEWS_ASK, 2 * MEMBERS + 1, 0, NULL);
  hv_council_report(s->w.council);
}

static void member_alone_in_a_view_returns_with_the_others(void **unused) {
  (void)unused;
  scene s;
  is_alone_in_a_view(&s, 2);
  assert_int_equal(hv_council_chair(s.w.council), 2);
  hears_who_coordinates(&s, 1, 2);
  assert_int_equal(hv_council_chair(s.w.council), 1);
  is_asked_by_1(&s);
  assert_int_equal(s.w.reported_view, 0);
  assert_int_equal(s.w.reported.bits[0], 31);
  is_lost(&s, 2);
  assert_int_equal(hv_council_chair(s.w.council), 2);
  hears_who_coordinates(&s, 3, 2); /* it is not sent to and fro */
  assert_int_equal(hv_council_chair(s.w.council), 2);
  strike_scene(&s);
}

static void an_average_of_a_view_holds_its_member_there(void **unused) {
  (void)unused;
  scene s;
  hv_members those = set_of(16);
  is_alone_in_a_view(&s, 2);
  hv_hold_put(&s.hold, 0, &those, MEMBERS);
  hears_who_coordinates(&s, 1, 2);
  assert_int_equal(hv_council_chair(s.w.council), 2);
  strike_scene(&s);
  is_alone_in_a_view(&s, 2);
  hears_who_coordinates(&s, 1, 2);
  hv_hold_put(&s.hold, 0, &those, MEMBERS); /* it was being decoded */
  is_asked_by_1(&s);
  assert_int_equal(s.w.reported_view, MEMBERS);
  assert_int_equal(s.w.reported.bits[0], 31 & ~2);
  strike_scene(&s);
}

/* An auxiliary cannot tell whether anything was averaged. And whoever says that it attends one who is later in order passes over
 * others of the view. */
static void members_of_a_valid_view_stay_in_it(void **unused) {
  (void)unused;
  scene s;
  is_alone_in_a_view(&s, 2);
  hears_who_coordinates(&s, 1, 8); /* who is in the view */
  assert_int_equal(hv_council_chair(s.w.council), 2);
  strike_scene(&s);
  is_alone_in_a_view(&s, 8);
  hears_who_coordinates(&s, 1, 8);
  assert_int_equal(hv_council_chair(s.w.council), 1);
  strike_scene(&s);
  is_alone_in_a_view(&s, 2);
  s.members[4].auxiliary = 1;
  hears_who_coordinates(&s, 1, 2);
  assert_int_equal(hv_council_chair(s.w.council), 2);
  strike_scene(&s);
}

/* This member, the last one, is in a view without the second, as the others are, but for those of `lacking`, whom its plan did not
 * reach. Those of `holders` hold the first chunk; 1 was in the view before, or in one after it with all, whose plan this one lacks.
 * Then there is a view of all. */
static void is_with_one_left_out_before(unsigned holders, unsigned lacking, int was_in_a_later_one, int is_in) {
  static const uint8_t first[1] = {1};
  scene s;
  hv_view_report reports[MEMBERS];
  hv_members those = set_of(16);
  set_scene(&s, 4);
  hears_a_plan(&s, 31 & ~2);
  if (holders & 16)
    hv_hold_put(&s.hold, 0, &those, MEMBERS);
  if (was_in_a_later_one)
    says_on(&s, &s.w.lines[0], HV_NEWS_ASK, 2 * MEMBERS, 0, NULL);
  all_are_in_the_first_view(reports);
  for (size_t i = 0; i < MEMBERS; i++) {
    reports[i].held = holders >> i & 1 ? first : reports[i].held;
    if (i == 1)
      reports[i].installed = was_in_a_later_one ? 2 * MEMBERS : 0;
    else if (!(lacking >> i & 1))
      reports[i].installed = MEMBERS, reports[i].members = set_of(31 & ~2);
  }
  hears_the_plan(&s, 3 * MEMBERS, 31, reports);
  assert_int_equal(s.w.view->number, is_in ? 3 * MEMBERS : MEMBERS);
  assert_int_equal(hv_council_chair(s.w.council), is_in ? 0 : 2); /* whose plan contradicts what is here is given up */
  strike_scene(&s);
}

static void excluded_member_may_return_if_its_values_agree(void **unused) {
  (void)unused;
  is_with_one_left_out_before(1 | 16, 0, 0, 1);
  is_with_one_left_out_before(1 | 2 | 16, 0, 0, 0);
  is_with_one_left_out_before(1 | 2 | 8 | 16, 8, 0, 1); /* as one of the view does, from where 1 has it */
  is_with_one_left_out_before(1 | 2 | 16, 8, 0, 0);
  is_with_one_left_out_before(1 | 2 | 16, 0, 1, 1);
  is_with_one_left_out_before(1 | 2, 0, 0, 1); /* this one holds nothing */
}

/* The second member holds a chunk of the first view, and promises no view before 2 * MEMBERS. The first coordinator, which is lost
 * then, has told the fourth one the plan of a view of these two: an earlier one, or that one. The last one is in the first view,
 * too. */
static void comes_from_a_view_of_a_lost_coordinator(scene *s, uint32_t view) {
  hv_members none = {{0}}, first = set_of(1), those = set_of(31);
  set_scene(s, 1);
  hv_hold_put(&s->hold, 0, &those, 0);
  says_on(s, &s->w.lines[0], HV_NEWS_ASK, 2 * MEMBERS, 0, NULL);
  hv_council_report(s->w.council);
  is_lost(s, 0);
  hv_council_trouble(s->w.council, &first, &none, &none, &none);
  comes(s, 3);
  comes(s, 4);
  hv_council_report(s->w.council);
  answers_from(s, 3, view, 2 | 8, 3);
  answers_from(s, 4, 0, 31, 2); /* which 3 may have otherwise */
  wait_us(s, STALL_MS * 1000 * 3);
}

/* It was told of a view that this view's coordinator never promised. */
static void member_of_a_view_that_was_never_promised_is_excluded(void **unused) {
  (void)unused;
  scene s;
  comes_from_a_view_of_a_lost_coordinator(&s, MEMBERS);
  assert_int_equal(s.w.told[4].bits[0], 2 | 16);
  assert_int_equal(s.w.plans[3], 0);
  strike_scene(&s);
  comes_from_a_view_of_a_lost_coordinator(&s, 2 * MEMBERS);
  assert_int_equal(s.w.told[3].bits[0], 2 | 8);
  assert_int_equal(s.w.plans[4], 0);
  strike_scene(&s);
}

/* The others were told of a view with the last one, which holds something, or nothing, and was asked for that view, or only for one
 * before and one after it. */
static void is_with_those_of_a_view(int was_asked, int holds, int is_in) {
  static const uint8_t first[1] = {1};
  scene s;
  hv_view_report reports[MEMBERS];
  hv_members those = set_of(31);
  set_scene(&s, 4);
  if (holds)
    hv_hold_put(&s.hold, 0, &those, 0);
  says_on(&s, &s.w.lines[0], HV_NEWS_ASK, MEMBERS, 0, NULL);
  if (was_asked)
    says_on(&s, &s.w.lines[0], HV_NEWS_ASK, 2 * MEMBERS, 0, NULL);
  all_are_in_the_first_view(reports);
  for (size_t i = 0; i < MEMBERS; i++) {
    reports[i].installed = i < 4 ? 2 * MEMBERS : 0;
    reports[i].held = i < 4 || holds ? first : reports[i].held;
  }
  hears_the_plan(&s, 3 * MEMBERS, 31, reports);
  assert_int_equal(s.w.view->number, is_in ? 3 * MEMBERS : 0);
  assert_int_equal(hv_council_chair(s.w.council), is_in ? 0 : 1);
  strike_scene(&s);
}

/* The others come from a view that this member never promised. */
static void member_that_promised_no_view_leaves_if_it_holds_values(void **unused) {
  (void)unused;
  is_with_those_of_a_view(0, 1, 0);
  is_with_those_of_a_view(1, 1, 1);
  is_with_those_of_a_view(0, 0, 1);
}

/* The third member has missed the two before it, whose lines are open, and the others have come; the second one says something, and
 * they go. */
static void coordinator_left_by_all_joins_the_one_that_reported(void **unused) {
  (void)unused;
  scene s;
  hv_members first = set_of(1), none = {{0}};
  set_scene(&s, 2);
  hv_council_trouble(s.w.council, &first, &none, &none, &none);
  for (int k = 0; k < 64 && hv_council_chair(s.w.council) != 2; k++)
    wait_us(&s, STALL_MS * 1000 / 8);
  hv_council_report(s.w.council);
  comes(&s, 3);
  comes(&s, 4);
  says_on(&s, &s.w.lines[1], HV_NEWS_HERE, 0, 0, NULL);
  assert_int_equal(hv_council_chair(s.w.council), 2);
  for (size_t i = 3; i < MEMBERS; i++)
    s.w.streams[i].on->closed(&s.w.streams[i], &(hv_event){.kind = HV_EVENT_STREAM_CLOSED, .status = HV_CANCELLED, .text = ""});
  for (int k = 0; k < 64 && hv_council_chair(s.w.council) == 2; k++)
    wait_us(&s, STALL_MS * 1000 / 8);
  assert_int_equal(hv_council_chair(s.w.council), 1);
  strike_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(member_is_never_doubted_for_streams_broken_by_an_ask),
      cmocka_unit_test(coordinator_with_under_half_of_the_answers_waits),
      cmocka_unit_test(member_that_leaves_while_asked_has_time_to_return),
      cmocka_unit_test(member_asked_elsewhere_has_suspect_time_to_return),
      cmocka_unit_test(asking_coordinator_does_not_declare_the_round_finished),
      cmocka_unit_test(coordinator_that_reports_is_asked_once_before_replacement),
      cmocka_unit_test(coordinator_with_answers_is_waited_for_after_it_was_missed),
      cmocka_unit_test(member_excluded_elsewhere_continues_with_its_own_view),
      cmocka_unit_test(member_that_stopped_has_time_to_miss_its_coordinator),
      cmocka_unit_test(member_that_closed_its_stream_gets_the_full_answer_time),
      cmocka_unit_test(member_that_opens_a_stream_is_no_suspect),
      cmocka_unit_test(member_just_heard_by_the_coordinator_is_no_suspect),
      cmocka_unit_test(member_alone_in_a_view_returns_with_the_others),
      cmocka_unit_test(an_average_of_a_view_holds_its_member_there),
      cmocka_unit_test(members_of_a_valid_view_stay_in_it),
      cmocka_unit_test(coordinator_left_by_all_joins_the_one_that_reported),
      cmocka_unit_test(excluded_member_may_return_if_its_values_agree),
      cmocka_unit_test(member_of_a_view_that_was_never_promised_is_excluded),
      cmocka_unit_test(member_that_promised_no_view_leaves_if_it_holds_values),
  };
  return cmocka_run_group_tests_name("council", tests, NULL, NULL);
}
