/* Lists of denials: what is one, what it denies, and what a node takes. */
#include "lib/check.h"

#include "core/peers/denials.h"
#include "net/invitation.h"

#include <stdio.h>
#include <string.h>

enum { NOW = 1700000000 };

static const uint8_t swarm_seed[32] = {1};

static hv_span add(hv_mem *mem, const hv_identity *key, hv_span before, const char *id, uint64_t least) {
  hv_span list;
  assert_int_equal(hv_denials_add(mem, key, before, id, least, &list, NULL), HV_OK);
  assert_int_equal(hv_denials_check(list), HV_OK);
  hv_mem_free((void *)before.data);
  return list;
}

static void id_of(unsigned number, char id[HV_INVITATION_TEXT_MAX]) {
  snprintf(id, HV_INVITATION_TEXT_MAX, "inv-%016x", number);
}

static hv_membership guest_of(unsigned number) {
  hv_membership shown = {.kind = HV_MEMBERSHIP_INVITED, .invitation.end_s = NOW};
  for (int i = 0; i < 4; i++)
    shown.invitation.key.key[4 + i] = (uint8_t)(number >> (24 - 8 * i));
  shown.invitation.key.key[31] = 5; /* what follows the ID does not count */
  return shown;
}

static void list_denies_its_entries_and_nothing_else(void **unused) {
  hv_mem mem;
  char id[HV_INVITATION_TEXT_MAX], peer_id[HV_PEER_TEXT_MAX];
  hv_peer_id peer = {{200, 1}}, other = {{200, 2}};
  hv_membership holder = {.kind = HV_MEMBERSHIP_HOLDER}, guest = guest_of(1001);
  (void)unused;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *key = hv_identity_from_seed(&mem, swarm_seed);
  hv_span list = hv_span_of(NULL, 0);
  for (unsigned i = 0; i < 40; i++) { /* in no order, and some twice */
    id_of(i * 37 % 40 * 2, id);
    list = add(&mem, key, list, id, 1);
  }
  list = add(&mem, key, list, id, 1);
  assert_int_equal(hv_denials_count(list), 40);
  assert_int_equal(hv_denials_serial(list), 41);
  hv_admission admission = {.denials = list};
  for (unsigned i = 0; i < 80; i++) {
    hv_membership shown = guest_of(i);
    assert_int_equal(hv_admission_judge(&admission, &other, &shown, NOW), i % 2 ? HV_CAUSE_OTHER : HV_CAUSE_DENIED);
  }
  list = add(&mem, key, list, hv_peer_print(&peer, peer_id), 1000);
  admission.denials = list;
  assert_int_equal(hv_denials_serial(list), 1000);
  assert_int_equal(hv_admission_judge(&admission, &peer, &guest, NOW), HV_CAUSE_DENIED);
  assert_int_equal(hv_admission_judge(&admission, &other, &guest, NOW), HV_CAUSE_OTHER);
  assert_int_equal(hv_admission_judge(&admission, &peer, &holder, NOW), HV_CAUSE_OTHER); /* never a holder */
  hv_mem_free((void *)list.data);
  hv_identity_free(key);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void list_has_a_limit(void **unused) {
  hv_mem mem;
  char id[HV_INVITATION_TEXT_MAX];
  hv_error err = {0};
  hv_span list = hv_span_of(NULL, 0), more;
  (void)unused;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *key = hv_identity_from_seed(&mem, swarm_seed);
  for (unsigned i = 0; i < HV_DENIALS_MAX; i++) {
    id_of(i, id);
    list = add(&mem, key, list, id, 1);
  }
  assert_int_equal(list.size, HV_DENIALS_BYTES_MAX);
  id_of(HV_DENIALS_MAX, id);
  assert_int_equal(hv_denials_add(&mem, key, list, id, 1, &more, &err), HV_TOO_LARGE);
  hv_mem_free((void *)list.data);
  hv_identity_free(key);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void bytes_that_are_no_list_are_refused(void **unused) {
  hv_mem mem;
  uint8_t bytes[8 + 64 + 3 * 32] = {1};
  hv_span list;
  (void)unused;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *key = hv_identity_from_seed(&mem, swarm_seed);
  assert_int_equal(hv_denials_check(hv_span_of(bytes, 8 + 64)), HV_OK); /* nobody is denied */
  for (size_t size = 0; size < sizeof bytes; size++)
    if (size != 72 && size != 104)
      assert_int_equal(hv_denials_check(hv_span_of(bytes, size)), HV_MALFORMED);
  assert_int_equal(hv_denials_check(hv_span_of(bytes, sizeof bytes)), HV_MALFORMED); /* three equal entries */
  bytes[8 + 32] = 1, bytes[8 + 64] = 2;
  assert_int_equal(hv_denials_check(hv_span_of(bytes, sizeof bytes)), HV_OK);
  bytes[8 + 32] = 3;
  assert_int_equal(hv_denials_check(hv_span_of(bytes, sizeof bytes)), HV_MALFORMED); /* not ascending */
  bytes[0] = 0;
  assert_int_equal(hv_denials_check(hv_span_of(bytes, 72)), HV_MALFORMED); /* serial number 0 */
  bytes[0] = 1;
  assert_int_equal(hv_denials_add(&mem, key, hv_span_of(bytes, 72), "inv-0000000000000001", 1, &list, NULL), HV_MALFORMED);
  hv_identity_free(key);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void id_is_read_strictly(void **unused) {
  static const char *const wrong[] = {"",
                                      "inv-",
                                      "inv-000000000000000",
                                      "inv-00000000000000000",
                                      "inv-000000000000000G",
                                      "INV-0000000000000000",
                                      "inv-000000000000000A",
                                      " inv-000000000000000"};
  uint8_t entry[32];
  (void)unused;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_false(hv_invitation_parse(hv_span_of(wrong[i], strlen(wrong[i])), entry));
  assert_true(hv_invitation_parse(hv_span_of("inv-00ff10203040508a", 20), entry));
  assert_int_equal(entry[1], 0xff);
  assert_int_equal(entry[7], 0x8a);
  assert_int_equal(entry[8], 0);
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(list_denies_its_entries_and_nothing_else),
      cmocka_unit_test(list_has_a_limit),
      cmocka_unit_test(bytes_that_are_no_list_are_refused),
      cmocka_unit_test(id_is_read_strictly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
