/* Certificates: what is made, what is believed, and why the rest is refused. */
#include "lib/check.h"

#include "net/identity.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOW = 1700000000, DAY = 86400 };

static const uint8_t seed_1[32] = {1}, seed_2[32] = {2};
#define PEM_1                                                                                                                      \
  "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n"
#define ID_1 "12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X"

static int settle(void **state) {
  static hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  *state = &mem;
  return 0;
}

static int leave_tidy(void **state) {
  hv_mem *mem = *state;
  return atomic_load(&mem->blocks) != 0 || ERR_peek_error() != 0;
}

static hv_span text_of(const char *text) {
  return hv_span_of(text, strlen(text));
}

static hv_identity *identity_of(hv_mem *mem, const uint8_t seed[32]) {
  hv_identity *identity = hv_identity_from_seed(mem, seed);
  assert_non_null(identity);
  return identity;
}

static char *certificate_of(hv_mem *mem, const uint8_t seed[32], int64_t now_s, int days) {
  hv_identity *identity = identity_of(mem, seed);
  char *certificate = NULL, *key = NULL;
  assert_int_equal(hv_identity_certificate(identity, mem, now_s, days, &certificate, &key), HV_OK);
  hv_mem_free(key);
  hv_identity_free(identity);
  return certificate;
}

static hv_cause cause_at(hv_span pem, int64_t now_s) {
  hv_peer_id peer;
  hv_error err = {0};
  hv_identity_check_certificate(pem, now_s, &peer, &err);
  return err.cause;
}

static void check_as(hv_span pem, int64_t now_s, hv_status status, const char *why) {
  hv_peer_id peer = {{7}}, before = peer;
  hv_error err = {0};
  hv_status got = hv_identity_check_certificate(pem, now_s, &peer, &err);
  if (got != status || (status != HV_OK && !strstr(err.text, why)))
    fail_msg("%s: '%s', and should have said '%s'", hv_status_name(got), err.text, why);
  if (status == HV_OK) {
    char text[HV_PEER_TEXT_MAX];
    assert_string_equal(hv_peer_print(&peer, text), why);
  } else {
    assert_memory_equal(&peer, &before, sizeof peer);
  }
  assert_int_equal(hv_identity_check_certificate(pem, now_s, &peer, NULL), status);
}

static X509 *x509_of(const char *pem) {
  BIO *bio = BIO_new_mem_buf(pem, -1);
  X509 *x509 = PEM_read_bio_X509(bio, NULL, NULL, NULL);
  BIO_free(bio);
  assert_non_null(x509);
  return x509;
}

static void certificate_is_accepted_and_names_its_peer(void **state) {
  hv_mem *mem = *state;
  hv_identity *identity = identity_of(mem, seed_1);
  char *pem = NULL, *key = NULL, *again = NULL, *key_again = NULL, name[80];
  assert_int_equal(hv_identity_certificate(identity, mem, NOW, 30, &pem, &key), HV_OK);
  assert_int_equal(hv_identity_certificate(identity, mem, NOW, 30, &again, &key_again), HV_OK);
  assert_string_equal(key, PEM_1);
  assert_string_equal(pem, again); /* nothing random, no clock */
  check_as(text_of(pem), NOW, HV_OK, ID_1);
  X509 *x509 = x509_of(pem);
  assert_int_equal(X509_get_version(x509), 2);
  assert_true(X509_NAME_get_text_by_NID(X509_get_subject_name(x509), NID_commonName, name, sizeof name) > 0);
  assert_string_equal(name, ID_1);
  assert_int_equal(X509_NAME_cmp(X509_get_subject_name(x509), X509_get_issuer_name(x509)), 0);
  const ASN1_INTEGER *serial = X509_get0_serialNumber(x509);
  assert_int_equal(ASN1_STRING_length(serial), 16);
  assert_int_equal(ASN1_STRING_type(serial), V_ASN1_INTEGER); /* not negative */
  char *later = certificate_of(mem, seed_1, NOW + 1, 30);
  X509 *next = x509_of(later);
  assert_int_not_equal(ASN1_INTEGER_cmp(serial, X509_get0_serialNumber(next)), 0);
  X509_free(x509);
  X509_free(next);
  hv_mem_free(pem);
  hv_mem_free(again);
  hv_mem_free(later);
  hv_mem_free(key);
  hv_mem_free(key_again);
  hv_identity_free(identity);
}

static void a_certificate_is_believed_for_its_days_and_one_more(void **state) {
  hv_mem *mem = *state;
  char *pem = certificate_of(mem, seed_1, NOW, 30);
  check_as(text_of(pem), NOW - 2 * DAY, HV_OK, ID_1);
  check_as(text_of(pem), NOW - 2 * DAY - 1, HV_DENIED, "is not valid before 2023-11-13 22:13 UTC");
  check_as(text_of(pem), NOW + 31 * DAY, HV_OK, ID_1);
  check_as(text_of(pem), NOW + 31 * DAY + 1, HV_DENIED, "expired at 2023-12-14 22:13 UTC");
  check_as(text_of(pem), 0, HV_DENIED, "is not valid before");
  assert_int_equal(cause_at(text_of(pem), 0), HV_CAUSE_CLOCK);
  assert_int_equal(cause_at(text_of(pem), NOW + 31 * DAY + 1), HV_CAUSE_CLOCK);
  assert_int_equal(cause_at(text_of(pem), -1), HV_CAUSE_CLOCK);
  assert_int_equal(cause_at(text_of(pem), NOW), HV_CAUSE_OTHER);
  check_as(text_of(pem), 253402300799, HV_DENIED, "expired");
  check_as(text_of(pem), -1, HV_INVALID, "clock");
  check_as(text_of(pem), INT64_MAX, HV_INVALID, "clock");
  check_as(text_of(pem), INT64_MIN, HV_INVALID, "clock");
  hv_mem_free(pem);
  pem = certificate_of(mem, seed_1, 4102444800, 36500); /* into the years of GeneralizedTime */
  check_as(text_of(pem), 4102444800, HV_OK, ID_1);
  hv_mem_free(pem);
}

static void impossible_times_make_no_certificate(void **state) {
  hv_mem *mem = *state;
  static const struct {
    int64_t now_s;
    int days;
  } bad[] = {{NOW, 0}, {NOW, -1}, {NOW, 36501}, {-1, 30}, {DAY - 1, 30}, {INT64_MAX, 30}, {INT64_MIN, 30}, {253402300799, 1}};
  hv_identity *identity = identity_of(mem, seed_1);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *pem = NULL, *key = NULL;
    assert_int_equal(hv_identity_certificate(identity, mem, bad[i].now_s, bad[i].days, &pem, &key), HV_INVALID);
    assert_true(!pem && !key);
  }
  hv_identity_free(identity);
}

/* A certificate for `key`, signed by `by`, valid around NOW; as PEM for free(). */
static char *sign_certificate(EVP_PKEY *key, EVP_PKEY *by) {
  X509 *x509 = X509_new();
  X509_set_version(x509, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  ASN1_TIME_set(X509_getm_notBefore(x509), NOW - DAY);
  ASN1_TIME_set(X509_getm_notAfter(x509), NOW + DAY);
  X509_set_pubkey(x509, key);
  assert_true(X509_sign(x509, by, EVP_PKEY_id(by) == EVP_PKEY_ED25519 ? NULL : EVP_sha256()) > 0);
  BIO *bio = BIO_new(BIO_s_mem());
  char *data;
  PEM_write_bio_X509(bio, x509);
  long size = BIO_get_mem_data(bio, &data);
  char *text = strndup(data, (size_t)size);
  BIO_free(bio);
  X509_free(x509);
  return text;
}

static void foreign_signatures_and_other_keys_are_refused(void **state) {
  (void)state;
  uint8_t seed[32];
  memcpy(seed, seed_1, 32);
  EVP_PKEY *mine = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32);
  seed[0] ^= 1;
  EVP_PKEY *other = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32);
  EVP_PKEY *rsa = EVP_RSA_gen(2048), *ec = EVP_EC_gen("P-256");
  struct {
    char *pem;
    hv_status status;
    const char *why;
  } cases[] = {
      {sign_certificate(mine, mine), HV_OK, ID_1},
      {sign_certificate(mine, other), HV_DENIED, ID_1 " is signed by another key"},
      {sign_certificate(mine, rsa), HV_DENIED, "signed by another key"},
      {sign_certificate(mine, ec), HV_DENIED, "signed by another key"},
      {sign_certificate(rsa, rsa), HV_DENIED, "another kind of key (rsaEncryption)"},
      {sign_certificate(ec, ec), HV_DENIED, "another kind of key (id-ecPublicKey)"},
      {sign_certificate(ec, mine), HV_DENIED, "another kind of key"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_as(text_of(cases[i].pem), NOW, cases[i].status, cases[i].why);
    free(cases[i].pem);
  }
  EVP_PKEY_free(mine);
  EVP_PKEY_free(other);
  EVP_PKEY_free(rsa);
  EVP_PKEY_free(ec);
}

static void certificate_of_a_weak_key_is_refused(void **state) {
  (void)state;
  static const uint8_t weak[32] = {1};
  EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, weak, sizeof weak);
  EVP_PKEY *by = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
  char *pem = sign_certificate(key, by);
  check_as(text_of(pem), NOW, HV_MALFORMED, "no Ed25519 key that proves an identity");
  free(pem);
  EVP_PKEY_free(by);
  EVP_PKEY_free(key);
}

static void text_that_is_not_exactly_one_certificate_is_refused(void **state) {
  hv_mem *mem = *state;
  char *a = certificate_of(mem, seed_1, NOW, 30), *b = certificate_of(mem, seed_2, NOW, 30), both[4096];
  snprintf(both, sizeof both, "%s%s", a, b);
  check_as(text_of(both), NOW, HV_MALFORMED, "did not send exactly one certificate");
  snprintf(both, sizeof both, "%s%s", a, PEM_1);
  check_as(text_of(both), NOW, HV_MALFORMED, "did not send exactly one certificate");
  check_as(text_of(PEM_1), NOW, HV_MALFORMED, "did not send exactly one certificate");
  check_as(text_of("noise"), NOW, HV_MALFORMED, "did not send exactly one certificate");
  check_as(hv_span_of(NULL, 0), NOW, HV_MALFORMED, "did not send exactly one certificate");
  for (size_t n = 0; n < strlen(a) - 2; n++)
    check_as(hv_span_of(a, n), NOW, HV_MALFORMED, "did not send exactly one certificate");
  char large[8193];
  memset(large, '\n', sizeof large);
  memcpy(large, a, strlen(a));
  check_as(hv_span_of(large, 8192), NOW, HV_OK, ID_1);
  check_as(hv_span_of(large, 8193), NOW, HV_MALFORMED, "8193 bytes, and the limit");
  X509 *x509 = x509_of(a);
  uint8_t der[2048] = {0}, *at = der;
  int size = i2d_X509(x509, &at);
  BIO *bio = BIO_new(BIO_s_mem());
  char *longer;
  PEM_write_bio(bio, "CERTIFICATE", "", der, size + 1); /* a byte behind the certificate */
  long n = BIO_get_mem_data(bio, &longer);
  check_as(hv_span_of(longer, (size_t)n), NOW, HV_MALFORMED, "did not send exactly one certificate");
  BIO_free(bio);
  X509_free(x509);
  hv_mem_free(a);
  hv_mem_free(b);
}

/* Only the bits of the signature's own form may change nothing; whatever is believed is still signed by its own key. */
static void no_changed_bit_makes_another_peer(void **state) {
  hv_mem *mem = *state;
  char *pem = certificate_of(mem, seed_1, NOW, 30), text[HV_PEER_TEXT_MAX];
  X509 *x509 = x509_of(pem);
  uint8_t der[2048], *at = der;
  int size = i2d_X509(x509, &at), believed = 0;
  X509_free(x509);
  for (int bit = 0; bit < size * 8; bit++) {
    hv_peer_id peer;
    der[bit / 8] ^= (uint8_t)(1 << bit % 8);
    BIO *bio = BIO_new(BIO_s_mem());
    char *data;
    PEM_write_bio(bio, "CERTIFICATE", "", der, size);
    long n = BIO_get_mem_data(bio, &data);
    if (hv_identity_check_certificate(hv_span_of(data, (size_t)n), NOW, &peer, NULL) == HV_OK) {
      assert_string_equal(hv_peer_print(&peer, text), ID_1);
      believed++;
    }
    BIO_free(bio);
    der[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  assert_in_range(believed, 0, 3);
  hv_mem_free(pem);
}

int main(void) {
#define WITH_MEM(test) cmocka_unit_test_setup_teardown(test, settle, leave_tidy)
  const struct CMUnitTest tests[] = {
      WITH_MEM(certificate_is_accepted_and_names_its_peer), WITH_MEM(a_certificate_is_believed_for_its_days_and_one_more),
      WITH_MEM(impossible_times_make_no_certificate),       WITH_MEM(foreign_signatures_and_other_keys_are_refused),
      WITH_MEM(certificate_of_a_weak_key_is_refused),       WITH_MEM(text_that_is_not_exactly_one_certificate_is_refused),
      WITH_MEM(no_changed_bit_makes_another_peer),
  };
  return cmocka_run_group_tests_name("certificates", tests, NULL, NULL);
}
