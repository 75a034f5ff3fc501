/* The recorders and the bench that the suite's tests share; its files only. See env_contract.h. */
#ifndef HV_TESTS_CONTRACT_BENCH_H
#define HV_TESTS_CONTRACT_BENCH_H

#include "contract/env_contract.h"
#include "lib/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 4, STREAMS_MAX = 8, SOON_MS = 10000, PIECE = 64 << 10, HELD_MAX = 4096 };

typedef struct bench bench;

typedef struct recorder recorder;

typedef struct a_stream {
  recorder *rec;
  const hv_stream_events *on; /* NULL: stream_on */
  hv_stream *stream;          /* NULL before it is open, and once it is closed */
  uint32_t version;           /* of the protocol; of incoming ones */
  int data, wrong, ready, closed;
  size_t bytes;
  uint64_t sent;    /* messages taken by the world */
  uint64_t to_send; /* `pour` goes on up to that many */
  size_t piece;     /* of so many bytes */
  int busy;         /* stream_send said so, and ready has not come yet */
  int end_at;       /* ends its side when so many messages have come; 0: never */
  int echo;         /* sends back what comes, up to the window */
  int hold;         /* keeps every payload */
  hv_payload *held[HELD_MAX];
  size_t n_held;
  hv_status status;
  char text[HV_MSG_TEXT_MAX + 1];
  hv_peer_id peer_at_first;  /* stream->peer while the first message was handled */
  atomic_int made, released; /* payloads to send */
} a_stream;

typedef struct a_call {
  hv_call call;
  recorder *rec;
  int done;
  hv_status started, status; /* of the start, of the end */
  hv_peer_id peer;
  int right; /* an answer came, and it is an echo of `bytes` */
  hv_span bytes;
  char text[HV_MSG_TEXT_MAX + 1];
  uint64_t started_us, done_us;
} a_call;

typedef enum answer_kind { ANSWER_ECHO, ANSWER_REFUSE, ANSWER_LATE, ANSWER_NEVER, ANSWER_TOO_LARGE } answer_kind;

struct recorder {
  bench *b;
  size_t index;
  hv_env *env;
  int depth, in_env; /* within a step; within a function of hv_env */
  int violations;    /* what must never happen */
  const char *violation;
  uint64_t now_us;
  int events, started, stops, freed, downs;
  size_t n_addrs;
  hv_addr addr;
  hv_peer_id down;
  answer_kind answer;
  int requests;
  hv_peer_id asker;
  uint32_t version; /* in which the last one asked */
  hv_request *kept[64];
  size_t n_kept;
  hv_timer later;
  int refuse_streams, hold_streams, echo_streams, end_at;
  a_stream *in[STREAMS_MAX];
  size_t n_in;
  int stop_quietly; /* does not say when it has stopped: the world's grace ends it */
};

struct bench {
  const contract_fixture *f;
  void *world;
  pthread_mutex_t lock;
  recorder nodes[NODES_MAX];
  size_t n;
};

/* Calls of hv_env, with a mark that one is under way: a completion that comes meanwhile came from inside. */
#define IN_ENV(rec, expression) ((rec)->in_env++, (expression), (rec)->in_env--)

typedef struct a_timer {
  hv_timer timer;
  recorder *rec;
  uint64_t set_us, delay_us, fired_us;
  int fired, again; /* again: re-arms itself so often */
  int *order, place;
} a_timer;

typedef struct opening {
  a_stream *s;
  hv_target to;
  hv_status status;
} opening;

typedef struct sending {
  a_stream *s;
  size_t size;
  hv_status status;
} sending;

typedef struct op {
  hv_command command; /* first */
  bench *b;
  void (*fn)(recorder *rec, void *arg);
  void *arg;
  int ran, without;
} op;

/* How a recorder behaves from now on. */
#define SET(b, node, what, value)                                                                                                  \
  (pthread_mutex_lock(&(b)->lock), (b)->nodes[node].what = (value), pthread_mutex_unlock(&(b)->lock))

void violated(recorder *rec, const char *what);
void answer_kept(hv_timer *timer, const hv_event *event);
/* clients: bit i makes node i one that cannot be dialled */
bench *open_bench(void **state, size_t n, unsigned clients);
/* versions: what each node speaks; NULL: as the fixture says */
bench *open_bench_of(void **state, size_t n, unsigned clients, const hv_versions *versions);
void close_bench(bench *b);
void run_op(hv_command *command, void *core);
int op_over(void *arg);
/* Runs fn in a step of a node and waits for it; 0: the node had ended. */
int within(bench *b, size_t node, void (*fn)(recorder *rec, void *arg), void *arg);
/* Waits until an int that steps change is at least so much; look reads it once. */
int reaches(bench *b, const int *value, int least, uint32_t timeout_ms);
void let_pass(bench *b, uint32_t ms);
int look(bench *b, const int *value);
void start_call(recorder *rec, void *arg);
void cancel_call(recorder *rec, void *arg);
a_call a_call_to(hv_target to, uint32_t timeout_ms);
/* Calls and waits until it is done. */
void ask(bench *b, size_t from, a_call *c);
hv_target target(bench *b, size_t node);
void spend_time(recorder *rec, void *arg);
void fired(hv_timer *timer, const hv_event *event);
void set_timer(recorder *rec, void *arg);
void clear_timer(recorder *rec, void *arg);
int is_right(uint64_t number, const hv_payload *payload);
hv_status send_one(a_stream *s, uint64_t number, size_t size, int with_payload);
void end_side(recorder *rec, void *arg);
void cancel_side(recorder *rec, void *arg);
void open_now(recorder *rec, void *arg);
void open_to(bench *b, size_t from, hv_target to, a_stream *s);
/* The k-th stream that was opened to a node. */
a_stream *taken(bench *b, size_t node, size_t k);
/* The world has let go of every payload it was given, once. */
void all_released(bench *b, a_stream *s);
a_stream *new_stream(void);
void send_sized(recorder *rec, void *arg);
extern const uint8_t too_much[HV_MSG_BLOB_MAX + 1];
extern const hv_stream_events stream_on, round_on, load_on;

/* One test, and which fixtures it is for. */
typedef struct contract_test {
  const char *name;
  void (*run)(void **state);
  enum { ALWAYS, WITH_IDENTITY, WITH_KILL, WITH_CUT } when;
} contract_test;
#define TEST(name)                                                                                                                 \
  { #name, name, ALWAYS }

/* Tables end with a row without a name. */
extern const contract_test contract_calls[], contract_streams[], contract_ends[], contract_versions[];

#endif
