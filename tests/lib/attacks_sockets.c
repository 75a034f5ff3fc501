#include "lib/attacks.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Attacks below HTTP/2: connections, bytes and handshakes. */

enum { HELD = 100 }; /* connections of one attacker */

/* Sends `size` bytes on a socket, in one go. */
static int give(attacker *a, int fd, const void *bytes, size_t size) {
  return attacks_spend(a, size) && send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

static void close_all(const int *fds, int n) {
  for (int i = 0; i < n; i++)
    if (fds[i] >= 0)
      close(fds[i]);
}

/* Opens its connections, says `first` on each, and then one more byte on each of them from time to time. */
static void hold(attacker *a, hv_span first, int one_by_one) {
  int fds[HELD];
  for (int i = 0; i < HELD; i++) {
    fds[i] = attacks_dial(a);
    if (fds[i] >= 0 && first.size)
      give(a, fds[i], first.data, one_by_one ? 1 : first.size);
  }
  for (size_t at = 1; attacks_pause(a, 100) && one_by_one && at < first.size; at++)
    for (int i = 0; i < HELD; i++)
      if (fds[i] >= 0)
        give(a, fds[i], (const uint8_t *)first.data + at, 1);
  attacks_pause(a, 1000);
  close_all(fds, HELD);
}

static void silent_connections(attacker *a) {
  hold(a, hv_span_of(NULL, 0), 0);
}

/* A whole ClientHello, as OpenSSL makes it. */
static size_t client_hello(attacker *a, uint8_t *out, size_t room) {
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_use_certificate(context, a->key.certificate);
  SSL *ssl = SSL_new(context);
  BIO *in = BIO_new(BIO_s_mem()), *from = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, in, from);
  SSL_connect(ssl);
  int size = BIO_read(from, out, (int)room);
  SSL_free(ssl);
  SSL_CTX_free(context);
  return size > 0 ? (size_t)size : 0;
}

static void half_handshakes(attacker *a) {
  uint8_t hello[4096];
  hold(a, hv_span_of(hello, client_hello(a, hello, sizeof hello)), 0);
}

static void slow_hellos(attacker *a) {
  uint8_t hello[4096];
  hold(a, hv_span_of(hello, client_hello(a, hello, sizeof hello)), 1);
}

/* The length of its ClientHello promises more than ever comes. */
static void long_hello(attacker *a) {
  static const uint8_t hello[] = {22, 3, 1, 0xff, 0xff, 1, 0, 0xff, 0xfb, 3, 3};
  hold(a, hv_span_of(hello, sizeof hello), 0);
}

static void noise(attacker *a) {
  uint8_t bytes[2048];
  int fd;
  do {
    for (size_t i = 0; i < sizeof bytes; i++)
      bytes[i] = (uint8_t)attacks_random(a, 256);
    if (attacks_random(a, 2))
      bytes[0] = 22; /* as TLS begins */
    fd = attacks_dial(a);
    close_all(&fd, 1);
  } while (fd >= 0 && attacks_spend(a, sizeof bytes));
}

/* The handshake is broken off, or its bytes are changed on the way. */
static void broken_handshakes(attacker *a) {
  uint8_t hello[4096];
  size_t size = client_hello(a, hello, sizeof hello);
  for (int fd; size && (fd = attacks_dial(a)) >= 0; close(fd)) {
    uint8_t changed[4096];
    memcpy(changed, hello, size);
    for (int i = 0; i < 4; i++)
      changed[9 + attacks_random(a, size - 9)] = (uint8_t)attacks_random(a, 256);
    if (!give(a, fd, changed, size) || !attacks_pause(a, 5))
      break;
  }
}

/* Handshakes cost the node more than the attacker's half of them costs here. */
static void handshakes(attacker *a) {
  h2_client client;
  do {
    attacks_open(a, &client);
    h2_close(&client);
  } while (attacks_spend(a, 1));
}

static void tls_without_http2(attacker *a) {
  static const char get[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
  h2_client clients[8];
  for (int i = 0; i < 8; i++) {
    clients[i].fd = -1;
    if (h2_greet(&clients[i], attacks_dial(a), a->insecure ? NULL : &a->key) && i % 2)
      h2_send(&clients[i], get, sizeof get - 1);
  }
  attacks_pause(a, 1000);
  for (int i = 0; i < 8; i++)
    h2_close(&clients[i]);
}

static void idle_http2(attacker *a) {
  h2_client clients[32];
  for (int i = 0; i < 32; i++)
    attacks_open(a, &clients[i]);
  attacks_pause(a, 2000);
  for (int i = 0; i < 32; i++)
    h2_close(&clients[i]);
}

/* A new key for each connection, with a call on it: each counts as a peer that has called. */
static void new_keys(attacker *a) {
  h2_key mine = a->key;
  int goes_on;
  do {
    uint8_t seed[32];
    h2_client client;
    for (size_t i = 0; i < sizeof seed; i++)
      seed[i] = (uint8_t)attacks_random(a, 256);
    h2_key_init(&a->key, seed);
    goes_on = attacks_open(a, &client) && h2_ask(&client, hv_span_of("\10\1\42\4\12\2hi", 8)); /* an ECHO */
    h2_close(&client);
    h2_key_fini(&a->key);
  } while (goes_on && attacks_spend(a, 500));
  a->key = mine;
}

const attack attacks_of_sockets[] = {
    {"silent-connections", silent_connections},
    {"half-handshakes", half_handshakes},
    {"slow-hellos", slow_hellos},
    {"long-hello", long_hello},
    {"noise", noise},
    {"broken-handshakes", broken_handshakes},
    {"handshakes", handshakes},
    {"tls-without-http2", tls_without_http2},
    {"idle-http2", idle_http2},
    {"new-keys", new_keys},
    {NULL, NULL},
};
