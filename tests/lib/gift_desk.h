/* A hub's side of gifts alone, on an env that only writes down what it is asked: streams, timers and jobs happen when the test says
 * so. Shared by tests/unit/core/state/test_taker.c and tests/fuzz/fuzz_gift.c. */
#ifndef HV_TESTS_GIFT_DESK_H
#define HV_TESTS_GIFT_DESK_H

#include "lib/fake_env.h"

#include "core/state/taker.h"

enum { GIFT_STREAMS = 256, GIFT_TIMERS = 512 };

/* A stream that a peer opened to the hub. */
typedef struct gift_stream {
  hv_stream stream;
  int open, is_over; /* is_over: ended or cancelled by the hub, and not closed yet */
  int accepted, whole;
  hv_status refused;
} gift_stream;

typedef struct gift_desk {
  fake_env fake; /* first */
  hv_takers takers;
  gift_stream streams[GIFT_STREAMS];
  struct {
    hv_timer *timer;
    uint64_t due_us;
  } timers[GIFT_TIMERS];
  hv_job *jobs; /* that wait for gift_desk_work */
  hv_gift_take take;
  int taken;        /* take.load.done was called */
  hv_status status; /* then */
  size_t n_taken;   /* states that came whole */
  uint8_t *image;   /* the program's memory */
  size_t image_size, image_peak;
  uint64_t epoch;
} gift_desk;

void gift_desk_init(gift_desk *desk, uint64_t size_max);
/* All must be given back. */
void gift_desk_fini(gift_desk *desk);

/* Waits for a state of prefix "run", again after the last one. */
void gift_desk_take(gift_desk *desk);
/* Follows one trainer, which is asked; or none (0). */
void gift_desk_ask(gift_desk *desk, uint64_t peer, uint64_t least);
/* The ticket of the request that stands. */
const uint8_t *gift_desk_ticket(const gift_desk *desk);

/* A peer opens a stream. NULL: no place. The world refused it if `open` is 0 then. */
gift_stream *gift_desk_open(gift_desk *desk, uint64_t peer, uint64_t network, const hv_msg_gift *gift);
void gift_desk_piece(gift_desk *desk, gift_stream *stream, int manifest, uint64_t offset, hv_span bytes);
void gift_desk_close(gift_desk *desk, gift_stream *stream);
/* Runs the jobs that wait. */
void gift_desk_work(gift_desk *desk);
/* Time goes by, and timers fire. */
void gift_desk_pass(gift_desk *desk, uint64_t us);

#endif
