/* Swarm keys, invitations and proofs: what is made, what is believed, and why the rest is refused. */
#include "lib/check.h"

#include "net/invitation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOW = 1700000000, DAY = 86400 };

static const uint8_t swarm_seed[32] = {1}, other_seed[32] = {2}, guest_seed[32] = {3}, peer_seed[32] = {4};

static int settle(void **state) {
  static hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  *state = &mem;
  return 0;
}

static int leave_tidy(void **state) {
  hv_mem *mem = *state;
  return atomic_load(&mem->blocks) != 0;
}

static hv_peer_id peer_of(hv_mem *mem, const uint8_t seed[32]) {
  hv_identity *identity = hv_identity_from_seed(mem, seed);
  hv_peer_id peer = *hv_identity_peer(identity);
  hv_identity_free(identity);
  return peer;
}

static void key_of(const uint8_t seed[32], char out[HV_SWARM_KEY_TEXT_MAX]) {
  hv_swarm_key_print(seed, out);
}

static hv_invitation invite_of(hv_mem *mem, const uint8_t seed[32], int64_t end_s, const char *name, char out[HV_INVITE_TEXT_MAX]) {
  hv_identity *key = hv_identity_from_seed(mem, seed);
  hv_invitation invitation;
  assert_int_equal(hv_invite_make(mem, key, guest_seed, end_s, name, out, &invitation, NULL), HV_OK);
  hv_identity_free(key);
  return invitation;
}

static hv_membership shown_by(hv_span proof, const hv_peer_id *peer, const hv_peer_id *swarm) {
  hv_membership shown;
  hv_proof_check(proof, peer, swarm, &shown);
  return shown;
}

/* The proof of the peer of peer_seed, by a swarm key or an invitation. */
static size_t prove(hv_mem *mem, const char *key, const char *invite, uint8_t out[HV_PROOF_MAX]) {
  hv_credentials credentials;
  hv_peer_id peer = peer_of(mem, peer_seed);
  size_t size = 0;
  assert_int_equal(hv_credentials_read(mem, key, invite, &credentials, NULL), HV_OK);
  assert_int_equal(hv_proof_make(&credentials, &peer, out, &size), HV_OK);
  hv_credentials_fini(&credentials);
  assert_true(size <= HV_PROOF_MAX);
  return size;
}

static void invited_peer_proves_its_invitation(void **state) {
  hv_mem *mem = *state;
  char text[HV_INVITE_TEXT_MAX], id[HV_INVITATION_TEXT_MAX], way[HV_MEMBERSHIP_TEXT_MAX];
  uint8_t proof[HV_PROOF_MAX];
  hv_invitation made = invite_of(mem, swarm_seed, NOW + DAY, "lab-3", text);
  hv_peer_id swarm = peer_of(mem, swarm_seed), peer = peer_of(mem, peer_seed), other = peer_of(mem, other_seed);
  assert_memory_equal(text, "hvi1", 4);
  hv_span span = hv_span_of(proof, prove(mem, NULL, text, proof));
  hv_membership shown = shown_by(span, &peer, &swarm);
  assert_int_equal(shown.kind, HV_MEMBERSHIP_INVITED);
  assert_int_equal(shown.invitation.end_s, NOW + DAY);
  assert_true(hv_peer_equal(&shown.invitation.key, &made.key));
  hv_invitation_print(&made, id);
  assert_int_equal(strlen(id), 20);
  hv_membership_print(&shown, way);
  assert_memory_equal(way, id, 20);
  assert_string_equal(way + 20, " lab-3");
  assert_int_equal(shown_by(span, &peer, &other).kind, HV_MEMBERSHIP_NONE); /* in another swarm */
}

static void holder_proves_the_key_without_an_end(void **state) {
  hv_mem *mem = *state;
  char key[HV_SWARM_KEY_TEXT_MAX], way[HV_MEMBERSHIP_TEXT_MAX];
  uint8_t proof[HV_PROOF_MAX];
  key_of(swarm_seed, key);
  hv_peer_id swarm = peer_of(mem, swarm_seed), peer = peer_of(mem, peer_seed);
  hv_membership shown = shown_by(hv_span_of(proof, prove(mem, key, NULL, proof)), &peer, &swarm);
  hv_admission admission = {.swarm = swarm};
  assert_int_equal(shown.kind, HV_MEMBERSHIP_HOLDER);
  assert_int_equal(hv_admission_judge(&admission, NULL, &shown, INT64_MAX / 2), HV_CAUSE_OTHER);
  assert_string_equal(hv_membership_print(&shown, way), "holder");
}

/* A stranger has seen a member's certificate in a handshake, and puts its proof into one of its own. */
static void copied_proof_is_worth_nothing_to_another_peer(void **state) {
  hv_mem *mem = *state;
  char text[HV_INVITE_TEXT_MAX], key[HV_SWARM_KEY_TEXT_MAX];
  uint8_t proof[HV_PROOF_MAX];
  invite_of(mem, swarm_seed, NOW + DAY, "", text);
  key_of(swarm_seed, key);
  hv_peer_id swarm = peer_of(mem, swarm_seed), stranger = peer_of(mem, other_seed);
  assert_int_equal(shown_by(hv_span_of(proof, prove(mem, NULL, text, proof)), &stranger, &swarm).kind, HV_MEMBERSHIP_NONE);
  assert_int_equal(shown_by(hv_span_of(proof, prove(mem, key, NULL, proof)), &stranger, &swarm).kind, HV_MEMBERSHIP_NONE);
}

/* A guest signs a longer end, another name or another invitation itself; only the swarm's key can. */
static void changed_proof_proves_nothing(void **state) {
  hv_mem *mem = *state;
  char text[HV_INVITE_TEXT_MAX];
  uint8_t proof[HV_PROOF_MAX];
  invite_of(mem, swarm_seed, NOW + DAY, "lab-3", text);
  hv_peer_id swarm = peer_of(mem, swarm_seed), peer = peer_of(mem, peer_seed);
  size_t size = prove(mem, NULL, text, proof);
  for (size_t i = 0; i < size; i++)
    for (int bit = 1; bit < 256; bit <<= 1) {
      proof[i] ^= (uint8_t)bit;
      if (shown_by(hv_span_of(proof, size), &peer, &swarm).kind != HV_MEMBERSHIP_NONE)
        fail_msg("a proof with byte %zu changed is believed", i);
      proof[i] ^= (uint8_t)bit;
    }
  for (size_t cut = 0; cut < size; cut++)
    assert_int_equal(shown_by(hv_span_of(proof, cut), &peer, &swarm).kind, HV_MEMBERSHIP_NONE);
  assert_int_equal(shown_by(hv_span_of(proof, size), &peer, &swarm).kind, HV_MEMBERSHIP_INVITED);
}

static void invitation_ends_with_an_hour_of_grace(void **state) {
  hv_mem *mem = *state;
  hv_admission admission = {.swarm = peer_of(mem, swarm_seed)};
  hv_membership shown = {.kind = HV_MEMBERSHIP_INVITED, .invitation = {.end_s = NOW}}, none = {0};
  char text[HV_MSG_TEXT_MAX];
  assert_int_equal(hv_admission_judge(&admission, NULL, &shown, NOW + 3600), HV_CAUSE_OTHER);
  assert_int_equal(hv_admission_judge(&admission, NULL, &shown, NOW + 3601), HV_CAUSE_INVITATION_ENDED);
  assert_int_equal(hv_admission_judge(&admission, NULL, &none, NOW), HV_CAUSE_NOT_INVITED);
  assert_int_equal(hv_admission_judge(NULL, NULL, &none, NOW), HV_CAUSE_OTHER); /* open */
  hv_admission_refuse(HV_CAUSE_INVITATION_ENDED, &shown, NOW + DAY, text);
  assert_non_null(strstr(text, "2023-11-14 22:13 UTC"));
  assert_non_null(strstr(text, "2023-11-15 22:13 UTC")); /* a clock that is wrong by a day is seen */
  hv_admission_refuse(HV_CAUSE_NOT_INVITED, &none, NOW, text);
  assert_non_null(strstr(text, "INVITE"));
}

static void moment_is_printed_as_a_date(void **unused) {
  static const struct {
    int64_t at_s;
    const char *text;
  } moments[] = {{0, "1970-01-01 00:00 UTC"},          {951782399, "2000-02-28 23:59 UTC"}, {951782400, "2000-02-29 00:00 UTC"},
                 {4107542400, "2100-03-01 00:00 UTC"}, {-5, "1970-01-01 00:00 UTC"},        {253402300799, "9999-12-31 23:59 UTC"},
                 {INT64_MAX, "9999-12-31 23:59 UTC"}};
  char text[HV_ADMISSION_TIME_MAX];
  (void)unused;
  for (size_t i = 0; i < sizeof moments / sizeof *moments; i++)
    assert_string_equal(hv_admission_time(moments[i].at_s, text), moments[i].text);
}

static void check_text(hv_mem *mem, const char *key, const char *invite, const char *why) {
  hv_credentials credentials;
  hv_error err = {0};
  assert_int_equal(hv_credentials_read(mem, key, invite, &credentials, &err), HV_MALFORMED);
  assert_int_equal(err.cause, HV_CAUSE_BAD_INVITATION);
  if (!strstr(err.text, why))
    fail_msg("'%s' does not say '%s'", err.text, why);
  assert_null(key && strlen(key) > 12 ? strstr(err.text, key) : NULL); /* no sentence quotes a secret */
  assert_null(invite && strlen(invite) > 12 ? strstr(err.text, invite + 8) : NULL);
}

static void text_that_is_cut_or_changed_is_refused(void **state) {
  hv_mem *mem = *state;
  char key[HV_SWARM_KEY_TEXT_MAX], text[HV_INVITE_TEXT_MAX], changed[HV_INVITE_TEXT_MAX + 8];
  key_of(swarm_seed, key);
  invite_of(mem, swarm_seed, NOW + DAY, "lab-3", text);
  for (size_t size = 0; text[size]; size++) {
    snprintf(changed, sizeof changed, "%.*s", (int)size, text);
    check_text(mem, NULL, changed, size < 4 ? "not an invitation" : "is cut");
    memcpy(changed, text, sizeof text);
    changed[size] = changed[size] == 'x' ? 'y' : 'x';
    check_text(mem, NULL, changed, size < 4 ? "not an invitation" : "is cut");
  }
  for (size_t size = 0; key[size]; size++) {
    snprintf(changed, sizeof changed, "%.*s", (int)size, key);
    check_text(mem, changed, NULL, size < 4 ? "not a swarm key" : "is cut");
  }
  snprintf(changed, sizeof changed, " %s", text);
  check_text(mem, NULL, changed, "without spaces");
  snprintf(changed, sizeof changed, "%s ", text);
  check_text(mem, NULL, changed, "without spaces");
  snprintf(changed, sizeof changed, "%s\n", key);
  check_text(mem, changed, NULL, "without spaces");
  check_text(mem, NULL, key, "not an invitation");
  check_text(mem, text, NULL, "not a swarm key");
  check_text(mem, "", NULL, "not a swarm key");
}

/* A stranger can make the check of a text right; the signature by the key is what counts. */
static void invitation_that_the_key_did_not_sign_is_refused(void **state) {
  hv_mem *mem = *state;
  hv_identity *other = hv_identity_from_seed(mem, other_seed);
  hv_credentials credentials;
  hv_error err = {0};
  char text[HV_INVITE_TEXT_MAX], key[HV_SWARM_KEY_TEXT_MAX];
  hv_invitation invitation;
  assert_int_equal(hv_invite_make(mem, other, guest_seed, NOW, "", text, &invitation, NULL), HV_OK);
  hv_identity_free(other);
  key_of(swarm_seed, key);
  assert_int_equal(hv_credentials_read(mem, key, text, &credentials, &err), HV_MALFORMED);
  assert_non_null(strstr(err.text, "two swarms"));
  key_of(other_seed, key);
  assert_int_equal(hv_credentials_read(mem, key, text, &credentials, &err), HV_OK); /* of both the key counts */
  assert_int_equal(credentials.admission.me.kind, HV_MEMBERSHIP_HOLDER);
  hv_credentials_fini(&credentials);
}

static void name_and_end_have_bounds(void **state) {
  hv_mem *mem = *state;
  hv_identity *key = hv_identity_from_seed(mem, swarm_seed);
  static const char *const bad[] = {"a b", "a\n", "\xc3\xa9", "123456789012345678901234567890123", "a/b", "<b>"};
  char text[HV_INVITE_TEXT_MAX];
  hv_invitation invitation;
  hv_error err = {0};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(hv_invite_make(mem, key, guest_seed, NOW, bad[i], text, &invitation, &err), HV_INVALID);
  assert_int_equal(hv_invite_make(mem, key, guest_seed, -1, "", text, &invitation, &err), HV_INVALID);
  assert_int_equal(hv_invite_make(mem, key, guest_seed, HV_INVITATION_LAST_S + 1, "", text, &invitation, &err), HV_INVALID);
  assert_int_equal(hv_invite_make(mem, key, guest_seed, NOW, "12345678901234567890123456789012", text, &invitation, &err), HV_OK);
  assert_true(strlen(text) < HV_INVITE_TEXT_MAX);
  hv_identity_free(key);
}

static void certificate_carries_the_proof_and_older_readers_skip_it(void **state) {
  hv_mem *mem = *state;
  char text[HV_INVITE_TEXT_MAX], *pem = NULL, *key = NULL;
  uint8_t proof[HV_PROOF_MAX];
  hv_peer_id peer;
  hv_extension extension;
  invite_of(mem, swarm_seed, NOW + DAY, "lab-3", text);
  size_t size = prove(mem, NULL, text, proof);
  hv_identity *identity = hv_identity_from_seed(mem, peer_seed);
  assert_int_equal(hv_identity_certificate_with(identity, mem, hv_span_of(proof, size), NOW, 30, &pem, &key), HV_OK);
  hv_span span = hv_span_of(pem, strlen(pem));
  assert_int_equal(hv_identity_check_certificate(span, NOW, &peer, NULL), HV_OK);
  assert_int_equal(hv_identity_read_certificate(span, NOW, &peer, &extension, NULL), HV_OK);
  assert_true(hv_peer_equal(&peer, hv_identity_peer(identity)));
  assert_int_equal(extension.size, size);
  assert_memory_equal(extension.bytes, proof, size);
  hv_mem_free(pem);
  hv_mem_free(key);
  assert_int_equal(hv_identity_certificate(identity, mem, NOW, 30, &pem, &key), HV_OK);
  assert_int_equal(hv_identity_read_certificate(hv_span_of(pem, strlen(pem)), NOW, &peer, &extension, NULL), HV_OK);
  assert_int_equal(extension.size, 0);
  hv_mem_free(pem);
  hv_mem_free(key);
  hv_identity_free(identity);
}

static hv_status read_both(hv_mem *mem, void *texts) {
  const char(*both)[HV_INVITE_TEXT_MAX] = texts;
  hv_credentials credentials;
  hv_status status = hv_credentials_read(mem, both[0], both[1], &credentials, NULL);
  if (status == HV_OK)
    hv_credentials_fini(&credentials);
  return status;
}

static void credentials_without_memory_leave_nothing(void **state) {
  char both[2][HV_INVITE_TEXT_MAX];
  key_of(swarm_seed, both[0]);
  invite_of(*state, swarm_seed, NOW + DAY, "", both[1]);
  assert_true(check_out_of_memory(read_both, both) >= 2);
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(invited_peer_proves_its_invitation, settle, leave_tidy),
      cmocka_unit_test_setup_teardown(holder_proves_the_key_without_an_end, settle, leave_tidy),
      cmocka_unit_test_setup_teardown(copied_proof_is_worth_nothing_to_another_peer, settle, leave_tidy),
      cmocka_unit_test_setup_teardown(changed_proof_proves_nothing, settle, leave_tidy),
      cmocka_unit_test_setup_teardown(invitation_ends_with_an_hour_of_grace, settle, leave_tidy),
      cmocka_unit_test(moment_is_printed_as_a_date),
      cmocka_unit_test_setup_teardown(text_that_is_cut_or_changed_is_refused, settle, leave_tidy),
      cmocka_unit_test_setup_teardown(invitation_that_the_key_did_not_sign_is_refused, settle, leave_tidy),
      cmocka_unit_test_setup_teardown(name_and_end_have_bounds, settle, leave_tidy),
      cmocka_unit_test_setup_teardown(certificate_carries_the_proof_and_older_readers_skip_it, settle, leave_tidy),
      cmocka_unit_test_setup_teardown(credentials_without_memory_leave_nothing, settle, leave_tidy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
