/* A coordinator that says what is not so, or a member: the others go on all the same. */
#include "lib/council_scene.h"

/* The first coordinator says that all have finished: if this member lacks something it waits for that one no more, and may still
 * call for a view. */
static void member_lacking_values_rejects_the_end_of_the_round(void **unused) {
  (void)unused;
  for (int lacks = 0; lacks < 2; lacks++) {
    scene s;
    hv_members none = {{0}}, third = set_of(4);
    set_scene(&s, 1);
    if (!lacks)
      hv_council_done(s.w.council);
    says_on(&s, &s.w.lines[0], HV_NEWS_FINISHED, 0, 0, NULL);
    assert_int_equal(hv_council_finished(s.w.council), !lacks);
    assert_int_equal(hv_council_chair(s.w.council), lacks);
    comes(&s, 3);
    hv_council_trouble(s.w.council, &third, &none, &none, &none);
    assert_int_equal(s.w.asked != 0, lacks);
    strike_scene(&s);
  }
}

/* The values that it lacked come after all. It has finished, too, with nobody left to tell it so. It has not if a view has begun
 * meanwhile. */
static void member_that_completes_after_the_end_message_has_finished(void **unused) {
  (void)unused;
  for (int asked = 0; asked < 2; asked++) {
    scene s;
    set_scene(&s, 4);
    for (size_t line = 0; line < 4; line++)
      says_on(&s, &s.w.lines[line], HV_NEWS_FINISHED, 0, 0, NULL);
    assert_int_equal(hv_council_chair(s.w.council), 4);
    assert_int_equal(hv_council_finished(s.w.council), 0);
    if (asked) {
      hv_members none = {{0}};
      hv_council_trouble(s.w.council, &none, &none, &none, &none);
    }
    hv_council_done(s.w.council);
    assert_int_equal(hv_council_finished(s.w.council), !asked);
    strike_scene(&s);
  }
}

/* The first coordinator asks, and asks, for one view or for ever higher ones. */
static void coordinator_without_a_plan_is_not_waited_for_for_ever(void **unused) {
  (void)unused;
  for (uint32_t higher = 0; higher < 2; higher++) {
    scene s;
    uint32_t view = MEMBERS;
    set_scene(&s, 3);
    for (int tenths = 0; tenths < 80; tenths++, view += higher * MEMBERS) {
      assert_int_equal(s.w.n_lines, 1);
      says_on(&s, &s.w.lines[0], HV_NEWS_ASK, view, 0, NULL);
      hv_council_report(s.w.council);
      wait_us(&s, STALL_MS * 1000 / 10);
    }
    wait_us(&s, STALL_MS * 1000 / 4);
    assert_int_equal(s.w.n_lines, 2);
    strike_scene(&s);
  }
}

/* The last one comes, again and again, with a higher number than all have promised. */
static void member_with_ever_higher_numbers_is_refused_without_an_ask(void **unused) {
  (void)unused;
  scene s;
  hv_members none = {{0}};
  set_scene(&s, 0);
  for (uint32_t k = 1; k <= 100; k++) {
    hv_msg_attend attend = {.member = 4, .view = k << 16};
    hv_council_opened(s.w.council, &attend, &s.w.streams[4]);
  }
  hv_council_trouble(s.w.council, &none, &none, &none, &none);
  assert_in_range(s.w.asked, 1 << 16, (5 << 16) + MEMBERS);
  strike_scene(&s);
}

/* The greatest one that this one may ask for. */
static uint32_t number_of(size_t place, uint32_t limit) {
  return limit / MEMBERS * MEMBERS - MEMBERS + (uint32_t)place;
}

/* The first coordinator asks for a view so high that none may follow, or nearly so high, and is lost; the second likewise. The
 * third goes on with the others, also with one that it knows of only by what those two have asked. */
static void however_high_the_numbers_are_others_can_follow(void **unused) {
  (void)unused;
  const uint32_t each = (1u << 31) / HV_ROUND_MEMBERS_MAX;
  const uint32_t least[2] = {each, 2 * each};
  scene s;
  hv_members none = {{0}}, two = set_of(1 | 2);
  for (size_t place = 0; place < 2; place++) {
    set_scene(&s, 4);
    if (place)
      is_lost(&s, 0);
    says_on(&s, &s.w.lines[place], HV_NEWS_ASK, number_of(place, 1u << 31), 0, NULL);
    assert_int_equal(hv_council_chair(s.w.council), place + 1);
    strike_scene(&s);
  }
  for (int hears_them = 0; hears_them < 2; hears_them++) {
    set_scene(&s, 2);
    for (size_t place = 0; place < 2; place++) {
      if (hears_them)
        says_on(&s, &s.w.lines[place], HV_NEWS_ASK, number_of(place, least[place]), 0, NULL);
      assert_int_equal(hv_council_chair(s.w.council), place);
      is_lost(&s, place);
    }
    hv_council_trouble(s.w.council, &two, &none, &none, &none);
    hv_council_report(s.w.council);
    for (size_t i = 3; i < MEMBERS; i++) {
      hv_msg_attend attend = {.member = (uint32_t)i, .view = number_of(1, least[1])};
      hv_council_opened(s.w.council, &attend, &s.w.streams[i]);
    }
    hv_council_report(s.w.council);
    assert_in_range(s.w.asked, number_of(1, least[1]), 3 * each);
    answers(&s, 3);
    answers(&s, 4);
    wait_us(&s, STALL_MS * 1000 * 3);
    assert_int_equal(s.w.told[3].bits[0], 4 | 8 | 16);
    strike_scene(&s);
    set_scene(&s, 4); /* one of those, who has heard nothing of the two */
    is_lost(&s, 0);
    is_lost(&s, 1);
    says_on(&s, &s.w.lines[2], HV_NEWS_ASK, s.w.asked ? s.w.asked : number_of(2, 3 * each), 0, NULL);
    assert_int_equal(hv_council_chair(s.w.council), 2);
    strike_scene(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(member_lacking_values_rejects_the_end_of_the_round),
      cmocka_unit_test(member_that_completes_after_the_end_message_has_finished),
      cmocka_unit_test(coordinator_without_a_plan_is_not_waited_for_for_ever),
      cmocka_unit_test(member_with_ever_higher_numbers_is_refused_without_an_ask),
      cmocka_unit_test(however_high_the_numbers_are_others_can_follow),
  };
  return cmocka_run_group_tests_name("a council among liars", tests, NULL, NULL);
}
