/* An attacker's client: HTTP/2 over TLS (or plain), without gRPC, with an identity of its own and from an address of its choice.
 *
 * It sends whole frames, never a window update, and takes no byte of an answer: its windows are 0. */
#ifndef HV_TESTS_H2_H
#define HV_TESTS_H2_H

#include "core/env.h"

#include <openssl/ssl.h>

typedef struct h2_client {
  int fd;
  SSL_CTX *context; /* NULL: without TLS */
  SSL *ssl;
  hv_peer_id me;
  uint32_t stream; /* the number of the last one */
  size_t sent;     /* bytes */
} h2_client;

/* Connects from 127.0.NETWORK.1 with the key of this seed, and sends the preface. False: the node closed the connection. */
int h2_open(h2_client *client, const hv_target *to, uint8_t seed, unsigned network, int insecure);
void h2_close(h2_client *client);

/* Opens a stream of a method ("Call", "Bulk") with HEADERS alone. False: the connection has ended. */
int h2_begin(h2_client *client, const char *method);
/* Sends a part of a message on the last stream: `promised` is the size that gRPC's frame claims. `ends` half-closes. */
int h2_say(h2_client *client, hv_span bytes, size_t promised, int ends);
/* A whole unary call. */
int h2_ask(h2_client *client, hv_span message);

#endif
