/* An attacker's client: HTTP/2 over TLS (or plain), without gRPC, with an identity of its own and from an address of its choice.
 *
 * It sends whole frames, never a window update, and takes no byte of an answer: its windows are 0. Nothing here asserts that the
 * node does what the attacker wants: false means that the connection has ended, or that the node took nothing for a while.
 * Thread: one for each client. */
#ifndef HV_TESTS_H2_H
#define HV_TESTS_H2_H

#include "core/env.h"
#include "net/invitation.h"

#include <openssl/ssl.h>

enum {
  H2_DATA = 0,
  H2_HEADERS = 1,
  H2_PRIORITY = 2,
  H2_RESET = 3,
  H2_SETTINGS = 4,
  H2_PING = 6,
  H2_WINDOW = 8,
  H2_CONTINUATION = 9
};
enum { H2_END_STREAM = 1, H2_END_HEADERS = 4, H2_FRAME_MAX = 16384 };

typedef struct h2_client {
  int fd;           /* -1: closed */
  SSL_CTX *context; /* NULL: without TLS */
  SSL *ssl;
  hv_peer_id me;
  uint32_t stream; /* the number of the last one */
  size_t sent;     /* bytes of HTTP/2 */
} h2_client;

/* The key of an attacker: the papers that it shows in each handshake. */
typedef struct h2_key {
  hv_mem mem;
  hv_identity *identity;
  X509 *certificate;
  EVP_PKEY *secret;
} h2_key;

void h2_key_init(h2_key *key, const uint8_t seed[32]);
/* From now on new keys prove with these credentials that they are members of a closed swarm. NULL: of none. */
void h2_join(const hv_credentials *credentials);
void h2_key_fini(h2_key *key);

/* Connects to an address of IPv4, from `from` (in host order; 0: any); each later call waits so long at most. -1: it could not. */
int h2_dial(uint32_t from, const hv_addr *to, unsigned patience_ms);
/* Begins to speak on a socket, which belongs to the client from now on: a handshake, if `key` is not NULL. */
int h2_greet(h2_client *client, int fd, h2_key *key);
/* Sends the preface of HTTP/2, and the size of the window for answers on each stream. */
int h2_preface(h2_client *client, uint32_t window);
void h2_close(h2_client *client);

int h2_send(h2_client *client, const void *bytes, size_t size);
int h2_frame(h2_client *client, int type, int flags, uint32_t stream, hv_span body);
/* A header that HPACK neither packs nor keeps. */
void h2_header(hv_buf *to, const char *name, const char *value);
/* The headers of a call of a method of a peer. */
void h2_headers(const h2_client *client, const char *method, hv_buf *to);
/* The same seven headers, which HPACK keeps. */
void h2_headers_kept(const h2_client *client, const char *method, hv_buf *to);

/* Connects from 127.0.NETWORK.1 with the key of this seed, and sends the preface. False: the node closed the connection. */
int h2_open(h2_client *client, const hv_target *to, uint8_t seed, unsigned network, int insecure);

/* Opens a stream of a method ("Call", "Bulk") with HEADERS alone. */
int h2_begin(h2_client *client, const char *method);
/* Sends a part of a message on the last stream: `promised` is the size that gRPC's frame claims. `ends` half-closes. */
int h2_say(h2_client *client, hv_span bytes, size_t promised, int ends);
/* A whole unary call. */
int h2_ask(h2_client *client, hv_span message);

#endif
