/* Bytes that should not reach an open port: noise, half a handshake, the wrong papers, too much, too slow, another version. It is
 * refused or dropped with its reason, memory stays bounded, and everybody else is served meanwhile. And a peer that is killed is
 * missed at once. */
#include "lib/raw.h"
#include "lib/real.h"

#include "net/transport/door.h"
#include "net/transport/grpc.h"
#include "net/transport/world.h"
#include "net/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef HV_SANITIZED
enum { MAY_GROW = 400 << 20 }; /* shadow and quarantine */
#else
enum { MAY_GROW = 48 << 20 };
#endif

static size_t resident(void) {
  long pages = 0, skipped;
  FILE *f = fopen("/proc/self/statm", "r");
  assert_int_equal(fscanf(f, "%ld %ld", &skipped, &pages), 2);
  fclose(f);
  return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void pass_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static int dial(const hv_target *to) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(to->addr.port)};
  memcpy(&at.sin_addr, to->addr.host.ip, 4);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 10}, sizeof(struct timeval));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){.tv_sec = 10}, sizeof(struct timeval));
  return fd;
}

/* Reads until the other side closes or resets; 0: it did not within the socket's time. */
static int is_dropped(int fd) {
  char bytes[4096];
  for (;;) {
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN))
      return 1;
    if (n < 0)
      return 0;
  }
}

static void both_worlds(int insecure, void (*test)(real_node *node, real_node *friend)) {
  real_node node, friend;
  real_start(&node, &(real_options){.seed = 1, .insecure = insecure, .greeting_ms = 700});
  real_start(&friend, &(real_options){.seed = 2, .insecure = insecure});
  assert_int_equal(real_echo(&friend, &node.target, "x", 5000), HV_OK);
  test(&node, &friend);
  assert_int_equal(real_echo(&friend, &node.target, "x", 5000), HV_OK); /* others are served as before */
  real_stop(&friend);
  real_stop(&node);
}

/* ---- noise ---- */

static void send_noise(real_node *node, real_node *friend) {
  static uint8_t noise[1 << 16];
  check_rng rng = {3};
  size_t before = resident(), taken = 0, total = (size_t)64 << 20;
  int fd = -1, dropped = 0;
  while (taken < total) {
    if (fd < 0)
      fd = dial(&node->target);
    for (size_t i = 0; i < sizeof noise; i += 8)
      memcpy(noise + i, &(uint64_t){check_random(&rng)}, 8);
    taken += sizeof noise;
    if (send(fd, noise, sizeof noise, MSG_NOSIGNAL) < 0) {
      close(fd);
      fd = -1;
      dropped++;
    }
    if (taken % (16 << 20) == 0)
      assert_int_equal(real_echo(friend, &node->target, "x", 5000), HV_OK);
  }
  if (fd >= 0)
    close(fd);
  assert_true(dropped > 0);
  assert_true(resident() < before + MAY_GROW);
}

static void noise_of_64_MiB_is_dropped(void **state) {
  (void)state;
  both_worlds(0, send_noise);
  both_worlds(1, send_noise);
}

static void say_plain_text(real_node *node, real_node *friend) {
  (void)friend;
  static const char *const texts[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a settings frame at all", "SSH-2.0-OpenSSH_9.2\r\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    int fd = dial(&node->target);
    send(fd, texts[i], strlen(texts[i]), MSG_NOSIGNAL);
    assert_true(is_dropped(fd));
    close(fd);
  }
  assert_int_equal(real_count(node, HV_EVENT_REQUEST), 1); /* the friend's */
}

static void other_protocols_are_dropped(void **state) {
  (void)state;
  both_worlds(0, say_plain_text);
  both_worlds(1, say_plain_text);
}

static void a_peer_without_tls_gets_no_answer_from_one_with(void **state) {
  (void)state;
  real_node node, plain;
  real_start(&node, &(real_options){.seed = 1});
  real_start(&plain, &(real_options){.seed = 2, .insecure = 1});
  hv_status there = real_echo(&plain, &node.target, "x", 3000), back = real_echo(&node, &plain.target, "x", 3000);
  assert_true(there != HV_OK && back != HV_OK);
  assert_int_equal(real_count(&node, HV_EVENT_REQUEST) + real_count(&plain, HV_EVENT_REQUEST), 0);
  real_stop(&plain);
  real_stop(&node);
}

enum { HALF_OPEN = 100 };

static void open_by_half(real_node *node, real_node *friend) {
  int fds[HALF_OPEN];
  size_t before = resident();
  for (int i = 0; i < HALF_OPEN; i++) {
    fds[i] = dial(&node->target);
    if (i % 2)
      send(fds[i], "\x16\x03\x01\x02\x00\x01", 6, MSG_NOSIGNAL); /* the begin of a handshake */
  }
  for (int i = 0; i < 20; i++) {
    send(fds[0], "PRI * HTTP/2.0\r\n\r\nSM\r\n" + i, 1, MSG_NOSIGNAL); /* one writes on, slowly */
    assert_int_equal(real_echo(friend, &node->target, "x", 5000), HV_OK);
    pass_ms(20);
  }
  assert_true(resident() < before + MAY_GROW);
  for (int i = 0; i < HALF_OPEN; i++) {
    assert_true(is_dropped(fds[i])); /* within 10 s: the handshake may take 5 */
    close(fds[i]);
  }
}

static void half_open_and_slow_connections_are_dropped(void **state) {
  (void)state;
  both_worlds(0, open_by_half);
  both_worlds(1, open_by_half);
}

/* ---- papers ---- */

typedef struct papers {
  X509 *certificate;
  EVP_PKEY *key;
} papers;

enum { RIGHT, EXPIRED, NOT_YET, FOREIGN, OTHER_KIND, NONE, KINDS };

static papers make_papers(int kind) {
  papers p = {NULL, NULL};
  hv_mem mem;
  char *certificate, *key;
  int64_t now = hv_clock_unix_s() + (kind == EXPIRED ? -90 : kind == NOT_YET ? 90 : 0) * (int64_t)86400;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *identity = hv_identity_from_seed(&mem, (uint8_t[32]){77});
  assert_int_equal(hv_identity_certificate(identity, &mem, now, 10, &certificate, &key), HV_OK);
  BIO *a = BIO_new_mem_buf(certificate, -1), *b = BIO_new_mem_buf(key, -1);
  p.certificate = PEM_read_bio_X509(a, NULL, NULL, NULL);
  p.key = PEM_read_bio_PrivateKey(b, NULL, NULL, NULL);
  BIO_free(a);
  BIO_free(b);
  hv_mem_free(certificate);
  hv_mem_free(key);
  hv_identity_free(identity);
  if (kind == FOREIGN || kind == OTHER_KIND) {
    EVP_PKEY *other = kind == FOREIGN ? EVP_PKEY_Q_keygen(NULL, NULL, "ED25519") : EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    if (kind == OTHER_KIND) { /* a certificate for another kind of key, well signed */
      X509_set_pubkey(p.certificate, other);
      EVP_PKEY_free(p.key);
      p.key = other;
      assert_true(X509_sign(p.certificate, p.key, EVP_sha256()) > 0);
    } else { /* the right key, signed by another */
      assert_true(X509_sign(p.certificate, other, NULL) > 0);
      EVP_PKEY_free(other);
    }
  }
  return p;
}

static SSL_CTX *context_with(int kind, int server) {
  SSL_CTX *context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
  papers p = make_papers(kind);
  if (kind != NONE) {
    assert_int_equal(SSL_CTX_use_certificate(context, p.certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, p.key), 1);
  }
  X509_free(p.certificate);
  EVP_PKEY_free(p.key);
  return context;
}

/* Shakes hands with the papers, speaks HTTP/2, and tells whether it is answered in kind. */
static int is_let_in(const hv_target *to, int kind) {
  static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
  SSL_CTX *context = context_with(kind, 0);
  SSL_CTX_set_alpn_protos(context, (const unsigned char *)"\2h2", 3);
  SSL *ssl = SSL_new(context);
  int fd = dial(to), answered = 0;
  SSL_set_fd(ssl, fd);
  if (SSL_connect(ssl) == 1) {
    SSL_write(ssl, hello, sizeof hello - 1);
    char frame[9];
    answered = SSL_read(ssl, frame, sizeof frame) == sizeof frame && frame[3] == 4; /* SETTINGS */
  }
  close(fd);
  SSL_free(ssl);
  SSL_CTX_free(context);
  return answered;
}

static void show_papers(real_node *node, real_node *friend) {
  (void)friend;
  assert_true(is_let_in(&node->target, RIGHT)); /* so the others are refused for what they show */
  for (int kind = EXPIRED; kind < KINDS; kind++)
    assert_false(is_let_in(&node->target, kind));
  assert_int_equal(real_count(node, HV_EVENT_REQUEST), 1);
}

static void callers_with_wrong_certificates_are_refused(void **state) {
  (void)state;
  signal(SIGPIPE, SIG_IGN);
  both_worlds(0, show_papers);
}

typedef struct false_server {
  int listener, kind;
  hv_target at;
  pthread_t thread;
} false_server;

static int choose_h2(SSL *ssl, const unsigned char **out, unsigned char *size, const unsigned char *in, unsigned int in_size,
                     void *arg) {
  (void)ssl, (void)in, (void)in_size, (void)arg;
  *out = (const unsigned char *)"h2";
  *size = 2;
  return SSL_TLSEXT_ERR_OK;
}

static void *serve_falsely(void *arg) {
  false_server *f = arg;
  SSL_CTX *context = context_with(f->kind, 1);
  SSL_CTX_set_alpn_select_cb(context, choose_h2, NULL);
  int fd = accept(f->listener, NULL, NULL);
  SSL *ssl = SSL_new(context);
  SSL_set_fd(ssl, fd);
  char byte;
  if (SSL_accept(ssl) == 1)
    SSL_read(ssl, &byte, 1);
  close(fd);
  SSL_free(ssl);
  SSL_CTX_free(context);
  return NULL;
}

static void servers_with_wrong_certificates_are_denied_with_the_reason(void **state) {
  (void)state;
  static const char *const reasons[KINDS] = {
      [EXPIRED] = "expired", [NOT_YET] = "not valid before", [FOREIGN] = "sign", [OTHER_KIND] = "Ed25519"};
  for (int kind = EXPIRED; kind <= OTHER_KIND; kind++) {
    real_node a;
    real_start(&a, &(real_options){.seed = 1});
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    false_server f = {.listener = socket(AF_INET, SOCK_STREAM, 0), .kind = kind};
    assert_int_equal(bind(f.listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(f.listener, 4), 0);
    getsockname(f.listener, (struct sockaddr *)&at, &size);
    f.at.addr = (hv_addr){.kind = HV_ADDR_IP4, .port = ntohs(at.sin_port), .host.ip = {127, 0, 0, 1}};
    pthread_create(&f.thread, NULL, serve_falsely, &f);
    assert_int_equal(real_echo(&a, &f.at, "x", 5000), HV_DENIED);
    assert_int_equal(a.last_cause, kind == EXPIRED || kind == NOT_YET ? HV_CAUSE_CLOCK : HV_CAUSE_BAD_CERTIFICATE);
    if (!strstr(a.last_text, reasons[kind]))
      fail_msg("kind %d: %s", kind, a.last_text);
    pthread_join(f.thread, NULL);
    close(f.listener);
    real_stop(&a);
  }
}

/* A link remembers another peer than the one that is there now, as if the address had changed hands a moment ago. */
static void remember_another(real_node *node, void *peer) {
  for (hv_ring *at = node->loop->links.next; at != &node->loop->links; at = at->next) {
    hv_link *link = HV_HOLDER(hv_link, all, at);
    link->met = *(const hv_peer_id *)peer;
    link->sure = 1;
  }
}

static void answer_counts_for_the_certificate_of_its_call(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2});
  hv_target anybody = {.addr = b.target.addr};
  hv_peer_id before = {.key = {9, 9}};
  assert_int_equal(real_echo(&a, &anybody, "x", 5000), HV_OK);
  real_do(&a, remember_another, &before);
  assert_int_equal(real_echo(&a, &anybody, "x", 5000), HV_OK);
  assert_true(hv_peer_equal(&a.last_peer, &b.target.id));
  real_stop(&b);
  real_stop(&a);
}

static void denial_is_forgotten_when_nobody_listens_any_more(void **state) {
  (void)state;
  real_node a, b;
  real_start(&a, &(real_options){.seed = 1});
  real_start(&b, &(real_options){.seed = 2});
  hv_target other = {.id = a.target.id, .addr = b.target.addr};
  other.id.key[0] ^= 1;
  assert_int_equal(real_echo(&a, &other, "x", 5000), HV_DENIED);
  real_stop(&b);
  hv_status status = HV_DENIED;
  for (int tries = 0; tries < 100 && status == HV_DENIED; tries++, pass_ms(100))
    status = real_echo(&a, &other, "x", 5000);
  assert_int_equal(status, HV_REFUSED);
  assert_non_null(strstr(a.last_text, "nothing listens"));
  real_stop(&a);
}

/* ---- a peer that speaks gRPC, but not as it should ---- */

static hv_status raw_ask(raw_peer *p, hv_span bytes, char text[HV_GRPC_TEXT_MAX]) {
  raw_op op = raw_op_new();
  hv_grpc_call *call = hv_grpc_call_new(p->channel, HV_GRPC_CALL, 1);
  assert_true(hv_grpc_call_ask(call, hv_grpc_message_new(p->grpc, bytes, NULL), &op.op));
  assert_true(raw_wait(p, &op, 5000));
  hv_cause cause;
  hv_status status = hv_grpc_call_result(call, &cause, text);
  hv_grpc_call_free(call);
  return status;
}

/* An echo as another version of the protocol would say it. */
static hv_span of_version(uint8_t version, hv_buf *buf, int bulk) {
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of("hello", 5)};
  assert_int_equal(
      bulk ? hv_wire_write_bulk(&msg, HV_PROTOCOL_LOWEST, NULL, buf) : hv_wire_write(&msg, HV_PROTOCOL_LOWEST, NULL, buf), HV_OK);
  uint8_t *first = buf->data + (bulk ? 4 : 0);
  assert_int_equal(first[0], 0x08); /* field 1, the version */
  first[1] = version;
  return hv_span_of(buf->data, buf->size);
}

static void speak_badly(real_node *node, real_node *friend) {
  (void)friend;
  raw_peer p;
  char text[HV_GRPC_TEXT_MAX];
  raw_start(&p, 1, &node->target);
  hv_buf buf;
  hv_buf_init(&buf, &p.mem, 1 << 20);
  assert_int_equal(raw_ask(&p, hv_span_of("\xff\xff\xff\xff\xff", 5), text), HV_MALFORMED);
  assert_int_equal(raw_ask(&p, hv_span_of("", 0), text), HV_MALFORMED);
  hv_wire_msg refusal;
  raw_op op = raw_op_new();
  hv_grpc_call *later = hv_grpc_call_new(p.channel, HV_GRPC_CALL, 1);
  hv_span request = of_version(HV_PROTOCOL_HIGHEST + 1, &buf, 0), answer;
  assert_true(hv_grpc_call_ask(later, hv_grpc_message_new(p.grpc, request, NULL), &op.op) && raw_wait(&p, &op, 5000));
  hv_buf scratch;
  hv_buf_init(&scratch, &p.mem, 1 << 20);
  assert_int_equal(hv_grpc_call_bytes(later, (size_t)hv_grpc_call_size(later), &scratch, &answer), HV_OK);
  hv_versions own = hv_versions_own();
  assert_int_equal(hv_wire_read(answer, &own, &p.mem, HV_WIRE_BUDGET, &refusal), HV_OK); /* as an older program reads it, too */
  assert_int_equal(refusal.msg.kind, HV_MSG_REFUSAL);
  assert_int_equal(refusal.msg.u.refusal.status, HV_VERSION);
  snprintf(text, sizeof text, "%.*s", (int)refusal.msg.u.refusal.text.size, (const char *)refusal.msg.u.refusal.text.data);
  assert_string_equal(
      text, "the called peer speaks version 1 of the protocol, the caller version 2: upgrade hivemind_c at the called peer");
  hv_wire_release(&refusal);
  hv_buf_fini(&scratch);
  hv_grpc_call_free(later);
  static uint8_t much[3 << 20];
  assert_int_equal(raw_ask(&p, hv_span_of(much, sizeof much), text), HV_TOO_LARGE);
  assert_non_null(strstr(text, "2 MiB"));
  hv_buf_fini(&buf);
  raw_stop(&p);
  assert_int_equal(real_count(node, HV_EVENT_REQUEST), 1); /* core saw none of it */
}

static void requests_that_cannot_be_read_are_refused_with_the_reason(void **state) {
  (void)state;
  both_worlds(1, speak_badly);
}

/* Opens a stream with these first bytes (none: only says hello) and returns how it ended. */
static hv_status raw_stream(raw_peer *p, const hv_span *first, char text[HV_GRPC_TEXT_MAX]) {
  raw_op sent = raw_op_new(), said = raw_op_new(), over = raw_op_new();
  hv_grpc_call *call = hv_grpc_call_new(p->channel, HV_GRPC_BULK, 1);
  assert_true(hv_grpc_call_end(call, &over.op));
  assert_true(hv_grpc_call_hello(call, &said.op));
  assert_true(hv_grpc_call_send(call, first ? hv_grpc_message_new(p->grpc, *first, NULL) : NULL, 0, &sent.op));
  assert_true(raw_wait(p, &over, 10000));
  assert_true(raw_wait(p, &said, 1000) && raw_wait(p, &sent, 1000));
  hv_cause cause;
  hv_status status = hv_grpc_call_result(call, &cause, text);
  hv_grpc_call_free(call);
  return status;
}

static void stream_badly(real_node *node, real_node *friend) {
  (void)friend;
  raw_peer p;
  char text[HV_GRPC_TEXT_MAX];
  raw_start(&p, 1, &node->target);
  hv_buf buf;
  hv_buf_init(&buf, &p.mem, 1 << 20);
  const hv_span bad[] = {hv_span_of("\xff\xff\xff\xff", 4), hv_span_of("\x10\0\0\0abc", 7), hv_span_of("ab", 2),
                         hv_span_of("\0\0\0\0", 4), hv_span_of("\3\0\0\0\xff\xff\xff", 7)};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(raw_stream(&p, &bad[i], text), HV_MALFORMED);
  hv_span later = of_version(HV_PROTOCOL_HIGHEST + 1, &buf, 1);
  assert_int_equal(raw_stream(&p, &later, text), HV_VERSION);
  assert_non_null(strstr(text, "version 2"));
  uint64_t before = hv_clock_us();
  assert_true(raw_stream(&p, NULL, text) != HV_OK); /* it never says its first message */
  assert_true(hv_clock_us() - before < 4000000);
  hv_buf_fini(&buf);
  raw_stop(&p);
  assert_int_equal(real_count(node, HV_EVENT_STREAM_OPENED), 0);
}

static void streams_that_cannot_be_read_or_are_too_slow_are_broken_off(void **state) {
  (void)state;
  both_worlds(1, stream_badly);
}

/* Asks a server that gives this answer, whatever it is asked. */
static void ask_one_that_answers(real_node *a, hv_span bytes) {
  raw_peer p;
  raw_start(&p, 0, NULL);
  hv_call asked = {.done = real_call_done, .owner = a, .to = {.addr = real_addr("/ip4/127.0.0.1/tcp/0")}, .timeout_ms = 5000};
  asked.to.addr.port = raw_serve(&p);
  real_do(a, real_ask, &asked);
  raw_answer(&p, bytes);
  assert_true(real_wait_for(a, HV_EVENT_CALL_DONE, 1, 5000));
  raw_stop(&p);
}

static void an_answer_of_another_version_tells_both_numbers(void **state) {
  (void)state;
  real_node a;
  hv_buf buf;
  real_start(&a, &(real_options){.seed = 1});
  hv_buf_init(&buf, &a.mem, 1 << 20);
  ask_one_that_answers(&a, of_version(HV_PROTOCOL_HIGHEST + 1, &buf, 0));
  assert_int_equal(a.last_status, HV_VERSION);
  assert_non_null(strstr(a.last_text, "version 2"));
  assert_non_null(strstr(a.last_text, "this peer version 1: upgrade hivemind_c here"));
  hv_buf_fini(&buf);
  real_stop(&a);
}

static void refusal_shows_no_control_characters_of_a_stranger(void **state) {
  (void)state;
  static const char text[] = "\x1b]0;owned\x07\x1b[2J\nWARNING hivemind_c: your key was leaked\xc2\x9b"
                             "31m\xff";
  hv_msg msg = {.kind = HV_MSG_REFUSAL, .u.refusal = {HV_BUSY, hv_span_of(text, sizeof text - 1)}};
  real_node a;
  hv_buf buf;
  real_start(&a, &(real_options){.seed = 1});
  hv_buf_init(&buf, &a.mem, 1 << 20);
  assert_int_equal(hv_wire_write(&msg, HV_PROTOCOL_LOWEST, NULL, &buf), HV_OK);
  ask_one_that_answers(&a, hv_span_of(buf.data, buf.size));
  assert_int_equal(a.last_status, HV_BUSY);
  assert_string_equal(a.last_text, "?]0;owned??[2J?WARNING hivemind_c: your key was leaked??31m?");
  hv_buf_fini(&buf);
  real_stop(&a);
}

/* ---- too much of what is right ---- */

static void peer_with_too_many_requests_at_a_time_gets_busy(void **state) {
  (void)state;
  enum { MORE = HV_LOOP_PEER_CALLS_MAX + 20 };
  real_node node, greedy, friend;
  real_start(&node, &(real_options){.seed = 1, .hold = 1});
  real_start(&greedy, &(real_options){.seed = 2});
  real_start(&friend, &(real_options){.seed = 3});
  static hv_call calls[MORE];
  for (int i = 0; i < MORE; i++) {
    calls[i] = (hv_call){.done = real_call_done, .owner = &greedy, .to = node.target, .timeout_ms = 20000};
    real_do(&greedy, real_ask, &calls[i]);
  }
  assert_true(real_wait_for(&greedy, HV_EVENT_CALL_DONE, 20, 10000));
  assert_int_equal(greedy.last_status, HV_BUSY);
  pass_ms(200);
  assert_int_equal(real_count(&greedy, HV_EVENT_CALL_DONE), 20);
  assert_int_equal(real_echo(&friend, &node.target, "x", 300), HV_TIMEOUT); /* another one still gets through to core */
  assert_int_equal(real_count(&node, HV_EVENT_REQUEST), HV_LOOP_PEER_CALLS_MAX + 1);
  real_stop(&greedy);
  real_stop(&friend);
  real_stop(&node);
}

/* ---- kill -9 ---- */

/* ---- a peer that does not take its answers ---- */

enum { UNTAKEN = 16, H2_DATA = 0, H2_HEADERS = 1, H2_SETTINGS = 4, H2_END_STREAM = 1, H2_END_HEADERS = 4 };

static void send_frame(int fd, int type, int flags, int stream, hv_span body) {
  uint8_t head[9] = {0, (uint8_t)(body.size >> 8), (uint8_t)body.size, (uint8_t)type, (uint8_t)flags, 0, 0, 0, (uint8_t)stream};
  assert_int_equal(send(fd, head, sizeof head, MSG_NOSIGNAL), sizeof head);
  assert_int_equal(send(fd, body.data, body.size, MSG_NOSIGNAL), body.size);
}

/* A header that HPACK neither packs nor keeps. */
static void add_header(hv_buf *to, const char *name, const char *value) {
  uint8_t sizes[] = {0, (uint8_t)strlen(name), (uint8_t)strlen(value)};
  hv_buf_append(to, sizes, 2);
  hv_buf_append(to, name, sizes[1]);
  hv_buf_append(to, sizes + 2, 1);
  hv_buf_append(to, value, sizes[2]);
}

/* Many calls from one who has no room for any byte of an answer: HTTP/2 as gRPC would not speak it. */
static void ask_and_take_nothing(int fd, hv_mem *mem) {
  char agent[HV_CLAIM_MAX + 16] = "hv-peer/";
  hv_peer_id me = {.key = {77}};
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of("hello", 5)};
  hv_buf headers, wire, body;
  hv_buf_init(&headers, mem, 4096);
  hv_buf_init(&wire, mem, 4096);
  hv_buf_init(&body, mem, 4096);
  hv_trust_claim(&me, agent + strlen(agent));
  const char *const fields[][2] = {{":method", "POST"},    {":scheme", "http"}, {":path", "/hivemind_c.Hive/Call"},
                                   {":authority", "here"}, {"te", "trailers"},  {"content-type", "application/grpc"},
                                   {"user-agent", agent}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    add_header(&headers, fields[i][0], fields[i][1]);
  assert_int_equal(hv_wire_write(&msg, HV_PROTOCOL_LOWEST, NULL, &wire), HV_OK);
  hv_buf_append(&body, (uint8_t[5]){0, 0, 0, 0, (uint8_t)wire.size}, 5);
  hv_buf_append(&body, wire.data, wire.size);
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  assert_int_equal(send(fd, preface, sizeof preface - 1, MSG_NOSIGNAL), sizeof preface - 1);
  send_frame(fd, H2_SETTINGS, 0, 0, hv_span_of("\0\4\0\0\0\0", 6)); /* the window of each stream: 0 */
  for (int i = 0; i < UNTAKEN; i++) {
    send_frame(fd, H2_HEADERS, H2_END_HEADERS, 1 + 2 * i, hv_span_of(headers.data, headers.size));
    send_frame(fd, H2_DATA, H2_END_STREAM, 1 + 2 * i, hv_span_of(body.data, body.size));
  }
  hv_buf_fini(&headers);
  hv_buf_fini(&wire);
  hv_buf_fini(&body);
}

static void count_calls(real_node *node, void *arg) {
  *(size_t *)arg = node->loop->callers.held[HV_CALLER_CALLS];
}

static void an_answer_that_is_not_taken_holds_its_place_for_a_while_only(void **state) {
  (void)state;
  real_node node;
  hv_mem mem;
  size_t held = UNTAKEN;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  real_start(&node, &(real_options){.seed = 1, .insecure = 1, .answer_ms = 700});
  int fd = dial(&node.target);
  ask_and_take_nothing(fd, &mem);
  assert_true(real_wait_for(&node, HV_EVENT_REQUEST, UNTAKEN, 5000));
  for (int tries = 0; held && tries < 400; tries++) { /* 8 s: after 15 the whole connection goes, since nobody answers its pings */
    real_do(&node, count_calls, &held);
    pass_ms(20);
  }
  assert_int_equal(held, 0);
  close(fd);
  real_stop(&node);
}

static pid_t victim;
static int victim_says;

/* A process of its own, made before anything here touches gRPC. */
static void make_victim(void) {
  int pipes[2];
  if (pipe(pipes) != 0)
    exit(1);
  victim = fork();
  if (victim == 0) {
    uint16_t port;
    real_node node;
    close(pipes[0]);
    real_start(&node, &(real_options){.seed = 50});
    port = node.target.addr.port;
    if (write(pipes[1], &port, sizeof port) != sizeof port)
      _exit(1);
    for (;;)
      pause();
  }
  close(pipes[1]);
  victim_says = pipes[0];
}

static void a_killed_process_is_missed_within_a_second(void **state) {
  (void)state;
  real_node a, model;
  uint16_t port;
  assert_int_equal(read(victim_says, &port, sizeof port), sizeof port);
  real_start(&model, &(real_options){.seed = 50, .deaf = 1}); /* for its id */
  real_start(&a, &(real_options){.seed = 1});
  hv_target to = {model.target.id, real_addr("/ip4/127.0.0.1/tcp/1")};
  to.addr.port = port;
  assert_int_equal(real_echo(&a, &to, "x", 5000), HV_OK);
  kill(victim, SIGKILL);
  uint64_t before = hv_clock_us();
  assert_true(real_wait_for(&a, HV_EVENT_PEER_DOWN, 1, 2000));
  assert_true(hv_clock_us() - before < 1000000);
  assert_true(hv_peer_equal(&a.down, &to.id));
  waitpid(victim, NULL, 0); /* its connections may have closed before its port */
  assert_int_equal(real_echo(&a, &to, "x", 2000), HV_REFUSED);
  close(victim_says);
  real_stop(&a); /* and nothing is left charged */
  real_stop(&model);
}

int main(int argc, char **argv) {
  if (argc > 1)
    cmocka_set_test_filter(argv[1]);
  make_victim();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_killed_process_is_missed_within_a_second),
      cmocka_unit_test(noise_of_64_MiB_is_dropped),
      cmocka_unit_test(other_protocols_are_dropped),
      cmocka_unit_test(a_peer_without_tls_gets_no_answer_from_one_with),
      cmocka_unit_test(half_open_and_slow_connections_are_dropped),
      cmocka_unit_test(callers_with_wrong_certificates_are_refused),
      cmocka_unit_test(servers_with_wrong_certificates_are_denied_with_the_reason),
      cmocka_unit_test(answer_counts_for_the_certificate_of_its_call),
      cmocka_unit_test(denial_is_forgotten_when_nobody_listens_any_more),
      cmocka_unit_test(requests_that_cannot_be_read_are_refused_with_the_reason),
      cmocka_unit_test(streams_that_cannot_be_read_or_are_too_slow_are_broken_off),
      cmocka_unit_test(an_answer_of_another_version_tells_both_numbers),
      cmocka_unit_test(refusal_shows_no_control_characters_of_a_stranger),
      cmocka_unit_test(peer_with_too_many_requests_at_a_time_gets_busy),
      cmocka_unit_test(an_answer_that_is_not_taken_holds_its_place_for_a_while_only),
  };
  int failed = cmocka_run_group_tests_name("hostile peers", tests, NULL, NULL);
  kill(victim, SIGKILL);
  return failed;
}
