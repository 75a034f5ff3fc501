#include "net/transport/grpc_tls.h"

#include "net/clock.h"
#include "net/transport/grpc.h"
#include "net/transport/handover.h"

#include <grpc/support/log.h>
#include <grpc/support/string_util.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CERTIFICATE_DAYS = 3650 };

/* ---- what only an older or only a newer gRPC has: NULL in the other ---- */

#define IF_THERE __attribute__((weak)) extern
IF_THERE void gpr_set_log_verbosity(gpr_log_severity least);
IF_THERE grpc_tls_certificate_provider *grpc_tls_certificate_provider_static_data_create(const char *root,
                                                                                         grpc_tls_identity_pairs *pairs);
IF_THERE void grpc_tls_credentials_options_set_certificate_provider(grpc_tls_credentials_options *options,
                                                                    grpc_tls_certificate_provider *provider);
IF_THERE void grpc_tls_credentials_options_watch_identity_key_cert_pairs(grpc_tls_credentials_options *options);
IF_THERE grpc_tls_certificate_provider *grpc_tls_certificate_provider_in_memory_create(void);
IF_THERE bool grpc_tls_certificate_provider_in_memory_set_identity_certificate(grpc_tls_certificate_provider *provider,
                                                                               grpc_tls_identity_pairs *pairs);
IF_THERE void grpc_tls_credentials_options_set_identity_certificate_provider(grpc_tls_credentials_options *options,
                                                                             grpc_tls_certificate_provider *provider);
IF_THERE void grpc_tls_credentials_options_set_min_tls_version(grpc_tls_credentials_options *options, grpc_tls_version least);

void hv_grpc_tls_hush(void) {
  if (gpr_set_log_verbosity && !getenv("GRPC_VERBOSITY"))
    gpr_set_log_verbosity((gpr_log_severity)(GPR_LOG_SEVERITY_ERROR + 1));
}

int hv_grpc_orphaned(const char *folder) {
  struct stat tasks; /* one folder for each thread, beside "." and ".." */
  hv_grpc_tls_hush();
  return grpc_is_initialized() && (stat(folder, &tasks) != 0 || tasks.st_nlink <= 3);
}

static grpc_tls_certificate_provider *provider_of(grpc_tls_identity_pairs *pairs) {
  if (grpc_tls_certificate_provider_static_data_create)
    return grpc_tls_certificate_provider_static_data_create(NULL, pairs);
  grpc_tls_certificate_provider *provider = grpc_tls_certificate_provider_in_memory_create();
  if (grpc_tls_certificate_provider_in_memory_set_identity_certificate(provider, pairs))
    return provider;
  grpc_tls_certificate_provider_release(provider);
  return NULL;
}

static void show(grpc_tls_credentials_options *options, grpc_tls_certificate_provider *provider) {
  if (grpc_tls_credentials_options_set_identity_certificate_provider) {
    grpc_tls_credentials_options_set_identity_certificate_provider(options, provider);
    return;
  }
  grpc_tls_credentials_options_set_certificate_provider(options, provider);
  grpc_tls_credentials_options_watch_identity_key_cert_pairs(options);
}

/* ---- what we show ---- */

hv_status hv_grpc_tls_provider(hv_mem *mem, const hv_identity *identity, const hv_credentials *credentials,
                               grpc_tls_certificate_provider **out) {
  char *certificate = NULL, *key = NULL;
  uint8_t proof[HV_PROOF_MAX];
  size_t size = 0;
  hv_status status = credentials ? hv_proof_make(credentials, hv_identity_peer(identity), proof, &size) : HV_OK;
  if (status == HV_OK)
    status = hv_identity_certificate_with(identity, mem, hv_span_of(proof, size), hv_clock_unix_s(), CERTIFICATE_DAYS, &certificate,
                                          &key);
  if (status != HV_OK)
    return status;
  grpc_tls_identity_pairs *pairs = grpc_tls_identity_pairs_create();
  grpc_tls_identity_pairs_add_pair(pairs, key, certificate);
  *out = provider_of(pairs);
  explicit_bzero(key, strlen(key));
  hv_mem_free(key);
  hv_mem_free(certificate);
  return *out ? HV_OK : HV_CRYPTO;
}

/* ---- what we look at ---- */

/* gRPC's handle on a trust; it may outlive its channel by a moment. */
typedef struct verifier {
  grpc_tls_certificate_verifier_external external;
  hv_trust *trust;
} verifier;

static void verifier_free(void *arg) {
  verifier *v = arg;
  BACK_FROM_GRPC(v);
  hv_trust_release(v->trust);
  hv_mem_free(v);
}

static int verify(void *arg, grpc_tls_custom_verification_check_request *request,
                  grpc_tls_on_custom_verification_check_done_cb callback, void *callback_arg, grpc_status_code *sync_status,
                  char **sync_details) {
  (void)callback, (void)callback_arg;
  verifier *v = arg;
  char why[HV_TRUST_TEXT_MAX];
  BACK_FROM_GRPC(v);
  int right = hv_trust_check(v->trust, request->peer_info.peer_cert, why);
  *sync_status = right ? GRPC_STATUS_OK : GRPC_STATUS_UNAUTHENTICATED;
  *sync_details = right ? NULL : gpr_strdup(why);
  GIVEN_TO_GRPC(v);
  return 1;
}

static void verify_cancel(void *arg, grpc_tls_custom_verification_check_request *request) {
  (void)arg, (void)request;
}

grpc_tls_credentials_options *hv_grpc_tls_options(hv_mem *mem, grpc_tls_certificate_provider *provider, hv_trust *trust) {
  verifier *v = trust ? hv_mem_zalloc(mem, sizeof *v) : NULL;
  if (!v)
    return NULL;
  v->trust = hv_trust_keep(trust);
  v->external = (grpc_tls_certificate_verifier_external){
      .user_data = v, .verify = verify, .cancel = verify_cancel, .destruct = verifier_free};
  GIVEN_TO_GRPC(v);
  grpc_tls_credentials_options *options = grpc_tls_credentials_options_create();
  grpc_tls_certificate_verifier *checks = grpc_tls_certificate_verifier_external_create(&v->external);
  show(options, provider);
  grpc_tls_credentials_options_set_certificate_verifier(options, checks);
  grpc_tls_credentials_options_set_check_call_host(options, 0);
  if (grpc_tls_credentials_options_set_min_tls_version)
    grpc_tls_credentials_options_set_min_tls_version(options, TLS1_3); /* all peers speak it; 1.51 takes 1.2, too */
  grpc_tls_certificate_verifier_release(checks);
  return options;
}

grpc_server_credentials *hv_grpc_tls_server(hv_mem *mem, grpc_tls_certificate_provider *provider, hv_trust_swarm *swarm) {
  hv_trust *trust = hv_trust_new(mem, NULL, swarm);
  grpc_tls_credentials_options *options = hv_grpc_tls_options(mem, provider, trust);
  hv_trust_release(trust);
  if (!options)
    return NULL;
  grpc_tls_credentials_options_set_cert_request_type(options, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  return grpc_tls_server_credentials_create(options);
}

grpc_channel_credentials *hv_grpc_tls_channel(grpc_tls_credentials_options *options) {
  grpc_tls_credentials_options_set_verify_server_cert(options, 0); /* no authority has signed it; `verify` checks it */
  return grpc_tls_credentials_create(options);
}
