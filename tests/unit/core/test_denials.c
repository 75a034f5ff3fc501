/* Lists of denials: what is one, what it denies, and how two become one. */
#include "lib/check.h"

#include "core/peers/admission.h"
#include "core/peers/denials.h"
#include "net/invitation.h"

#include <stdio.h>
#include <string.h>

enum { NOW = 1700000000, DAY = 86400 };

static const uint8_t swarm_seed[32] = {1};

typedef struct scene {
  hv_mem mem;
  hv_identity *key;
  uint64_t number; /* of the next denial */
} scene;

static int settle(void **state) {
  static scene s;
  s = (scene){0};
  hv_mem_init(&s.mem, NULL, HV_MEM_UNLIMITED);
  s.key = hv_identity_from_seed(&s.mem, swarm_seed);
  *state = &s;
  return 0;
}

static int leave_tidy(void **state) {
  scene *s = *state;
  hv_identity_free(s->key);
  return atomic_load(&s->mem.blocks) != 0;
}

static hv_span none(void) {
  return hv_span_of(NULL, 0);
}

static hv_span change(scene *s, hv_span before, hv_denials_order order) {
  hv_span list;
  hv_error err = {0};
  if (hv_denials_change(&s->mem, s->key, before, &order, NOW, &list, &err) != HV_OK)
    fail_msg("%s", err.text);
  assert_int_equal(hv_denials_check(list), HV_OK);
  return list;
}

/* Frees the list before. */
static hv_span deny(scene *s, hv_span before, const char *id, int64_t end_s) {
  hv_span list = change(s, before, (hv_denials_order){.id = id, .number = ++s->number, .end_s = end_s});
  hv_mem_free((void *)before.data);
  return list;
}

static hv_span allow(scene *s, hv_span before, const char *id) {
  hv_span list = change(s, before, (hv_denials_order){.id = id, .allow = 1});
  hv_mem_free((void *)before.data);
  return list;
}

static hv_span copy(scene *s, hv_span list) {
  uint8_t *bytes = hv_mem_alloc(&s->mem, list.size ? list.size : 1);
  if (list.size)
    memcpy(bytes, list.data, list.size);
  return hv_span_of(bytes, list.size);
}

static void drop(hv_span list) {
  hv_mem_free((void *)list.data);
}

static hv_span join(scene *s, hv_span one, hv_span other, int64_t now_s) {
  hv_span list;
  assert_int_equal(hv_denials_join(&s->mem, hv_identity_peer(s->key), one, other, now_s, &list, NULL), HV_OK);
  return list;
}

static void id_of(unsigned number, char id[HV_INVITATION_TEXT_MAX]) {
  snprintf(id, HV_INVITATION_TEXT_MAX, "inv-%016x", number);
}

static hv_membership guest_of(unsigned number) {
  hv_membership shown = {.kind = HV_MEMBERSHIP_INVITED, .invitation.end_s = NOW};
  for (int i = 0; i < 4; i++)
    shown.invitation.key.key[4 + i] = (uint8_t)(number >> (24 - 8 * i));
  shown.invitation.key.key[31] = 5; /* the bytes after the ID do not count */
  return shown;
}

static int denies(hv_span list, unsigned number) {
  hv_admission admission = {.denials = list};
  hv_membership shown = guest_of(number);
  return hv_admission_judge(&admission, NULL, &shown, NOW) == HV_CAUSE_DENIED;
}

static void list_denies_its_entries_and_nothing_else(void **state) {
  scene *s = *state;
  char id[HV_INVITATION_TEXT_MAX], peer_id[HV_PEER_TEXT_MAX];
  hv_peer_id peer = {{200, 1}}, other = {{200, 2}};
  hv_membership holder = {.kind = HV_MEMBERSHIP_HOLDER}, guest = guest_of(1001);
  hv_span list = none();
  for (unsigned i = 0; i < 40; i++) { /* in no order */
    id_of(i * 37 % 40 * 2, id);
    list = deny(s, list, id, HV_DENIALS_NO_END);
  }
  list = deny(s, list, hv_peer_print(&peer, peer_id), HV_DENIALS_NO_END);
  assert_int_equal(hv_denials_count(list), 41);
  for (unsigned i = 0; i < 80; i++)
    assert_int_equal(denies(list, i), i % 2 == 0);
  hv_admission admission = {.denials = list};
  assert_int_equal(hv_admission_judge(&admission, &peer, &guest, NOW), HV_CAUSE_DENIED);
  assert_int_equal(hv_admission_judge(&admission, &other, &guest, NOW), HV_CAUSE_OTHER);
  assert_int_equal(hv_admission_judge(&admission, &peer, &holder, NOW), HV_CAUSE_OTHER); /* never a holder */
  drop(list);
}

/* Two holders with a copy of the list each, whose clocks differ by a day: none of their denials is lost, in whichever order. */
static void denials_of_two_holders_are_united(void **state) {
  scene *s = *state;
  hv_span laptop = deny(s, none(), "inv-0000000000000001", NOW + 30 * DAY);
  hv_span hub = deny(s, copy(s, laptop), "inv-0000000000000002", NOW + 30 * DAY);
  laptop = deny(s, laptop, "inv-0000000000000003", NOW + 30 * DAY);
  hv_span one = join(s, laptop, hub, NOW + DAY), other = join(s, hub, laptop, NOW - DAY);
  assert_true(hv_span_equal(one, other));
  assert_true(denies(one, 1) && denies(one, 2) && denies(one, 3) && !denies(one, 4));
  assert_int_equal(hv_denials_mark(one), hv_denials_mark(other));
  assert_int_not_equal(hv_denials_mark(one), hv_denials_mark(hub));
  drop(one), drop(other), drop(laptop), drop(hub);
}

static void taken_back_denial_stays_so_in_any_order(void **state) {
  scene *s = *state;
  const char *id = "inv-0000000000000007";
  hv_span denied = deny(s, none(), id, NOW + DAY);
  hv_span allowed = allow(s, copy(s, denied), id);
  hv_span one = join(s, denied, allowed, NOW), other = join(s, allowed, denied, NOW);
  assert_true(hv_span_equal(one, other) && denies(denied, 7) && !denies(one, 7));
  assert_int_equal(hv_denials_count(one), 1); /* it takes the place of the denial */
  hv_span again = deny(s, copy(s, one), id, NOW + DAY);
  assert_true(denies(again, 7));
  drop(one), drop(other), drop(again);
  /* another holder denied it at the same time: that denial was not taken back, and holds */
  hv_span twice = deny(s, copy(s, denied), id, NOW + DAY);
  one = join(s, twice, allowed, NOW);
  assert_true(denies(one, 7));
  one = allow(s, one, id);
  assert_false(denies(one, 7));
  drop(one), drop(twice), drop(allowed), drop(denied);
}

static void nothing_is_taken_back_that_is_not_denied(void **state) {
  scene *s = *state;
  hv_span list = deny(s, none(), "inv-0000000000000007", NOW), more;
  hv_denials_order order = {.id = "inv-0000000000000008", .allow = 1};
  assert_int_equal(hv_denials_change(&s->mem, s->key, list, &order, NOW, &more, NULL), HV_NOT_FOUND);
  drop(list);
}

/* A clock that is a day off ends nothing too early: entries stay for a week. */
static void entry_ends_a_week_after_its_invitation(void **state) {
  scene *s = *state;
  hv_span list = deny(s, none(), "inv-0000000000000001", NOW + DAY);
  list = deny(s, list, "inv-0000000000000002", HV_DENIALS_NO_END);
  hv_span later = join(s, list, none(), NOW + DAY + HV_DENIALS_KEEP_S);
  assert_int_equal(hv_denials_count(later), 2);
  drop(later);
  later = join(s, none(), list, NOW + DAY + HV_DENIALS_KEEP_S + 1);
  assert_int_equal(hv_denials_count(later), 1);
  assert_true(denies(later, 2) && !denies(later, 1));
  drop(later), drop(list);
}

static size_t n_verified;

static int count(void *arg, hv_span bytes, const uint8_t signature[64]) {
  n_verified++;
  return hv_identity_verify(arg, HV_DENIALS_DOMAIN, bytes, signature);
}

static void only_unknown_entries_are_verified(void **state) {
  scene *s = *state;
  static uint8_t out[HV_DENIALS_BYTES_MAX];
  char id[HV_INVITATION_TEXT_MAX];
  size_t size, added;
  hv_span mine = none();
  for (unsigned i = 0; i < 20; i++) {
    id_of(i, id);
    mine = deny(s, mine, id, HV_DENIALS_NO_END);
  }
  hv_span theirs = deny(s, copy(s, mine), "inv-00000000000000ff", NOW);
  n_verified = 0;
  void *swarm = (void *)hv_identity_peer(s->key);
  assert_int_equal(hv_denials_merge(mine, theirs, NOW, count, swarm, out, &size, &added), HV_OK);
  assert_int_equal(added, 1);
  assert_int_equal(n_verified, 1);
  /* the third of twenty unknown entries is forged: those behind it are not read */
  uint8_t *forged = (uint8_t *)theirs.data;
  forged[3 * HV_DENIAL_BYTES - 1] ^= 1;
  n_verified = 0;
  assert_int_equal(hv_denials_merge(none(), theirs, NOW, count, swarm, out, &size, &added), HV_CORRUPT);
  assert_int_equal(n_verified, 3);
  assert_int_equal(added, 2);
  assert_int_equal(hv_denials_merge(mine, theirs, NOW, count, swarm, out, &size, &added), HV_OK); /* it is known, and not read */
  assert_int_equal(hv_denials_count(hv_span_of(out, size)), 21);
  drop(theirs), drop(mine);
}

static void list_has_a_limit(void **state) {
  scene *s = *state;
  char id[HV_INVITATION_TEXT_MAX];
  hv_error err = {0};
  hv_span list = none(), more;
  for (unsigned i = 0; i < HV_DENIALS_MAX; i++) {
    id_of(i, id);
    list = deny(s, list, id, i ? HV_DENIALS_NO_END : NOW - DAY);
  }
  assert_int_equal(list.size, HV_DENIALS_BYTES_MAX);
  hv_denials_order order = {.id = "inv-00000000000fffff", .end_s = HV_DENIALS_NO_END};
  assert_int_equal(hv_denials_change(&s->mem, s->key, list, &order, NOW, &more, &err), HV_TOO_LARGE);
  assert_non_null(strstr(err.text, "1024 entries"));
  list = allow(s, list, id); /* the list is full, and still takes that */
  assert_int_equal(list.size, HV_DENIALS_BYTES_MAX);
  assert_int_equal(hv_denials_change(&s->mem, s->key, list, &order, NOW + 8 * DAY, &more, NULL), HV_OK); /* the first has ended */
  assert_int_equal(more.size, HV_DENIALS_BYTES_MAX);
  drop(more), drop(list);
}

static void bytes_that_are_no_list_are_refused(void **state) {
  scene *s = *state;
  hv_span list = deny(s, none(), "inv-0000000000000001", HV_DENIALS_NO_END), out;
  list = deny(s, list, "inv-0000000000000002", HV_DENIALS_NO_END);
  assert_int_equal(hv_denials_check(none()), HV_OK);
  for (size_t size = 1; size < list.size; size++)
    if (size != HV_DENIAL_BYTES)
      assert_int_equal(hv_denials_check(hv_span_of(list.data, size)), HV_MALFORMED);
  uint8_t bytes[2 * HV_DENIAL_BYTES];
  memcpy(bytes, list.data + HV_DENIAL_BYTES, HV_DENIAL_BYTES);
  memcpy(bytes + HV_DENIAL_BYTES, list.data, HV_DENIAL_BYTES);
  assert_int_equal(hv_denials_check(hv_span_of(bytes, sizeof bytes)), HV_MALFORMED); /* not ascending */
  memcpy(bytes + HV_DENIAL_BYTES, bytes, HV_DENIAL_BYTES);
  assert_int_equal(hv_denials_check(hv_span_of(bytes, sizeof bytes)), HV_MALFORMED); /* twice the same */
  for (size_t at = 40; at < 48; at++) { /* an unknown kind, and each byte that is kept free */
    memcpy(bytes, list.data, HV_DENIAL_BYTES);
    bytes[at] = 3;
    assert_int_equal(hv_denials_check(hv_span_of(bytes, HV_DENIAL_BYTES)), HV_MALFORMED);
  }
  memcpy(bytes, list.data, HV_DENIAL_BYTES);
  for (size_t at = 0; at < HV_DENIAL_BYTES; at++) { /* nothing in an entry can be changed */
    bytes[at] ^= 1;
    assert_int_equal(
        hv_denials_join(&s->mem, hv_identity_peer(s->key), hv_span_of(bytes, HV_DENIAL_BYTES), none(), NOW, &out, NULL),
        HV_MALFORMED);
    bytes[at] ^= 1;
  }
  hv_peer_id other = {{5}};
  assert_int_equal(hv_denials_join(&s->mem, &other, list, none(), NOW, &out, NULL), HV_MALFORMED);
  drop(list);
}

/* As the release before this one wrote it: a serial number, subjects, one signature. */
static void older_list_becomes_entries(void **state) {
  scene *s = *state;
  uint8_t old[8 + 2 * 32 + 64] = {9};
  hv_span list, again;
  old[8 + 7] = 1;
  old[8 + 32 + 7] = 2;
  assert_int_equal(hv_identity_sign(s->key, "hv:denials", hv_span_of(old, 72), old + 72), HV_OK);
  assert_int_equal(hv_denials_upgrade(&s->mem, s->key, hv_span_of(old, sizeof old), &list, NULL), HV_OK);
  assert_int_equal(hv_denials_upgrade(&s->mem, s->key, hv_span_of(old, sizeof old), &again, NULL), HV_OK);
  assert_int_equal(hv_denials_check(list), HV_OK);
  assert_true(denies(list, 1) && denies(list, 2) && !denies(list, 3));
  assert_true(hv_span_equal(list, again)); /* two holders make the same of it */
  drop(again), drop(join(s, list, none(), NOW)), drop(list);
  for (size_t size = 0; size < sizeof old; size++)
    assert_int_equal(hv_denials_upgrade(&s->mem, s->key, hv_span_of(old, size), &list, NULL), HV_MALFORMED);
  old[8] ^= 1;
  assert_int_equal(hv_denials_upgrade(&s->mem, s->key, hv_span_of(old, sizeof old), &list, NULL), HV_MALFORMED);
}

static void id_is_read_strictly(void **state) {
  scene *s = *state;
  static const char *const wrong[] = {"",
                                      "inv-",
                                      "inv-000000000000000",
                                      "inv-00000000000000000",
                                      "inv-000000000000000G",
                                      "INV-0000000000000000",
                                      "inv-000000000000000A",
                                      " inv-000000000000000"};
  uint8_t subject[32];
  hv_span list;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    hv_denials_order order = {.id = wrong[i]};
    assert_false(hv_invitation_parse(hv_span_of(wrong[i], strlen(wrong[i])), subject));
    assert_int_equal(hv_denials_change(&s->mem, s->key, none(), &order, NOW, &list, NULL), HV_MALFORMED);
  }
  assert_true(hv_invitation_parse(hv_span_of("inv-00ff10203040508a", 20), subject));
  assert_int_equal(subject[1], 0xff);
  assert_int_equal(subject[7], 0x8a);
  assert_int_equal(subject[8], 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, settle, leave_tidy)
  static const struct CMUnitTest tests[] = {
      TEST(list_denies_its_entries_and_nothing_else),
      TEST(denials_of_two_holders_are_united),
      TEST(taken_back_denial_stays_so_in_any_order),
      TEST(nothing_is_taken_back_that_is_not_denied),
      TEST(entry_ends_a_week_after_its_invitation),
      TEST(only_unknown_entries_are_verified),
      TEST(list_has_a_limit),
      TEST(bytes_that_are_no_list_are_refused),
      TEST(older_list_becomes_entries),
      TEST(id_is_read_strictly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
