/* The members that a round excludes, and the views that it believes: the harm that a lone liar can do to the others. */
#include "lib/check.h"

#include "core/agree/doubts.h"

enum { MEMBERS = 8, COORDINATOR = 7 };

typedef struct fixture {
  hv_mem mem;
  hv_doubts doubts;
} fixture;

static hv_members set_of(unsigned bits) {
  return (hv_members){{(uint8_t)bits}};
}

static hv_members everybody(void) {
  return set_of(255);
}

static int setup(void **state) {
  static fixture f;
  hv_mem_init(&f.mem, NULL, HV_MEM_UNLIMITED);
  *state = &f;
  return hv_doubts_init(&f.doubts, &f.mem, MEMBERS, COORDINATOR) != HV_OK;
}

static int teardown(void **state) {
  fixture *f = *state;
  hv_doubts_fini(&f->doubts);
  return atomic_load(&f->mem.blocks) != 0;
}

static void charge(hv_doubts *d, size_t who, size_t whom) {
  hv_members liars = {{0}};
  hv_members_put(&liars, whom);
  hv_doubts_false(d, who, &liars);
}

static void weigh(hv_doubts *d) {
  hv_members here = everybody();
  hv_doubts_weigh(d, &here);
}

/* The sender has trouble with others itself. That does not help it. */
static void false_values_cost_their_sender_its_spans_at_once(void **state) {
  hv_doubts *d = &((fixture *)*state)->doubts;
  hv_members others = set_of(1 << 1 | 1 << 2);
  hv_doubts_trouble(d, 5, 0, &others);
  charge(d, 0, 5);
  charge(d, 1, 5);
  weigh(d);
  assert_true(hv_members_has(&d->no_owner, 5));
  assert_int_equal(hv_members_count(&d->no_owner), 1);
  assert_int_equal(hv_members_count(&d->barred), 0);
  charge(d, 3, 5); /* it had to forward what it alone held, and did so badly */
  weigh(d);
  assert_true(hv_members_has(&d->barred, 5));
  assert_int_equal(hv_members_count(&d->barred), 1);
}

static void member_that_alone_charges_one_after_another_is_barred(void **state) {
  hv_doubts *d = &((fixture *)*state)->doubts;
  for (size_t i = 1; i < MEMBERS; i++) {
    charge(d, 0, i);
    weigh(d);
  }
  assert_int_equal(hv_members_count(&d->barred), 1);
  assert_true(hv_members_has(&d->barred, 0));
}

static void reports_of_a_charged_member_hasten_nobody(void **state) {
  hv_doubts *d = &((fixture *)*state)->doubts;
  hv_members one = set_of(1 << 1), other = set_of(1 << 2);
  hv_doubts_unseen(d, 5, &one);
  hv_doubts_unseen(d, 6, &other);
  assert_true(hv_doubts_believes(d, 5));
  charge(d, 0, 5);
  assert_false(hv_doubts_believes(d, 5)); /* so far it is only said; but who is missed may have broken off for that */
  hv_members missed = hv_doubts_missed(d);
  assert_true(hv_members_equal(&missed, &other));
  hv_doubts_unseen(d, COORDINATOR, &one);
  missed = hv_doubts_missed(d);
  assert_true(hv_members_has(&missed, 1));
  charge(d, 1, 5);
  weigh(d);
  assert_false(hv_doubts_believes(d, 5));
  assert_true(hv_doubts_believes(d, 0));
}

/* In a group of three a quarter is one member: both charges are of that one. */
static void repeated_charge_of_one_member_counts_once(void **state) {
  hv_doubts small;
  hv_members here = set_of(1 << 0 | 1 << 1 | 1 << 2);
  assert_int_equal(hv_doubts_init(&small, &((fixture *)*state)->mem, 3, 0), HV_OK);
  charge(&small, 2, 0);
  hv_doubts_weigh(&small, &here);
  assert_true(hv_members_has(&small.no_owner, 0));
  assert_int_equal(hv_members_count(&small.barred), 0);
  charge(&small, 2, 0);
  hv_doubts_weigh(&small, &here);
  assert_true(hv_members_has(&small.barred, 0));
  assert_int_equal(hv_members_count(&small.barred), 1);
  charge(&small, 2, 1); /* a second one, and alone again */
  hv_doubts_weigh(&small, &here);
  assert_true(hv_members_has(&small.barred, 2));
  assert_false(hv_members_has(&small.no_owner, 1));
  hv_doubts_fini(&small);
}

/* Two of the members lie, and each is charged by another member, too, in one view or another. Those charges are not of one member
 * alone. */
static void charge_shared_by_another_member_is_not_a_lone_charge(void **state) {
  hv_doubts *d = &((fixture *)*state)->doubts;
  charge(d, 0, 1);
  weigh(d);
  charge(d, 0, 2);
  weigh(d);
  charge(d, 3, 1); /* later than the first one */
  weigh(d);
  assert_true(hv_members_has(&d->barred, 1)); /* it was false again */
  charge(d, 4, 5);
  weigh(d);
  charge(d, 0, 5); /* and earlier */
  weigh(d);
  charge(d, 0, 6);
  weigh(d);
  assert_false(hv_members_has(&d->barred, 0));
  charge(d, 0, 3); /* 2, 6 and 3 it charges alone */
  weigh(d);
  assert_true(hv_members_has(&d->barred, 0));
}

/* Half of four lie. Another one than the coordinator would be out for that. */
static void coordinator_trusts_itself_unless_that_bars_all_others(void **state) {
  hv_members here = set_of(1 << 0 | 1 << 1 | 1 << 2 | 1 << 3);
  for (size_t me = 0; me < 2; me++) {
    hv_doubts four;
    assert_int_equal(hv_doubts_init(&four, &((fixture *)*state)->mem, 4, me), HV_OK);
    charge(&four, 1, 2);
    hv_doubts_weigh(&four, &here);
    charge(&four, 1, 3);
    hv_doubts_weigh(&four, &here);
    assert_int_equal(hv_members_has(&four.no_owner, 3), me == 1);
    assert_int_equal(hv_members_has(&four.barred, 1), me != 1);
    charge(&four, 1, 0); /* all the others */
    hv_doubts_weigh(&four, &here);
    assert_true(hv_members_has(&four.barred, 1));
    assert_int_equal(hv_members_count(&four.barred), 1);
    hv_doubts_fini(&four);
  }
}

/* It alone would have the coordinator excluded, and many of the few that are left (seed 1032030). */
static void lone_accuser_of_the_coordinator_and_many_is_barred(void **state) {
  hv_members five = set_of(1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7), six = set_of(1 << 4);
  hv_members_join(&six, &five);
  for (int n = 5; n <= 6; n++) {
    hv_doubts d;
    assert_int_equal(hv_doubts_init(&d, &((fixture *)*state)->mem, 9, COORDINATOR), HV_OK);
    hv_members here = n == 5 ? five : six;
    charge(&d, 0, COORDINATOR);
    charge(&d, 0, 1);
    hv_doubts_weigh(&d, &here);
    assert_true(hv_members_has(&d.no_owner, COORDINATOR) && hv_members_has(&d.no_owner, 1));
    charge(&d, 0, COORDINATOR);
    if (n == 5)
      charge(&d, 0, 2); /* three of five; of nine they would not be too many, and with two of six it is the coordinator that goes */
    hv_doubts_weigh(&d, &here);
    assert_int_equal(hv_members_has(&d.barred, 0), n == 5);
    assert_int_equal(hv_members_has(&d.barred, COORDINATOR), n == 6);
    hv_doubts_fini(&d);
  }
}

static void too_many_charges_at_once_harm_the_accuser_only(void **state) {
  hv_doubts *d = &((fixture *)*state)->doubts;
  for (size_t i = 1; i < 4; i++)
    charge(d, 0, i);
  weigh(d);
  assert_true(hv_members_has(&d->barred, 0));
  assert_int_equal(hv_members_count(&d->barred), 1);
  assert_int_equal(hv_members_count(&d->no_owner), 0);
}

static void reports_of_a_member_about_itself_are_ignored(void **state) {
  hv_doubts *d = &((fixture *)*state)->doubts;
  charge(d, 0, 0); /* of itself it is not heard */
  weigh(d);
  assert_int_equal(hv_members_count(&d->no_owner), 0);
}

/* If the member broke off the stream itself, the member at the other end loses its spans. */
static void member_unreached_twice_owns_nothing(void **state) {
  hv_doubts *d = &((fixture *)*state)->doubts;
  hv_members second = set_of(1 << 2), third = set_of(1 << 3), fourth = set_of(1 << 4);
  for (uint32_t view = 0; view < 2; view++) {
    assert_int_equal(hv_members_count(&d->no_owner), 0);
    hv_doubts_unseen(d, 0, &third);
    hv_doubts_unseen(d, 1, &second);
    hv_doubts_trouble(d, 2, view * MEMBERS, &fourth);
    weigh(d);
  }
  assert_true(hv_members_has(&d->no_owner, 3));
  assert_false(hv_members_has(&d->no_owner, 2)); /* but whom it broke off for */
  assert_true(hv_members_has(&d->no_owner, 4));
  assert_int_equal(hv_members_count(&d->no_owner), 2);
  hv_doubts_unseen(d, 0, &second); /* alone, and of a second one */
  weigh(d);
  hv_doubts_unseen(d, 0, &second);
  weigh(d);
  assert_true(hv_members_has(&d->barred, 0));
}

/* Member 3 alone holds something. Member 0 does not reach it, so the copies are relayed by another one. */
static void member_that_misses_a_lone_holder_twice_owns_nothing(void **state) {
  hv_doubts *d = &((fixture *)*state)->doubts;
  hv_members third = set_of(1 << 3);
  hv_members_put(&d->no_owner, 3);
  for (int view = 0; view < 2; view++) {
    assert_false(hv_members_has(&d->no_owner, 0));
    hv_doubts_unseen(d, 0, &third);
    weigh(d);
  }
  assert_true(hv_members_has(&d->no_owner, 0));
  assert_int_equal(hv_members_count(&d->barred), 0);
  for (size_t view = 0; view < 4; view++) {
    assert_int_equal(hv_members_count(&d->barred), 0);
    hv_doubts_unseen(d, 1 + view / 2, &third); /* nor do two others */
    weigh(d);
  }
  assert_true(hv_members_has(&d->barred, 3));
  assert_int_equal(hv_members_count(&d->barred), 1);
}

static void member_wrong_about_reachability_twice_is_not_believed(void **state) {
  hv_doubts *d = &((fixture *)*state)->doubts;
  hv_members here = set_of(0xf7), third = set_of(1 << 3), fourth = set_of(1 << 4), fifth = set_of(1 << 5);
  hv_doubts_unseen(d, 1, &third); /* it is gone indeed */
  hv_doubts_weigh(d, &here);
  hv_doubts_unseen(d, 1, &fourth);
  hv_doubts_weigh(d, &here);
  hv_doubts_unseen(d, 2, &fourth);
  hv_doubts_trouble(d, 4, 0, &fifth); /* it broke off itself: who says so is not mistaken */
  hv_doubts_weigh(d, &here);
  assert_true(hv_doubts_believes(d, 1));
  hv_doubts_unseen(d, 1, &fifth);
  hv_doubts_unseen(d, 2, &third);
  hv_doubts_weigh(d, &here);
  assert_false(hv_doubts_believes(d, 1));
  assert_true(hv_doubts_believes(d, 2));
}

/* Twice as many views with trouble as there are members are too many. */
static void trouble_counts_once_per_view_and_bars_after_its_limit(void **state) {
  hv_doubts *d = &((fixture *)*state)->doubts;
  hv_members third = set_of(1 << 3);
  for (uint32_t view = 0; view <= 2 * MEMBERS; view++) {
    assert_int_equal(hv_members_count(&d->barred), 0);
    for (int k = 0; k < 5; k++)
      hv_doubts_trouble(d, 1, view * MEMBERS, &third);
  }
  assert_true(hv_members_has(&d->barred, 1));
}

/* ---- views that are reported ---- */

typedef struct told {
  hv_run run;
  hv_round round;
  hv_view_report reports[MEMBERS];
} told;

static const uint8_t nothing[1] = {0}, something[1] = {2}, other[1] = {4};

/* Each holds something. */
static void all_in_the_first_view(told *t) {
  *t = (told){.run = {.n_chunks = 3}, .round = {.n_members = MEMBERS, .me = 2}};
  t->round.in = &t->run;
  for (size_t i = 0; i < MEMBERS; i++)
    t->reports[i] = (hv_view_report){.members = everybody(), .held = something};
}

static unsigned left(const told *t, unsigned here) {
  hv_members answered = set_of(here);
  return hv_view_left(&t->round, t->reports, &answered).bits[0];
}

static void report(told *t, size_t who, uint32_t view, unsigned members) {
  t->reports[who].installed = t->reports[who].promised = view;
  t->reports[who].members = set_of(members);
}

/* It has not got the plan of view 9, but promised. */
static void lacks_the_plan(told *t, size_t who) {
  report(t, who, 0, 0xff);
  t->reports[who].promised = 9;
}

/* The last two hold a chunk from the first view, and so does one who was in a later one, where it may have been averaged anew. */
static void the_last_two_may_differ_from(told *t, size_t who) {
  t->reports[who].held = t->reports[6].held = t->reports[7].held = other;
}

static void view_excludes_members_that_were_not_in_it(void **state) {
  told t;
  (void)state;
  all_in_the_first_view(&t);
  assert_int_equal(left(&t, 0xff), 0xff);
  for (size_t i = 0; i < 5; i++)
    report(&t, i, 9, 0x1f);
  assert_int_equal(left(&t, 0xff), 0x1f);
  lacks_the_plan(&t, 1);
  t.reports[1].held = nothing;
  assert_int_equal(left(&t, 0xf7), 0x17);
}

static void view_with_a_member_that_never_promised_is_false(void **state) {
  told t;
  (void)state;
  all_in_the_first_view(&t);
  report(&t, 6, 9, 0x44); /* with this one, which knows better */
  assert_int_equal(left(&t, 0xff), 0xbf);
  report(&t, 6, 9, 0x48); /* with another one, which was never asked */
  assert_int_equal(left(&t, 0xff), 0xbf);
  report(&t, 6, 9, 0x40); /* with nobody */
  assert_int_equal(left(&t, 0xff), 0xbf);
  report(&t, 6, 9, 0x48);
  t.reports[3].promised = 9; /* was asked, and the plan never came: but that one alone would leave out all the others */
  assert_int_equal(left(&t, 0xff), 0xbf);
  report(&t, 6, 0, 0x40);
  assert_int_equal(left(&t, 0xff), 0xff); /* nobody is left out of the first */
}

/* Its later promises do not count: until it gave the first of those it went on in its own view. */
static void coordinator_was_in_no_view_that_it_never_promised(void **state) {
  told t;
  hv_promises promises = {0};
  (void)state;
  all_in_the_first_view(&t);
  t.reports[2].promises = &promises;
  t.reports[2].promised = 11;
  hv_promises_put(&promises, 10);
  hv_promises_put(&promises, 11);
  report(&t, 6, 9, 0x44);
  assert_int_equal(left(&t, 0x44), 0x04);
  hv_promises_put(&promises, 9);
  assert_int_equal(left(&t, 0x44), 0x44);
  for (uint32_t view = 12; view < 12 + HV_PROMISES_KEPT; view++)
    hv_promises_put(&promises, view); /* it remembers only so many */
  assert_int_equal(left(&t, 0x44), 0x04);
  report(&t, 2, 9, 0x44); /* but knows where it is */
  assert_int_equal(left(&t, 0x44), 0x44);
}

static void view_has_one_plan_as_reported_by_most(void **state) {
  told t;
  (void)state;
  all_in_the_first_view(&t);
  for (size_t i = 0; i < MEMBERS; i++)
    report(&t, i, 9, 0xff);
  report(&t, 0, 9, 0x7d); /* not so, and this one knows itself */
  assert_int_equal(left(&t, 0xff), 0xfe);
  all_in_the_first_view(&t);
  for (size_t i = 0; i < 6; i++)
    t.reports[i].promised = 9; /* two of them were told the plan, */
  report(&t, 3, 9, 0x3f);
  report(&t, 4, 9, 0x3f);
  report(&t, 0, 9, 0x3d); /* and one says another */
  the_last_two_may_differ_from(&t, 3);
  assert_int_equal(left(&t, 0xff), 0x3e);
  report(&t, 0, 0, 0xff);
  report(&t, 5, 9, 0x3d); /* likewise, whoever that is: it holds what was averaged with others */
  assert_int_equal(left(&t, 0xff), 0x1f);
  t.reports[5].held = nothing;
  assert_int_equal(left(&t, 0xff), 0x3f);
}

static void view_known_to_one_is_believed_if_most_promised_it(void **state) {
  told t;
  (void)state;
  all_in_the_first_view(&t);
  for (size_t i = 0; i < 6; i++)
    t.reports[i].promised = 9;
  report(&t, 5, 9, 0x3f);
  the_last_two_may_differ_from(&t, 5);
  assert_int_equal(left(&t, 0xff), 0x3f);
}

static void member_alone_in_a_later_view_does_not_end_the_round(void **state) {
  told t;
  (void)state;
  all_in_the_first_view(&t);
  report(&t, 5, 9, 0x30); /* the other one has died */
  assert_int_equal(left(&t, 0xef), 0xcf);
  assert_int_equal(left(&t, 0), 0);
}

/* The others hold the same values. */
static void member_without_values_is_excluded_for_no_view(void **state) {
  told t;
  (void)state;
  all_in_the_first_view(&t);
  for (size_t i = 0; i < 5; i++)
    report(&t, i, 9, 0x1f);
  t.reports[6].held = nothing;
  assert_int_equal(left(&t, 0xff), 0x5f);
  assert_int_equal(left(&t, 0xbf), 0x1f); /* who has not answered is not in */
  report(&t, 6, 0, 0x40);                 /* whatever it says of the first view */
  assert_int_equal(left(&t, 0xff), 0x5f);
  report(&t, 6, 10, 0x44); /* who says what is not so is out */
  assert_int_equal(left(&t, 0xff), 0x1f);
}

/* One who is in the view, but lacks its plan, has the same copies from the same view: that plan forwards them. */
static void member_with_values_of_both_views_is_excluded_for_no_view(void **state) {
  told t;
  (void)state;
  all_in_the_first_view(&t);
  for (size_t i = 0; i < 5; i++)
    report(&t, i, 9, 0x1f);
  lacks_the_plan(&t, 1);
  assert_int_equal(left(&t, 0xff), 0xff);
  assert_int_equal(left(&t, 0xfd), 0x1d); /* nobody who is here has it from there */
  t.reports[1].promised = 8;              /* it may have that copy since the plan was made without it */
  assert_int_equal(left(&t, 0xff), 0x1f);
  report(&t, 1, 4, 0xff); /* it has another view's copy */
  t.reports[1].promised = 9;
  assert_int_equal(left(&t, 0xff), 0x1f);
  lacks_the_plan(&t, 1);
  t.reports[6].held = (const uint8_t[1]){2 | 4};
  t.reports[3].held = other; /* which may have been averaged anew */
  assert_int_equal(left(&t, 0xff), 0xbf);
}

/* No member of the view that is here has that chunk. */
static void sole_holder_of_a_value_is_excluded_for_no_view(void **state) {
  told t;
  (void)state;
  all_in_the_first_view(&t);
  for (size_t i = 0; i < 5; i++)
    report(&t, i, 9, 0x1f);
  t.reports[5].held = other;
  assert_int_equal(left(&t, 0xff), 0x3f);
  t.reports[6].held = other; /* from where the other one has it */
  assert_int_equal(left(&t, 0xff), 0x7f);
  report(&t, 6, 4, 0xff); /* from elsewhere: they may differ, so one of them is out */
  assert_int_equal(left(&t, 0xff), 0x5f);
  report(&t, 6, 0, 0xff);
  t.reports[3].held = other;
  assert_int_equal(left(&t, 0xff), 0x1f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(false_values_cost_their_sender_its_spans_at_once, setup, teardown),
      cmocka_unit_test_setup_teardown(member_that_alone_charges_one_after_another_is_barred, setup, teardown),
      cmocka_unit_test_setup_teardown(reports_of_a_charged_member_hasten_nobody, setup, teardown),
      cmocka_unit_test_setup_teardown(repeated_charge_of_one_member_counts_once, setup, teardown),
      cmocka_unit_test_setup_teardown(charge_shared_by_another_member_is_not_a_lone_charge, setup, teardown),
      cmocka_unit_test_setup_teardown(coordinator_trusts_itself_unless_that_bars_all_others, setup, teardown),
      cmocka_unit_test_setup_teardown(lone_accuser_of_the_coordinator_and_many_is_barred, setup, teardown),
      cmocka_unit_test_setup_teardown(too_many_charges_at_once_harm_the_accuser_only, setup, teardown),
      cmocka_unit_test_setup_teardown(reports_of_a_member_about_itself_are_ignored, setup, teardown),
      cmocka_unit_test_setup_teardown(member_unreached_twice_owns_nothing, setup, teardown),
      cmocka_unit_test_setup_teardown(member_that_misses_a_lone_holder_twice_owns_nothing, setup, teardown),
      cmocka_unit_test_setup_teardown(member_wrong_about_reachability_twice_is_not_believed, setup, teardown),
      cmocka_unit_test_setup_teardown(trouble_counts_once_per_view_and_bars_after_its_limit, setup, teardown),
      cmocka_unit_test(view_excludes_members_that_were_not_in_it),
      cmocka_unit_test(view_with_a_member_that_never_promised_is_false),
      cmocka_unit_test(coordinator_was_in_no_view_that_it_never_promised),
      cmocka_unit_test(view_has_one_plan_as_reported_by_most),
      cmocka_unit_test(view_known_to_one_is_believed_if_most_promised_it),
      cmocka_unit_test(member_alone_in_a_later_view_does_not_end_the_round),
      cmocka_unit_test(member_without_values_is_excluded_for_no_view),
      cmocka_unit_test(member_with_values_of_both_views_is_excluded_for_no_view),
      cmocka_unit_test(sole_holder_of_a_value_is_excluded_for_no_view),
  };
  return cmocka_run_group_tests_name("doubts", tests, NULL, NULL);
}
