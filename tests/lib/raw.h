/* A peer of a test's own that speaks gRPC, but as the test wants: net/transport/grpc.h's thin door without the loop. */
#ifndef HV_TESTS_RAW_H
#define HV_TESTS_RAW_H

#include "net/transport/door.h"
#include "net/transport/grpc.h"

typedef struct raw_op {
  hv_grpc_op op; /* first */
  int done, ok;
} raw_op;

typedef struct raw_peer {
  hv_mem mem;
  hv_identity *identity;
  hv_grpc *grpc;
  int insecure;
  hv_grpc_channel *channel;
  hv_door *door; /* NULL: it serves nobody */
} raw_peer;

raw_op raw_op_new(void);
/* Polls until the op is done, or so many milliseconds; 1: it is. */
int raw_wait(raw_peer *p, raw_op *op, unsigned ms);
/* With a channel to `to`, if that is not NULL. */
void raw_start(raw_peer *p, int insecure, const hv_target *to);
/* Begins to listen on loopback, and returns the port. */
uint16_t raw_serve(raw_peer *p);
/* Waits for the next call, and answers it with these bytes. */
void raw_answer(raw_peer *p, hv_span bytes);
void raw_stop(raw_peer *p);

#endif
