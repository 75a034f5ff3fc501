/* Which replica is the swarm's, by the words of a group's members; and how a mark moves with what happens to a replica. */
#include "lib/check.h"
#include "lib/fake_env.h"

#include "core/epoch/lineage.h"
#include "core/epoch/word.h"

#include <string.h>

enum { CLIENT = 1, OPEN = 0, WRONG = HV_RANK_WRONG, MEMBERS = 8 };

typedef struct group {
  hv_lineage_member members[MEMBERS];
  size_t n;
} group;

static hv_mark mark_of(char letter) {
  hv_mark mark;
  memset(mark.bytes, letter, sizeof mark.bytes);
  return mark;
}

static void add(group *g, int is_client, char letter, int64_t rank) {
  hv_lineage_member one = {.peer = fake_peer(10 + g->n), .is_client = (uint8_t)is_client, .has_word = 1};
  one.word = (hv_word){mark_of(letter), rank};
  g->members[g->n++] = one;
}

/* A member without a replica, whose word counts for nothing. */
static void add_auxiliary(group *g, int is_client) {
  add(g, is_client, 'z', 1000);
  g->members[g->n - 1].is_auxiliary = 1;
}

static void add_mute(group *g) {
  add(g, OPEN, 'z', 1000);
  g->members[g->n - 1].has_word = 0;
}

/* The letter of the swarm's mark; the order of the members makes no difference. */
static char swarms(group *g) {
  hv_lineage_view view = hv_lineage_view_of(g->members, g->n);
  for (size_t turn = 0; turn < g->n; turn++) {
    hv_lineage_member first = g->members[0];
    memmove(g->members, g->members + 1, (g->n - 1) * sizeof first);
    g->members[g->n - 1] = first;
    hv_lineage_view again = hv_lineage_view_of(g->members, g->n);
    assert_int_equal(again.any, view.any);
    assert_memory_equal(again.swarms.bytes, view.swarms.bytes, HV_MARK_SIZE);
    assert_int_equal(again.n_right, view.n_right);
  }
  return view.any ? (char)view.swarms.bytes[0] : 0;
}

static void most_common_mark_is_the_swarms(void **unused) {
  (void)unused;
  group g = {.n = 0};
  assert_int_equal(swarms(&g), 0);
  add(&g, OPEN, 'a', 0), add(&g, OPEN, 'b', 100);
  assert_int_equal(swarms(&g), 'b'); /* as many: the higher rank */
  g.members[0].word.rank += HV_RANK_BY_ITSELF;
  assert_int_equal(swarms(&g), 'b'); /* that is no part of it */
  g.members[0].word.rank -= HV_RANK_BY_ITSELF;
  add(&g, OPEN, 'a', 0);
  assert_int_equal(swarms(&g), 'a');
  g.n = 0;
  add(&g, OPEN, 'a', 1), add(&g, OPEN, 'c', 1), add(&g, OPEN, 'b', 1);
  assert_int_equal(swarms(&g), 'c'); /* else the larger mark */
  g.n = 0;
  add(&g, OPEN, 'a', 1), add(&g, OPEN, 'a', 2), add(&g, OPEN, 'b', 9), add(&g, OPEN, 'b', 1), add(&g, OPEN, 'c', 99);
  assert_int_equal(swarms(&g), 'b');
}

static void members_without_replica_or_word_count_for_nothing(void **unused) {
  (void)unused;
  group g = {.n = 0};
  add_mute(&g), add_auxiliary(&g, OPEN), add_auxiliary(&g, CLIENT);
  assert_int_equal(swarms(&g), 0);
  add(&g, OPEN, 'a', 1);
  assert_int_equal(swarms(&g), 'a');
  hv_lineage_view view = hv_lineage_view_of(g.members, g.n);
  assert_int_equal(view.n_words, 1);
  assert_int_equal(view.n_right, 1);
}

static void wrong_replica_is_the_swarms_only_if_all_are_wrong(void **unused) {
  (void)unused;
  group g = {.n = 0};
  add_auxiliary(&g, OPEN), add(&g, CLIENT, 'a', WRONG), add(&g, CLIENT, 'a', WRONG), add(&g, CLIENT, 'b', 7);
  assert_int_equal(swarms(&g), 'b');
  for (size_t i = 0; i < g.n; i++)
    g.members[i].word.rank = WRONG;
  assert_int_equal(swarms(&g), 'a');
}

static void replica_that_nobody_can_download_is_not_the_swarms(void **unused) {
  (void)unused;
  group g = {.n = 0};
  add(&g, OPEN, 'a', 1), add(&g, CLIENT, 'b', 9), add(&g, CLIENT, 'b', 9);
  assert_int_equal(swarms(&g), 'a');
  add_auxiliary(&g, CLIENT); /* which nobody can dial either */
  assert_int_equal(swarms(&g), 'a');
  add_auxiliary(&g, OPEN);
  assert_int_equal(swarms(&g), 'b');
  g.n = 0;
  add(&g, OPEN, 'a', WRONG), add(&g, CLIENT, 'b', 9); /* a wrong replica is nobody's to download */
  assert_int_equal(swarms(&g), 'b');
}

/* A founder's step and that of two newcomers, which came as it ended that epoch. */
static void replica_that_was_made_outweighs_loaded_copies(void **unused) {
  (void)unused;
  enum { COPY = 0, MADE = 1 };
  static const int64_t ranks[] = {HV_RANK_TELLS + HV_RANK_REACHABLE + 8, HV_RANK_TELLS + HV_RANK_REACHABLE + HV_RANK_MADE + 8};
  group g = {.n = 0};
  add(&g, OPEN, 'a', ranks[MADE]), add(&g, OPEN, 'b', ranks[COPY]), add(&g, OPEN, 'b', ranks[COPY]);
  assert_int_equal(swarms(&g), 'a');
  assert_true(hv_lineage_view_of(g.members, g.n).is_made);
  add(&g, OPEN, 'b', ranks[MADE]), add(&g, OPEN, 'b', ranks[MADE]); /* two have made the other one */
  assert_int_equal(swarms(&g), 'b');
  g.n = 0; /* nobody has made his */
  add(&g, OPEN, 'a', ranks[COPY]), add(&g, OPEN, 'b', ranks[COPY]), add(&g, OPEN, 'b', ranks[COPY]);
  assert_int_equal(swarms(&g), 'b');
  assert_false(hv_lineage_view_of(g.members, g.n).is_made);
}

static void liar_that_votes_as_founder_decides_nothing(void **unused) {
  (void)unused;
  int64_t copy = HV_RANK_TELLS + HV_RANK_REACHABLE, made = copy + HV_RANK_MADE, most = INT64_MAX;
  group g = {.n = 0};
  add(&g, OPEN, 'a', made), add(&g, OPEN, 'a', made), add(&g, OPEN, 'z', most);
  assert_int_equal(swarms(&g), 'a');
  g.n = 0; /* beside one founder, its copies decide */
  add(&g, OPEN, 'a', made), add(&g, OPEN, 'a', copy), add(&g, OPEN, 'z', most);
  assert_int_equal(swarms(&g), 'a');
  g.n = 0;
  add(&g, OPEN, 'a', made), add(&g, OPEN, 'b', copy), add(&g, OPEN, 'b', copy), add(&g, OPEN, 'z', most);
  assert_int_equal(swarms(&g), 'b');
}

/* A member of an older version judges by the number of votes, so all do. */
static void word_without_making_counts_all_alike(void **unused) {
  (void)unused;
  int64_t copy = HV_RANK_TELLS + HV_RANK_REACHABLE;
  group g = {.n = 0};
  add(&g, OPEN, 'a', copy + HV_RANK_MADE), add(&g, OPEN, 'b', copy), add(&g, OPEN, 'b', HV_RANK_REACHABLE + 8);
  assert_int_equal(swarms(&g), 'b');
}

static const hv_lineage_member *giver(const group *g) {
  return hv_lineage_view_of(g->members, g->n).giver;
}

static void client_with_the_lowest_id_gives_the_swarms_replica(void **unused) {
  (void)unused;
  group g = {.n = 0};
  add_auxiliary(&g, OPEN), add(&g, CLIENT, 'b', 9), add(&g, CLIENT, 'b', 9), add(&g, CLIENT, 'a', 1);
  const hv_lineage_member *expected = hv_peer_compare(&g.members[1].peer, &g.members[2].peer) < 0 ? &g.members[1] : &g.members[2];
  assert_ptr_equal(giver(&g), expected);
  g.members[3].word.mark = mark_of('b');
  assert_null(giver(&g)); /* all have it */
  g.members[3].word.mark = mark_of('a');
  g.members[1].is_client = 0;
  assert_null(giver(&g)); /* one that has it can be dialled */
}

static void all_members_make_one_ticket_for_each_epoch_and_group(void **unused) {
  (void)unused;
  fake_env fake;
  fake_env_init(&fake, 1);
  group g = {.n = 0};
  uint8_t ticket[HV_MARK_SIZE], other[HV_MARK_SIZE];
  add(&g, CLIENT, 'b', 9), add(&g, OPEN, 'a', 1), add_auxiliary(&g, OPEN);
  hv_lineage_ticket(&fake.env, 4, g.members, g.n, ticket);
  hv_lineage_member first = g.members[0];
  g.members[0] = g.members[2], g.members[2] = first;
  g.members[0].word.rank++;
  hv_lineage_ticket(&fake.env, 4, g.members, g.n, other);
  assert_memory_equal(ticket, other, sizeof ticket);
  hv_lineage_ticket(&fake.env, 5, g.members, g.n, other);
  assert_memory_not_equal(ticket, other, sizeof ticket);
  g.members[1].word.mark = mark_of('c');
  hv_lineage_ticket(&fake.env, 4, g.members, g.n, other);
  assert_memory_not_equal(ticket, other, sizeof ticket);
}

/* ---- how a mark moves ---- */

static hv_lineage begun(char letter) {
  hv_lineage l;
  hv_mark digest = mark_of(letter);
  hv_lineage_init(&l);
  hv_lineage_begin(&l, &digest);
  return l;
}

static void deed(hv_lineage *l, hv_env *env, int which) {
  static const uint64_t stamps[] = {7, 8};
  static const uint64_t frozen[] = {8, 9};
  hv_peer_id me = fake_peer(1), other = fake_peer(2);
  switch (which) {
  case 0:
    hv_lineage_averaged(l, env, 7);
    break;
  case 1:
    hv_lineage_averaged(l, env, 8);
    break;
  case 2:
    hv_lineage_stepped(l, env, stamps, 1, NULL, 0, 64);
    break;
  case 3:
    hv_lineage_stepped(l, env, stamps, 2, NULL, 0, 64);
    break;
  case 4:
    hv_lineage_stepped(l, env, stamps, 1, frozen, 1, 64);
    break; /* the frozen parameter 8, and not a stamp 8 */
  case 5:
    hv_lineage_stepped(l, env, stamps, 1, frozen, 2, 64);
    break;
  case 6:
    hv_lineage_stepped_alone(l, env, &me, 3, 7, 64);
    break;
  case 7:
    hv_lineage_stepped_alone(l, env, &other, 3, 7, 64);
    break;
  case 8:
    hv_lineage_stepped_alone(l, env, &me, 4, 7, 64);
    break;
  case 9:
    hv_lineage_averaged_in_part(l, env, &me, 4, 7);
    break;
  case 10: /* it has started again */
    hv_lineage_stepped_alone(l, env, &me, 3, 8, 64);
    break;
  default:
    hv_lineage_set_up(l, env, hv_span_of("setup", 5));
    break;
  }
}

static void equal_deeds_from_equal_beginnings_make_equal_marks(void **unused) {
  (void)unused;
  enum { DEEDS = 12, MARKS = 1 + DEEDS + DEEDS * DEEDS };
  fake_env fake;
  fake_env_init(&fake, 1);
  hv_mark marks[MARKS];
  size_t n = 0;
  marks[n++] = begun('a').mark;
  for (int one = 0; one < DEEDS; one++) {
    hv_lineage l = begun('a'), same = begun('a');
    deed(&l, &fake.env, one), deed(&same, &fake.env, one);
    assert_true(hv_mark_equal(&l.mark, &same.mark));
    marks[n++] = l.mark;
    for (int two = 0; two < DEEDS; two++) {
      hv_lineage next = l;
      deed(&next, &fake.env, two);
      marks[n++] = next.mark;
    }
  }
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < i; j++)
      assert_false(hv_mark_equal(&marks[i], &marks[j]));
}

/* More numbers than one hash takes. */
static void each_frozen_parameter_is_part_of_a_mark(void **unused) {
  (void)unused;
  enum { FROZEN = 100 };
  fake_env fake;
  fake_env_init(&fake, 1);
  uint64_t frozen[FROZEN];
  uint64_t stamp = 1;
  hv_mark marks[FROZEN + 1];
  for (uint64_t i = 0; i < FROZEN; i++)
    frozen[i] = i;
  for (size_t n = 0; n <= FROZEN; n++) {
    hv_lineage l = begun('a');
    hv_lineage_stepped(&l, &fake.env, &stamp, 1, frozen, n, 64);
    marks[n] = l.mark;
    for (size_t i = 0; i < n; i++)
      assert_false(hv_mark_equal(&marks[i], &marks[n]));
  }
  hv_lineage l = begun('a');
  frozen[FROZEN - 1]++;
  hv_lineage_stepped(&l, &fake.env, &stamp, 1, frozen, FROZEN, 64);
  assert_false(hv_mark_equal(&l.mark, &marks[FROZEN]));
}

static void loaded_state_brings_its_mark(void **unused) {
  (void)unused;
  fake_env fake;
  fake_env_init(&fake, 1);
  hv_lineage l = begun('a');
  hv_mark mark = mark_of('b');
  deed(&l, &fake.env, 6);
  hv_lineage_is_left(&l);
  hv_lineage_restart(&l, &mark);
  assert_true(l.is_known && !l.is_wrong && l.samples == 0 && hv_mark_equal(&l.mark, &mark));
  hv_lineage_restart(&l, NULL);
  assert_false(l.is_known);
}

static void word_says_wrong_or_samples_and_reach(void **unused) {
  (void)unused;
  fake_env fake;
  fake_env_init(&fake, 1);
  hv_lineage l = begun('a');
  assert_int_equal(hv_lineage_word(&l).rank, HV_RANK_TELLS + HV_RANK_REACHABLE);
  deed(&l, &fake.env, 2);
  assert_int_equal(hv_lineage_word(&l).rank, HV_RANK_TELLS + HV_RANK_MADE + HV_RANK_REACHABLE + 64);
  l.is_reachable = 0;
  assert_int_equal(hv_lineage_word(&l).rank, HV_RANK_TELLS + HV_RANK_MADE + 64);
  l.is_by_itself = 1;
  assert_int_equal(hv_lineage_word(&l).rank, HV_RANK_TELLS + HV_RANK_MADE + HV_RANK_BY_ITSELF + 64);
  l.is_by_itself = 0;
  l.samples = UINT64_MAX;
  assert_int_equal(hv_lineage_word(&l).rank, HV_RANK_TELLS + HV_RANK_MADE + HV_LINEAGE_SAMPLES_MAX);
  hv_lineage_is_left(&l);
  assert_int_equal(hv_lineage_word(&l).rank, HV_RANK_WRONG);
}

static int says_made(const hv_lineage *l) {
  return (hv_lineage_word(l).rank & HV_RANK_MADE) != 0;
}

static void loaded_replica_is_made_with_others_or_after_some_steps(void **unused) {
  (void)unused;
  fake_env fake;
  fake_env_init(&fake, 1);
  hv_mark mark = mark_of('a');
  hv_lineage l = begun('a');
  assert_false(says_made(&l));
  deed(&l, &fake.env, 2);
  assert_true(says_made(&l)); /* it began here */
  hv_lineage_restart(&l, &mark);
  for (int i = 1; i < HV_LINEAGE_MAKES; i++) {
    deed(&l, &fake.env, 2);
    assert_false(says_made(&l));
  }
  deed(&l, &fake.env, 2);
  assert_true(says_made(&l));
  hv_lineage_restart(&l, &mark);
  group g = {.n = 0};
  add(&g, OPEN, 'a', HV_RANK_TELLS);
  hv_lineage_view view = hv_lineage_view_of(g.members, g.n);
  assert_true(hv_lineage_judge(&l, &view));
  assert_false(says_made(&l)); /* those who have that replica have only loaded it, too */
  g.members[0].word.rank += HV_RANK_MADE;
  view = hv_lineage_view_of(g.members, g.n);
  assert_true(hv_lineage_judge(&l, &view));
  assert_true(says_made(&l));
}

static void view_says_whether_a_replica_is_the_swarms(void **unused) {
  (void)unused;
  group g = {.n = 0};
  hv_lineage l = begun('a');
  hv_lineage_view view = hv_lineage_view_of(g.members, g.n);
  assert_true(hv_lineage_judge(&l, &view)); /* nobody said anything */
  add(&g, OPEN, 'b', 9), add(&g, OPEN, 'a', 1);
  view = hv_lineage_view_of(g.members, g.n);
  assert_false(hv_lineage_judge(&l, &view));
  assert_true(l.is_wrong);
  add(&g, OPEN, 'a', 1);
  view = hv_lineage_view_of(g.members, g.n);
  assert_true(hv_lineage_judge(&l, &view));
  assert_false(l.is_wrong);
}

static void lineage_that_is_not_kept_never_moves_and_is_never_wrong(void **unused) {
  (void)unused;
  fake_env fake;
  fake_env_init(&fake, 1);
  hv_lineage l = begun('a');
  group g = {.n = 0};
  add(&g, OPEN, 'b', 9);
  hv_lineage_view view = hv_lineage_view_of(g.members, g.n);
  l.is_kept = 0;
  for (int i = 0; i < 10; i++)
    deed(&l, &fake.env, i);
  hv_lineage_is_left(&l);
  assert_true(hv_lineage_judge(&l, &view));
  assert_int_equal(l.mark.bytes[0], 'a');
  assert_false(l.is_wrong);
}

static void digits_of_a_mark_give_it_back(void **unused) {
  (void)unused;
  hv_mark mark;
  float digits[HV_MARK_DIGITS];
  for (size_t i = 0; i < HV_MARK_SIZE; i++)
    mark.bytes[i] = (uint8_t)(i * 37 + 11);
  hv_mark_digits(&mark, digits);
  for (size_t bit = 0; bit < 8 * HV_MARK_SIZE; bit++) {
    uint32_t digit = (uint32_t)digits[bit / HV_MARK_DIGIT_BITS];
    assert_true(digits[bit / HV_MARK_DIGIT_BITS] < 1 << HV_MARK_DIGIT_BITS);
    assert_int_equal(digit >> bit % HV_MARK_DIGIT_BITS & 1, mark.bytes[bit / 8] >> bit % 8 & 1);
  }
}

/* The numbers at which MessagePack has another form, as Python packs them. */
static void word_travels_as_python_packs_it(void **unused) {
  (void)unused;
  static const struct {
    int64_t rank;
    const char *bytes;
    size_t size;
  } ranks[] = {
      {HV_RANK_WRONG, "\xff", 1},
      {-32, "\xe0", 1},
      {-33, "\xd0\xdf", 2},
      {-129, "\xd1\xff\x7f", 3},
      {-32769, "\xd2\xff\xff\x7f\xff", 5},
      {INT64_MIN, "\xd3\x80\0\0\0\0\0\0\0", 9},
      {0, "\0", 1},
      {127, "\x7f", 1},
      {128, "\xcc\x80", 2},
      {256, "\xcd\x01\0", 3},
      {65536, "\xce\0\x01\0\0", 5},
      {HV_RANK_REACHABLE + 4096, "\xcf\0\x01\0\0\0\0\x10\0", 9},
      {INT64_MAX, "\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", 9},
  };
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
    hv_word word = {.rank = ranks[i].rank}, again;
    uint8_t bytes[HV_WORD_MAX];
    memset(word.mark.bytes, 'm', HV_MARK_SIZE);
    size_t n = hv_word_write(&word, bytes);
    assert_int_equal(n, 3 + HV_MARK_SIZE + ranks[i].size);
    assert_memory_equal(bytes, "\x92\xc4\x10mmmmmmmmmmmmmmmm", 3 + HV_MARK_SIZE);
    assert_memory_equal(bytes + 3 + HV_MARK_SIZE, ranks[i].bytes, ranks[i].size);
    assert_true(hv_word_read(hv_span_of(bytes, n), &again));
    assert_true(again.rank == word.rank && hv_mark_equal(&again.mark, &word.mark));
    assert_false(hv_word_read(hv_span_of(bytes, n - 1), &again));
  }
}

static void other_bytes_are_no_word(void **unused) {
  (void)unused;
  hv_word word;
  static const char above[] = "\x92\xc4\x10mmmmmmmmmmmmmmmm\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
                    shorter[] = "\x92\xc4\x0fmmmmmmmmmmmmmmm\x01", more[] = "\x93\xc4\x10mmmmmmmmmmmmmmmm\x01\x01",
                    text[] = "\x92\xc4\x10mmmmmmmmmmmmmmmm\xa1x";
  assert_false(hv_word_read(HV_WORD_NONE, &word));
  assert_false(hv_word_read(hv_span_of(NULL, 0), &word));
  assert_false(hv_word_read(hv_span_of(above, sizeof above - 1), &word));
  assert_false(hv_word_read(hv_span_of(shorter, sizeof shorter - 1), &word));
  assert_false(hv_word_read(hv_span_of(more, sizeof more - 1), &word));
  assert_false(hv_word_read(hv_span_of(text, sizeof text - 1), &word));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(most_common_mark_is_the_swarms),
      cmocka_unit_test(replica_that_was_made_outweighs_loaded_copies),
      cmocka_unit_test(liar_that_votes_as_founder_decides_nothing),
      cmocka_unit_test(word_without_making_counts_all_alike),
      cmocka_unit_test(loaded_replica_is_made_with_others_or_after_some_steps),
      cmocka_unit_test(members_without_replica_or_word_count_for_nothing),
      cmocka_unit_test(wrong_replica_is_the_swarms_only_if_all_are_wrong),
      cmocka_unit_test(replica_that_nobody_can_download_is_not_the_swarms),
      cmocka_unit_test(client_with_the_lowest_id_gives_the_swarms_replica),
      cmocka_unit_test(all_members_make_one_ticket_for_each_epoch_and_group),
      cmocka_unit_test(equal_deeds_from_equal_beginnings_make_equal_marks),
      cmocka_unit_test(each_frozen_parameter_is_part_of_a_mark),
      cmocka_unit_test(loaded_state_brings_its_mark),
      cmocka_unit_test(word_says_wrong_or_samples_and_reach),
      cmocka_unit_test(view_says_whether_a_replica_is_the_swarms),
      cmocka_unit_test(lineage_that_is_not_kept_never_moves_and_is_never_wrong),
      cmocka_unit_test(digits_of_a_mark_give_it_back),
      cmocka_unit_test(word_travels_as_python_packs_it),
      cmocka_unit_test(other_bytes_are_no_word),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
