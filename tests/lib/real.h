/* A real node for tests: identity, account, log and loop around a small core that echoes calls, swallows streams, and counts.
 *
 * The test's thread asks things of it by real_do: a function that runs as a step on the hive thread while the test waits.
 * Everything in real_node below `lock` is guarded by it; real_wait waits until a condition over it holds. */
#ifndef HV_TESTS_REAL_H
#define HV_TESTS_REAL_H

#include "lib/check.h"

#include "net/transport/loop.h"

#include <pthread.h>

typedef struct real_node {
  hv_mem mem;
  hv_log *log;
  hv_identity *identity;
  hv_loop *loop;
  hv_env *env;
  hv_target target; /* its id and first address */
  hv_stream_events swallow;
  int hold, refuse;
  void (*asked)(struct real_node *node, const hv_event *event);
  hv_buf answer; /* echoed instead of what was asked, unless it is empty */

  pthread_mutex_t lock;
  pthread_cond_t changed;
  int events[HV_EVENT_KINDS]; /* how many of each kind */
  size_t bytes;               /* that came over streams */
  uint64_t stream_sum;        /* of those bytes */
  hv_status last_status;      /* of the last CALL_DONE or STREAM_CLOSED */
  hv_cause last_cause;        /* of that event */
  char last_text[1280];
  hv_peer_id last_peer, down;
  hv_payload *kept[64]; /* payloads held on to, when keep is set */
  int keep, n_kept;
} real_node;

typedef struct real_options {
  uint8_t seed; /* of its key */
  int insecure;
  const hv_credentials *credentials; /* of a closed swarm; NULL: it is open */
  hv_versions versions;              /* zeros: the program's own */
  const hv_addr *listen;             /* NULL: 127.0.0.1, any port */
  size_t n_listen;
  uint32_t greeting_ms, answer_ms;
  unsigned lanes;                                         /* connections of each heavy stream; 0: as the line asks for */
  int deaf;                                               /* listens nowhere */
  int hold;                                               /* keeps requests unanswered */
  size_t answer;                                          /* answers each request with an echo of so many bytes; 0: with its own */
  int refuse;                                             /* takes no streams */
  int keep;                                               /* holds on to payloads */
  void (*data)(hv_stream *stream, const hv_event *event); /* instead of counting them */
  void (*asked)(real_node *node, const hv_event *event);  /* answers requests, or not */
} real_options;

/* Starts it; asserts that it could. */
void real_start(real_node *node, const real_options *options);
/* Stops and frees; asserts that nothing is left charged. Returns how many milliseconds the stop took. */
unsigned real_stop(real_node *node);

/* The processor time of this process so far. */
uint64_t real_spent_ms(void);

/* Runs f(node, arg) as a step of node and waits for it. */
void real_do(real_node *node, void (*f)(real_node *node, void *arg), void *arg);
/* Waits up to ms until test(node) holds; 1: it does. The lock is held while it is asked. */
int real_wait(real_node *node, int (*test)(real_node *node), unsigned ms);
/* How many events of that kind there have been. */
int real_count(real_node *node, hv_event_kind kind);
/* Waits up to ms until as many events of that kind have been. */
int real_wait_for(real_node *node, hv_event_kind kind, int count, unsigned ms);

/* The default for a message of a stream: its bytes are counted. */
void real_data(hv_stream *stream, const hv_event *event);

/* An echo call to a target; waits for its end and returns its status (the text stands in last_text). */
hv_status real_echo(real_node *node, const hv_target *to, const char *text, uint32_t timeout_ms);

/* For real_do: starts the hv_call it is given, with an empty echo. */
void real_ask(real_node *node, void *call);
/* A call for whoever wants one: done counts in events, last_status, last_text. */
void real_call_done(hv_call *call, const hv_event *event);

hv_addr real_addr(const char *text);
/* 1 when this machine has IPv6: in many a container there is no ::1. */
int real_has_ip6(void);

#endif
