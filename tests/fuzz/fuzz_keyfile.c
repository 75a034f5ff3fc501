/* Any bytes that read as a key file are a key is a key that can be written and read again, and nothing is left behind. The bytes
 * are taken as a file, and as the DER within PEM. */
#include "net/identity.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <string.h>

static void must(int right) {
  if (!right)
    abort();
}

static void read_as_file(hv_span bytes) {
  hv_mem mem;
  hv_identity *identity = NULL, *again = NULL;
  hv_error err = {0};
  hv_mem_init(&mem, NULL, 1 << 16);
  hv_status status = hv_identity_parse(&mem, bytes, &identity, &err);
  must(status == HV_OK ? identity != NULL : status == HV_MALFORMED && !identity && err.text[0]);
  if (identity) {
    char *certificate, *key;
    must(hv_identity_certificate(identity, &mem, 1700000000, 1, &certificate, &key) == HV_OK);
    must(hv_identity_parse(&mem, hv_span_of(key, strlen(key)), &again, NULL) == HV_OK);
    must(hv_peer_equal(hv_identity_peer(identity), hv_identity_peer(again)));
    hv_mem_free(certificate);
    hv_mem_free(key);
  }
  hv_identity_free(identity);
  hv_identity_free(again);
  must(atomic_load(&mem.blocks) == 0 && ERR_peek_error() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *pem;
  BIO *bio = BIO_new(BIO_s_mem());
  read_as_file(hv_span_of(data, size));
  PEM_write_bio(bio, "PRIVATE KEY", "", data, (long)size);
  ERR_clear_error();
  long n = BIO_get_mem_data(bio, &pem);
  read_as_file(hv_span_of(pem, (size_t)n));
  BIO_free(bio);
  return 0;
}
