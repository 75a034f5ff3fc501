/* Any certificate that a peer shows gives a known key or a sentence that says why not. The bytes are taken as PEM, and as
 * the DER within it. */
#include "net/identity.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdlib.h>

static void must(int right) {
  if (!right)
    abort();
}

static void show(hv_span pem) {
  static const int64_t times_s[] = {0, 1700000000, 253402300799};
  for (int i = 0; i < 3; i++) {
    hv_peer_id peer = {{0}};
    hv_error err = {0};
    hv_status status = hv_identity_check_certificate(pem, times_s[i], &peer, &err);
    must(status == HV_OK || status == HV_MALFORMED || status == HV_DENIED);
    must((status == HV_OK) == hv_peer_is_known(&peer) && (status == HV_OK) == !err.text[0]);
    for (const char *c = err.text; *c; c++)
      must(*c >= 0x20 && *c < 0x7f);
    must(ERR_peek_error() == 0);
  }
}

/* The certificate in the bytes, made one that holds a good key and its signature. */
static void show_signed(hv_span der) {
  static const uint8_t seed[32] = {1};
  const uint8_t *at = der.data;
  char *pem;
  X509 *x509 = d2i_X509(NULL, &at, (long)der.size);
  EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, sizeof seed);
  BIO *bio = BIO_new(BIO_s_mem());
  int right = x509 && X509_set_pubkey(x509, key) && X509_sign(x509, key, NULL) && PEM_write_bio_X509(bio, x509);
  ERR_clear_error();
  if (right) {
    long n = BIO_get_mem_data(bio, &pem);
    show(hv_span_of(pem, (size_t)n));
  }
  X509_free(x509);
  EVP_PKEY_free(key);
  BIO_free(bio);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *pem;
  BIO *bio = BIO_new(BIO_s_mem());
  show(hv_span_of(data, size));
  PEM_write_bio(bio, "CERTIFICATE", "", data, (long)size);
  ERR_clear_error();
  long n = BIO_get_mem_data(bio, &pem);
  show(hv_span_of(pem, (size_t)n));
  BIO_free(bio);
  show_signed(hv_span_of(data, size));
  return 0;
}
