/* The simulated world inside: one heap of what will happen, ordered by time, then by when it was put there.
 *
 * Room: net; shared by the sim*.c files only. net/sim/sim.h is the contract. An entry that must be found again (a timer, the end of
 * a call, the alarms of a stream) knows its slot. Entries are small, and name their things by kind. Thread: one.
 */
#ifndef HV_NET_SIM_INNER_H
#define HV_NET_SIM_INNER_H

#include "net/identity.h"
#include "net/sim/sim.h"
#include "net/wire.h"

#define SIM_NEVER (UINT64_C(1) << 62) /* entries of paused nodes wait beyond it */

typedef struct sim_node sim_node;
typedef struct sim_end sim_end;
typedef struct sim_call sim_call;
typedef struct sim_pair sim_pair;

/* ---- the heap (sim_heap.c) ---- */
typedef enum sim_kind {
  SIM_TIMER,    /* hv_timer: fires */
  SIM_CALL_END, /* sim_call: ends without an answer */
  SIM_ARRIVE,   /* sim_end: the first of what it has sent gets across */
  SIM_CREDIT,   /* sim_end: the other side has let go of bytes */
  SIM_READY,    /* sim_end: there is room again */
  SIM_CLOSE,    /* sim_end: the last event */
  SIM_PULSE,    /* sim_end: is the other side still there? */
  SIM_NODE_END, /* sim_node: its grace is over */
  SIM_LEAVE,    /* sim_end: its pace lets the next one go */
  SIM_MOVABLE,  /* those above know their slot */
  SIM_PACKET = SIM_MOVABLE,
  SIM_JOB,
  SIM_COMMAND,
  SIM_START,
  SIM_STOP,
  SIM_DOWN, /* sim_node: the peer whose connection broke */
  SIM_SCRIPT
} sim_kind;

/* A place in the heap that its owner may move or clear. */
typedef struct sim_alarm {
  size_t slot; /* from 1; 0: not set */
} sim_alarm;

typedef struct sim_entry {
  uint64_t due, order;
  void *item;    /* for movable ones other than timers: the alarm, which is found in its owner by kind */
  uint32_t node; /* whose event it is */
  uint32_t kind;
} sim_entry;

typedef struct sim_heap {
  hv_mem *mem;
  sim_entry *entries;
  size_t size, room, held;
  uint64_t order;
} sim_heap;

/* Reserves room for n more entries; other pushes cannot use it. */
int sim_heap_hold(sim_heap *heap, size_t n);
void sim_heap_unhold(sim_heap *heap, size_t n);
int sim_heap_push(sim_heap *heap, uint64_t due, uint32_t node, sim_kind kind, void *item); /* 0: no memory */
void sim_heap_move(sim_heap *heap, size_t slot, uint64_t due);
void sim_heap_remove(sim_heap *heap, size_t slot);
sim_entry sim_heap_pop(sim_heap *heap);
void sim_heap_defer(sim_heap *heap); /* puts the first one aside, beyond SIM_NEVER, without losing its turn among those there */
/* Calls see(entry) on each; those it answers 0 to are taken out (their slot becomes 0). It may change due. */
void sim_heap_sift(sim_heap *heap, int (*see)(void *arg, sim_entry *entry), void *arg);

/* ---- pools: blocks of one size that stay of one type until the sim ends ---- */
typedef struct sim_pool {
  hv_mem *mem;
  size_t size;
  void *free, *chunks;
} sim_pool;
void *sim_pool_take(sim_pool *pool); /* not cleared; NULL: no memory */
void sim_pool_give(sim_pool *pool, void *block);
void sim_pool_fini(sim_pool *pool);

/* ---- nodes (sim_node.c) ---- */
typedef enum sim_life { SIM_DEAD, SIM_ALIVE, SIM_STOPPING, SIM_ENDING } sim_life;

enum { SIM_KILLED = 1, SIM_UNPLUGGED };

struct sim_node {
  hv_env env; /* first */
  hv_sim *sim;
  hv_sim_node_config seat;
  hv_core core;
  hv_mem *mem;
  hv_identity *identity; /* with real crypto only */
  hv_peer_id id;
  uint32_t index;
  uint32_t lives; /* how often it has been started */
  sim_life life;
  uint8_t paused, unplugged;
  uint8_t doomed; /* it dies after this step: SIM_KILLED or SIM_UNPLUGGED */
  unsigned group;
  uint64_t random, secret;
  uint64_t up_free, down_free; /* when its way out and in is free again */
  sim_alarm end;
  sim_call *calls; /* it makes */
  sim_call *asked; /* others make to it */
  struct sim_request *requests;
  sim_end *ends;
  sim_pair *diallers; /* connections others have made to it */
  hv_job *jobs;
  hv_command *commands, **last_command;
  hv_sim_link *out_link, *in_link;
};

void sim_node_starts(sim_node *node);                       /* SIM_START */
void sim_node_stops(sim_node *node);                        /* SIM_STOP */
void sim_node_ends(sim_node *node);                         /* SIM_NODE_END */
void sim_node_fires(sim_node *node, hv_timer *timer);       /* SIM_TIMER */
void sim_node_works(sim_node *node, hv_job *job);           /* SIM_JOB */
void sim_node_misses(sim_node *node, const sim_node *peer); /* SIM_DOWN */
void sim_node_crash(sim_node *node, int unplugged);
void sim_node_free(sim_node *node);
hv_command *sim_next_command(sim_node *node);

/* ---- time, numbers, the way into cores (sim.c) ---- */
/* One event on its way into a core. 0: the node has died of it. */
int sim_deliver(sim_node *node, hv_event *event, uint64_t content);
uint64_t sim_local_us(const sim_node *node, uint64_t time_us);
/* The first moment of the world at which a delay of the node's clock has passed. */
uint64_t sim_after_us(const sim_node *node, uint64_t delay_us);
uint64_t sim_random(uint64_t *state);
void sim_fill_random(uint64_t *state, uint8_t *out, size_t size);
uint64_t sim_hash_mix(uint64_t a, uint64_t b);
hv_peer_id sim_identity_of(hv_sim *sim, uint32_t node);
void sim_tell(hv_sim *sim, const sim_node *node, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- links (sim_link.c) ---- */
struct sim_pair {
  uint32_t from, to;
  hv_sim_link *link;             /* NULL: not special */
  uint64_t free_at, ready_at;    /* the way is free; the connection stands */
  uint64_t cuts;                 /* == sim->cuts: cut */
  uint32_t from_lives, to_lives; /* the lives the connection was made in */
  uint8_t up;
  sim_pair *next, **where; /* among the other's diallers */
};

sim_pair *sim_pair_of(hv_sim *sim, uint32_t from, uint32_t to); /* NULL: no memory */
const hv_sim_link *sim_link_of(hv_sim *sim, uint32_t from, uint32_t to);
int sim_blocked(hv_sim *sim, uint32_t from, uint32_t to);
uint64_t sim_delay_us(hv_sim *sim, uint32_t from, uint32_t to);
/* When the connection stands, so that something may leave: now, or after a handshake. */
uint64_t sim_dial(hv_sim *sim, sim_pair *pair);
/* When size bytes that leave at a time get there, with the queues on the way. */
uint64_t sim_transit(hv_sim *sim, sim_pair *pair, uint64_t leave, size_t size);
/* The receiver's own way in: 0 when it is free for these bytes (and then taken), or when to come again. */
uint64_t sim_way_in(sim_node *node, size_t size, uint8_t *queued);
void sim_connected(hv_sim *sim, sim_pair *pair);
void sim_disconnect(sim_pair *pair);
void sim_connections_lost(sim_node *gone); /* whoever dialled it is told, if the news can reach them */
int sim_chance(hv_sim *sim, double p);
void sim_links_fini(hv_sim *sim);
hv_addr sim_addr_of(uint32_t node, uint16_t port); /* port 0: where it listens */
sim_node *sim_node_at(hv_sim *sim, const hv_addr *addr, hv_status *why);

/* ---- unary calls (sim_call.c) ---- */
struct sim_call {
  hv_call *call;
  sim_node *from, *to; /* to: NULL when nobody can be there */
  uint64_t serial;     /* 0: not in use */
  sim_alarm end;
  uint64_t end_due;
  hv_status status; /* what it will end with */
  const char *text;
  sim_call *next, **where; /* of the caller's */
  sim_call *next_asked, **where_asked;
};
typedef struct sim_request {
  hv_request pub; /* first */
  struct sim_request *next, **where;
  sim_node *node;
  uint32_t from;
  sim_call *call;
  uint64_t serial;
} sim_request;
typedef struct sim_blob {
  unsigned refs;
  size_t size;
  uint64_t hash;
  uint8_t bytes[];
} sim_blob;
typedef struct sim_packet {
  sim_blob *blob;
  sim_call *call;
  uint64_t serial;
  uint32_t from;
  uint8_t is_answer, queued;
} sim_packet;

hv_status sim_call_start(hv_env *env, hv_call *call, const hv_msg *request);
void sim_call_stop(hv_env *env, hv_call *call);
void sim_reply(hv_env *env, hv_request *request, const hv_msg *answer);
void sim_call_ends(sim_call *call);                          /* SIM_CALL_END */
void sim_packet_arrives(sim_node *node, sim_packet *packet); /* SIM_PACKET */
void sim_packet_drop(hv_sim *sim, sim_packet *packet);
/* Ends it so at `due`, unless it ends sooner. */
void sim_call_end_at(sim_call *call, uint64_t due, hv_status status, const char *text);
void sim_calls_forget(sim_node *node, const sim_node *to);
void sim_calls_lost(sim_node *gone); /* others' calls to it */
void sim_calls_drop(sim_node *node); /* its own, without a word */
void sim_requests_drop(sim_node *node);

/* ---- streams (sim_stream.c) ---- */
typedef struct sim_segment sim_segment;
typedef struct sim_held sim_held;

enum { SIM_CREDITS = 8 };
typedef struct sim_stream_ends sim_stream_ends;
struct sim_end {
  hv_stream *pub; /* NULL: not yet, or no longer */
  sim_node *node;
  sim_stream_ends *both;
  sim_segment *queue, **queue_end;   /* taken, then ... */
  sim_segment *flight, **flight_end; /* ... on the way */
  sim_held *held;                    /* what arrived here and the core has not let go */
  size_t taken, unread;
  struct {
    uint64_t due;
    size_t bytes;
  } credits[SIM_CREDITS]; /* let go by the other side, the news on its way; the oldest first */
  unsigned n_credits;
  uint64_t last_due, retry_us; /* nothing overtakes; how long to wait while the way is blocked */
  hv_status status;            /* what it will close with */
  const char *text;
  uint64_t pace, paced_us, leaves_us; /* bytes per second; until when it lasts what has left; when the next one leaves (0: open) */
  uint8_t live;                       /* the core awaits STREAM_CLOSED */
  uint8_t said_end, got_end, got_any, wants_ready, missed, queued;
  sim_alarm arrive, credit, ready, close, pulse, leave;
  uint64_t close_due;
  sim_end *next, **where; /* of the node's */
};
struct sim_stream_ends {
  sim_end ends[2]; /* 0 opened it */
  uint8_t broken, opened;
};

hv_status sim_stream_open(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                          hv_stream **out);
hv_status sim_stream_send(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload);
void sim_stream_end(hv_env *env, hv_stream *stream);
void sim_stream_cancel(hv_env *env, hv_stream *stream);
void sim_stream_pace(hv_env *env, hv_stream *stream, uint64_t rate);
void sim_stream_arrives(sim_end *end);
void sim_stream_credit(sim_end *end);
void sim_stream_leaves(sim_end *end);
void sim_stream_ready(sim_end *end);
void sim_stream_closes(sim_end *end);
void sim_stream_pulse(sim_end *end);
void sim_streams_forget(sim_node *node, const sim_node *to);
void sim_streams_break(sim_node *node, int tell_others); /* all of its streams; its own cores hear nothing of it */
void sim_streams_end(sim_node *node);                    /* all close with HV_CANCELLED at once, each with its event */
void sim_streams_drop(sim_node *node);                   /* frees what sim_streams_break has left */

/* ---- the world ---- */
struct hv_sim {
  hv_mem *mem;
  hv_sim_config config;
  uint64_t now;
  sim_heap heap;
  sim_pool calls, packets;
  sim_node **nodes;
  size_t n_nodes, nodes_room;
  sim_node *stepping;
  sim_pair **pairs;
  size_t n_pairs, pairs_room;
  uint64_t random, secret, hash, cuts, serial;
  int any_cut, any_link; /* else no pair need be looked at */
  uint64_t rewired;
  hv_sim_counts counts;
  hv_buf scratch;
  hv_sim_tap *tap;
  void *tap_arg;
  struct {
    uint64_t n;
    size_t node;
    int after;
  } kill;
  hv_log *log;
};

#define SIM_OWNER(type, member, alarm) ((type *)((char *)(alarm)-offsetof(type, member)))
static inline hv_sim *sim_of(hv_env *env) {
  return ((sim_node *)env)->sim;
}
/* Sets, moves or clears an alarm whose room in the heap is held. */
void sim_alarm_set(hv_sim *sim, sim_alarm *alarm, sim_kind kind, uint32_t node, uint64_t due);
void sim_alarm_clear(hv_sim *sim, sim_alarm *alarm);

#endif
