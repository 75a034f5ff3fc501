/* gRPC core without anything of ours: what bench_rpc and bench_stream are measured against. One queue, one thread that polls it,
 * the same channel arguments as ours, zero-copy slices, Ed25519 certificates that nobody checks. And the two processes both sides
 * run in. */
#ifndef HV_BENCH_BARE_H
#define HV_BENCH_BARE_H

#include "net/clock.h"
#include "net/identity.h"
#include "net/transport/loop.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BARE_MESSAGE_MAX (8 << 20)

static inline void die(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

/* ---- two processes ---- */

/* Runs serve in a child, which tells its port (and then what it likes) through a pipe; the parent gets the port and the pipe. */
static inline pid_t start_server(void (*serve)(int tls, int tell), int tls, uint16_t *port, int *told) {
  int pipes[2];
  if (pipe(pipes) != 0)
    die("no pipe");
  pid_t child = fork();
  if (child == 0) {
    close(pipes[0]);
    serve(tls, pipes[1]);
    _exit(0);
  }
  close(pipes[1]);
  if (child < 0 || read(pipes[0], port, sizeof *port) != sizeof *port)
    die("the server did not start");
  *told = pipes[0];
  return child;
}

static inline void tell_port(int tell, uint16_t port) {
  if (write(tell, &port, sizeof port) != sizeof port)
    die("no one to tell the port");
}

/* Processor time of this process and of the children it has waited for. */
static inline double cpu_s(void) {
  double s = 0;
  const int who[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
  for (int i = 0; i < 2; i++) {
    struct rusage u;
    getrusage(who[i], &u);
    s += (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
  }
  return s;
}

/* ---- gRPC ---- */

static inline grpc_arg bare_int(const char *key, int value) {
  return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

enum { BARE_ARGS = 8 };
static inline grpc_channel_args bare_args(grpc_arg args[BARE_ARGS]) {
  args[0] = bare_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, BARE_MESSAGE_MAX);
  args[1] = bare_int(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, BARE_MESSAGE_MAX);
  args[2] = bare_int(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 4 << 20);
  args[3] = bare_int(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20);
  args[4] = bare_int(GRPC_ARG_ENABLE_RETRIES, 0);
  args[5] = bare_int(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  args[6] = bare_int(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  args[7] = bare_int(GRPC_ARG_ENABLE_CHANNELZ, 0);
  return (grpc_channel_args){BARE_ARGS, args};
}

static inline grpc_tls_credentials_options *bare_tls(uint8_t number) {
  static hv_mem mem;
  char *certificate, *key;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *identity = hv_identity_from_seed(&mem, (uint8_t[32]){number});
  if (hv_identity_certificate(identity, &mem, hv_clock_unix_s(), 10, &certificate, &key) != HV_OK)
    die("no certificate");
  grpc_tls_identity_pairs *pairs = grpc_tls_identity_pairs_create();
  grpc_tls_identity_pairs_add_pair(pairs, key, certificate);
  grpc_tls_certificate_provider *provider = grpc_tls_certificate_provider_static_data_create(NULL, pairs);
  grpc_tls_credentials_options *options = grpc_tls_credentials_options_create();
  grpc_tls_certificate_verifier *anyone = grpc_tls_certificate_verifier_no_op_create();
  grpc_tls_credentials_options_set_certificate_provider(options, provider);
  grpc_tls_credentials_options_watch_identity_key_cert_pairs(options);
  grpc_tls_credentials_options_set_certificate_verifier(options, anyone);
  grpc_tls_credentials_options_set_check_call_host(options, 0);
  return options;
}

static inline grpc_channel *bare_channel(uint16_t port, int tls) {
  char target[64];
  grpc_arg args[BARE_ARGS];
  grpc_channel_args list = bare_args(args);
  snprintf(target, sizeof target, "ipv4:127.0.0.1:%u", port);
  if (!tls)
    return grpc_channel_create(target, grpc_insecure_credentials_create(), &list);
  grpc_tls_credentials_options *options = bare_tls(1);
  grpc_tls_credentials_options_set_verify_server_cert(options, 0);
  return grpc_channel_create(target, grpc_tls_credentials_create(options), &list);
}

static inline grpc_server *bare_server(grpc_completion_queue *cq, int tls, uint16_t *port) {
  grpc_arg args[BARE_ARGS];
  grpc_channel_args list = bare_args(args);
  grpc_server *server = grpc_server_create(&list, NULL);
  grpc_server_register_completion_queue(server, cq, NULL);
  grpc_server_credentials *credentials = NULL;
  if (tls) {
    grpc_tls_credentials_options *options = bare_tls(2);
    grpc_tls_credentials_options_set_cert_request_type(options, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
    credentials = grpc_tls_server_credentials_create(options);
  } else {
    credentials = grpc_insecure_server_credentials_create();
  }
  int bound = grpc_server_add_http2_port(server, "127.0.0.1:0", credentials);
  if (bound <= 0)
    die("no port");
  *port = (uint16_t)bound;
  return server;
}

/* ---- ours ---- */

static inline hv_loop *our_loop(hv_mem *mem, uint8_t number, int tls, int listens, hv_target *at) {
  hv_error err = {0};
  hv_loop *loop;
  hv_addr loopback = {.kind = HV_ADDR_IP4, .host.ip = {127, 0, 0, 1}};
  hv_mem_init(mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *identity = hv_identity_from_seed(mem, (uint8_t[32]){number});
  hv_loop_config config = {
      .mem = mem, .identity = identity, .insecure = !tls, .listen = &loopback, .n_listen = (size_t)listens, .pool_threads = 1};
  if (hv_loop_new(&config, &loop, &err) != HV_OK)
    die(err.text);
  size_t n;
  const hv_addr *addrs = hv_loop_addrs(loop, &n);
  *at = (hv_target){.id = *hv_identity_peer(identity)};
  if (n)
    at->addr = addrs[0];
  return loop;
}

/* The server's target as the client's process knows it: the same seed, the port it was told. */
static inline hv_target our_server(uint16_t port) {
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *identity = hv_identity_from_seed(&mem, (uint8_t[32]){2});
  hv_target to = {*hv_identity_peer(identity), {.kind = HV_ADDR_IP4, .port = port, .host.ip = {127, 0, 0, 1}}};
  hv_identity_free(identity);
  return to;
}

#endif
