#include "net/transport/grpc_tls.h"

#include "net/clock.h"
#include "net/transport/grpc.h"
#include "net/transport/handover.h"

#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpc/support/string_util.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CERTIFICATE_DAYS = 3650, LOOK_S = 1 /* between two looks of gRPC 1.51 at a certificate */ };

/* ---- what only an older or only a newer gRPC has: NULL in the other ---- */

#define IF_THERE __attribute__((weak)) extern
IF_THERE void gpr_set_log_verbosity(gpr_log_severity least);
IF_THERE grpc_tls_certificate_provider *grpc_tls_certificate_provider_static_data_create(const char *root,
                                                                                         grpc_tls_identity_pairs *pairs);
IF_THERE grpc_tls_certificate_provider *grpc_tls_certificate_provider_file_watcher_create(const char *key, const char *certificate,
                                                                                          const char *root, unsigned seconds);
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

typedef struct texts {
  char *certificate, *key;
} texts;

static grpc_tls_identity_pairs *pairs_of(const texts *t) {
  grpc_tls_identity_pairs *pairs = grpc_tls_identity_pairs_create();
  grpc_tls_identity_pairs_add_pair(pairs, t->key, t->certificate);
  return pairs;
}

static grpc_tls_certificate_provider *in_memory(const texts *t) {
  grpc_tls_certificate_provider *provider = grpc_tls_certificate_provider_in_memory_create();
  if (grpc_tls_certificate_provider_in_memory_set_identity_certificate(provider, pairs_of(t)))
    return provider;
  grpc_tls_certificate_provider_release(provider);
  return NULL;
}

/* A provider of one certificate. */
static grpc_tls_certificate_provider *lasting(const texts *t) {
  if (grpc_tls_certificate_provider_static_data_create)
    return grpc_tls_certificate_provider_static_data_create(NULL, pairs_of(t));
  return in_memory(t);
}

/* A descriptor of this text in memory, which other processes cannot open; -1: none. */
static int hold(const char *text) {
  int fd = memfd_create("hivemind_c", MFD_CLOEXEC);
  if (fd < 0 || (fchmod(fd, 0600) == 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text)))
    return fd;
  close(fd);
  return -1;
}

static void path_of(int fd, char out[32]) {
  snprintf(out, 32, "/proc/self/fd/%d", fd);
}

/* gRPC reads both texts again and again; a certificate is replaced as a whole, because its descriptor is. NULL: it cannot. */
static grpc_tls_certificate_provider *watching(const texts *t, hv_grpc_tls_shown *shown) {
  char key[32], certificate[32];
  if (!grpc_tls_certificate_provider_file_watcher_create || (shown->key = hold(t->key)) < 0 ||
      (shown->certificate = hold(t->certificate)) < 0)
    return NULL;
  path_of(shown->key, key);
  path_of(shown->certificate, certificate);
  if (access(key, R_OK) != 0 || access(certificate, R_OK) != 0)
    return NULL;
  return grpc_tls_certificate_provider_file_watcher_create(key, certificate, NULL, LOOK_S);
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

static hv_status show_first(const texts *t, int renews, hv_grpc_tls_shown *shown) {
  shown->key = shown->certificate = -1;
  shown->dials = lasting(t);
  if (!shown->dials)
    return HV_CRYPTO;
  if (renews)
    shown->serves = grpc_tls_certificate_provider_in_memory_create ? in_memory(t) : watching(t, shown);
  if (!shown->serves) /* it never changes then */
    shown->serves = shown->dials;
  return HV_OK;
}

static hv_status show_next(const texts *t, hv_grpc_tls_shown *shown) {
  if (shown->serves == shown->dials)
    return HV_UNSUPPORTED;
  grpc_tls_certificate_provider *dials = lasting(t);
  int held = dials && shown->certificate >= 0 ? hold(t->certificate) : -1;
  int right = dials && (shown->certificate >= 0
                            ? held >= 0 && dup3(held, shown->certificate, O_CLOEXEC) >= 0
                            : grpc_tls_certificate_provider_in_memory_set_identity_certificate(shown->serves, pairs_of(t)));
  if (held >= 0)
    close(held);
  grpc_tls_certificate_provider *before = right ? shown->dials : dials;
  if (right)
    shown->dials = dials;
  if (before)
    grpc_tls_certificate_provider_release(before); /* channels that were made with it hold it */
  return right ? HV_OK : HV_CRYPTO;
}

hv_status hv_grpc_tls_show(hv_mem *mem, const hv_identity *identity, const hv_credentials *credentials, hv_grpc_tls_shown *shown) {
  texts t = {0};
  uint8_t proof[HV_PROOF_MAX];
  size_t size = 0;
  hv_status status = credentials ? hv_proof_make(credentials, hv_identity_peer(identity), proof, &size) : HV_OK;
  if (status == HV_OK)
    status = hv_identity_certificate_with(identity, mem, hv_span_of(proof, size), hv_clock_unix_s(), CERTIFICATE_DAYS,
                                          &t.certificate, &t.key);
  if (status != HV_OK)
    return status;
  int is_guest = credentials && credentials->admission.me.kind == HV_MEMBERSHIP_INVITED;
  status = shown->dials ? show_next(&t, shown) : show_first(&t, is_guest, shown);
  explicit_bzero(t.key, strlen(t.key));
  hv_mem_free(t.key);
  hv_mem_free(t.certificate);
  return status;
}

void hv_grpc_tls_hide(hv_grpc_tls_shown *shown) {
  if (!shown->dials)
    return;
  if (shown->serves != shown->dials)
    grpc_tls_certificate_provider_release(shown->serves);
  grpc_tls_certificate_provider_release(shown->dials);
  if (shown->key >= 0)
    close(shown->key);
  if (shown->certificate >= 0)
    close(shown->certificate);
  *shown = (hv_grpc_tls_shown){0};
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
