/* The state of a simulated network, shared by the sim*.c files: event queue, nodes, links, calls, streams.
 *
 * Room: net; private to net/sim. net/sim/sim.h is the contract.
 * Files, each of which calls only those before it: sim_clock.c, sim_closed.c, sim_narrate.c, sim_heap.c, sim_nat.c, sim_step.c,
 * sim_link.c, sim_home.c, sim_call.c, sim_stream.c, sim_node.c, sim.c. sim_step.c ends a node through hv_sim.crash, because a
 * node's end reaches all of them. Owner: ownership is as in sim.h. The memory of each struct here is charged to the account of the
 * sim. Thread: one.
 */
#ifndef HV_NET_SIM_INNER_H
#define HV_NET_SIM_INNER_H

#include "core/peers/spoken.h"
#include "core/util/turns.h"
#include "net/identity.h"
#include "net/sim/sim.h"
#include "net/sim/sim_nat.h"
#include "net/wire.h"

#define SIM_NEVER (UINT64_C(1) << 62) /* added to the due time of a paused node's entries, in us */

typedef struct sim_node sim_node;
typedef struct sim_end sim_end;
typedef struct sim_call sim_call;
typedef struct sim_pair sim_pair;

/* ---- the event queue (sim_heap.c): a heap ordered by due time, then by insertion ---- */

/* Kinds of entries: the type of the item, and the effect when it is due. */
typedef enum sim_kind {
  SIM_TIMER,                /* hv_timer: fires */
  SIM_CALL_END,             /* sim_call: ends with the status in it, without an answer */
  SIM_ARRIVE,               /* sim_end: the first message in its `flight` arrives at the other end */
  SIM_CREDIT,               /* sim_end: a window update from the other end arrives */
  SIM_READY,                /* sim_end: its core gets STREAM_READY */
  SIM_CLOSE,                /* sim_end: its core gets STREAM_CLOSED */
  SIM_PULSE,                /* sim_end: keepalive; checks that the other end answers */
  SIM_NODE_END,             /* sim_node: the grace time after STOP is over */
  SIM_LEAVE,                /* sim_end: its pace permits the next message to leave */
  SIM_MOVABLE,              /* the items of the kinds above store their slot in the heap; those below do not */
  SIM_PACKET = SIM_MOVABLE, /* sim_packet: arrives */
  SIM_JOB,                  /* hv_job: runs and is done */
  SIM_COMMAND,              /* NULL: the node runs its oldest command */
  SIM_START,                /* NULL: the node's core gets START */
  SIM_STOP,                 /* NULL: the node's core gets STOP */
  SIM_DOWN,                 /* sim_node: the peer whose connection broke */
  SIM_SCRIPT                /* a function of hv_sim_at; belongs to no node */
} sim_kind;

/* The position of an entry in the heap, stored where its owner can find it, to move or remove the entry. */
typedef struct sim_alarm {
  size_t slot; /* from 1; 0: not set */
} sim_alarm;

typedef struct sim_entry {
  uint64_t due, order; /* virtual time in us; insertion number */
  void *item;          /* SIM_TIMER: the hv_timer; other movable kinds: the sim_alarm inside the object; else as sim_kind says */
  uint32_t node;       /* index of the node whose event it is */
  uint32_t kind;       /* sim_kind */
} sim_entry;

typedef struct sim_heap {
  hv_mem *mem;
  sim_entry *entries;
  size_t size, room, held; /* entries in use; allocated; reserved by sim_heap_hold */
  uint64_t order;          /* the last insertion number */
} sim_heap;

/* Reserves room for n more entries, which sim_heap_push does not use. False if there is no memory. */
int sim_heap_hold(sim_heap *heap, size_t n);
void sim_heap_unhold(sim_heap *heap, size_t n);
/* False if there is no memory. */
int sim_heap_push(sim_heap *heap, uint64_t due, uint32_t node, sim_kind kind, void *item);
void sim_heap_move(sim_heap *heap, size_t slot, uint64_t due);
void sim_heap_remove(sim_heap *heap, size_t slot);
/* Removes and returns the first entry; there must be one. */
sim_entry sim_heap_pop(sim_heap *heap);
/* Adds SIM_NEVER to the first entry's due time. Deferred entries keep their order among each other. */
void sim_heap_defer(sim_heap *heap);
/* Calls keep(arg, entry) for each entry and removes those for which it returns 0. keep may change `due`. */
void sim_heap_filter(sim_heap *heap, int (*keep)(void *arg, sim_entry *entry), void *arg);
/* Sets or moves an alarm. It cannot fail: its owner has reserved room for it. */
void sim_alarm_set(hv_sim *sim, sim_alarm *alarm, sim_kind kind, uint32_t node, uint64_t due);
void sim_alarm_clear(hv_sim *sim, sim_alarm *alarm);

/* The object of this type that contains an alarm. */
#define SIM_OWNER(type, member, alarm) ((type *)((char *)(alarm)-offsetof(type, member)))

/* A free list of blocks of one size. Memory is returned only by sim_pool_fini, so a pointer to a freed block stays readable. */
typedef struct sim_pool {
  hv_mem *mem;
  size_t size; /* bytes of a block */
  void *free, *chunks;
} sim_pool;
void *sim_pool_take(sim_pool *pool); /* not cleared; NULL: no memory */
void sim_pool_give(sim_pool *pool, void *block);
void sim_pool_fini(sim_pool *pool);

/* ---- nodes (sim_node.c) ---- */

/* STOPPING: core got STOP and its grace time runs. ENDING: its calls, streams and jobs are being cancelled. */
typedef enum sim_life { SIM_DEAD, SIM_ALIVE, SIM_STOPPING, SIM_ENDING } sim_life;

enum { SIM_KILLED = 1, SIM_UNPLUGGED };

struct sim_node {
  hv_env env; /* first: an hv_env * is a sim_node * */
  hv_spoken spoken;
  hv_sim *sim;
  hv_sim_node_config config;
  hv_core core; /* self is NULL while dead */
  hv_mem *mem;
  hv_identity *identity;  /* NULL without real cryptography */
  hv_admission admission; /* of config, with its list of denials */
  uint8_t *denials;       /* the bytes of that list; they survive a restart, like a file. NULL: none */
  hv_peer_id id;
  uint32_t index;
  uint32_t lives; /* number of starts so far */
  sim_life life;
  uint64_t asleep_us, slept_us; /* since when it sleeps, 0: it is awake; by which its clock is behind the world's */
  uint8_t paused, unplugged;
  uint8_t doomed;               /* SIM_KILLED or SIM_UNPLUGGED: it dies when its present step returns */
  unsigned group;               /* of hv_sim_group */
  uint64_t random;              /* state of its random numbers */
  uint64_t up_free, down_free;  /* times at which its uplink and downlink are idle again, in us */
  sim_alarm end;                /* SIM_NODE_END */
  sim_call *calls;              /* calls that it makes */
  sim_call *asked;              /* calls that others make to it */
  struct sim_request *requests; /* calls to it that its core has not answered */
  sim_end *ends;                /* its ends of streams */
  hv_turns turns;               /* which of their messages leave first */
  sim_pair *diallers;           /* connections that others opened to it */
  hv_job *jobs;                 /* under way */
  hv_command *commands, **last_command;
  hv_sim_link *out_link, *in_link; /* of hv_sim_set_link with HV_SIM_ANY; NULL: none */
};

void sim_node_starts(sim_node *node);                       /* SIM_START */
void sim_node_stops(sim_node *node);                        /* SIM_STOP */
void sim_node_ends(sim_node *node);                         /* SIM_NODE_END */
void sim_node_fires(sim_node *node, hv_timer *timer);       /* SIM_TIMER */
void sim_node_works(sim_node *node, hv_job *job);           /* SIM_JOB */
void sim_node_misses(sim_node *node, const sim_node *peer); /* SIM_DOWN */
/* Kills a node, or unplugs it: then no other node gets a reset. During a step of its core it dies when the step returns. */
void sim_node_crash(sim_node *node, int unplugged);
void sim_node_free(sim_node *node);

/* ---- clocks and random numbers (sim_clock.c) ---- */

#define SIM_CLOCK_START_US UINT64_C(1000000000000) /* of a node's clock without skew; above 0, because skew may be negative */
/* A node's own clock, with its skew and drift, at a moment of virtual time; in us. */
uint64_t sim_local_us(const sim_node *node, uint64_t time_us);
/* The virtual time at which a node's own clock has advanced by delay_us. */
uint64_t sim_after_us(const sim_node *node, uint64_t delay_us);
uint64_t sim_random(uint64_t *state);
void sim_fill_random(uint64_t *state, uint8_t *out, size_t size);
uint64_t sim_hash_mix(uint64_t a, uint64_t b);

/* ---- closed swarms (sim_closed.c) ---- */

/* The membership that another node proves to this one; NULL: none. */
const hv_membership *sim_member(const sim_node *node, const sim_node *other);
/* Seconds since 1970, by the node's clock. */
int64_t sim_unix_s(hv_env *env);
/* Why a node does not admit another one, which proves what its own admission says. HV_CAUSE_OTHER: it does. */
hv_cause sim_apart(const sim_node *node, const sim_node *other);

/* ---- lines for hv_sim_config.say (sim_narrate.c) ---- */

/* node NULL: the line concerns no single node. */
void sim_narrate(hv_sim *sim, const sim_node *node, const char *format, ...) __attribute__((format(printf, 3, 4)));
void sim_narrate_event(hv_sim *sim, const sim_node *node, const hv_event *event);
void sim_narrate_log(hv_sim *sim, const sim_node *node); /* the records that its core has logged */

/* ---- steps of cores (sim_step.c) ---- */

/* Runs one step of a node's core and adds it to the trace, with a hash of the event's bytes. False if the node is dead now. */
int sim_deliver(sim_node *node, hv_event *event, uint64_t content);
/* Removes and returns the oldest command of a node that has one. */
hv_command *sim_next_command(sim_node *node);

/* ---- links (sim_link.c) ---- */

/* The mappings by which a connection passes the NATs of both homes: IDs of the dialler's and of the other one's. 0: none. */
typedef struct sim_way {
  uint32_t out, in;
} sim_way;

/* One direction between two nodes, and the connection that `from` opened to `to`. */
struct sim_pair {
  uint32_t from, to;             /* indices of nodes */
  hv_sim_link *link;             /* set for this pair alone; NULL: none */
  uint64_t free_at;              /* time at which its queue is empty, in us */
  uint64_t ready_at;             /* time at which the handshake is over, in us */
  uint64_t cuts;                 /* equal to hv_sim.cuts: cut */
  uint32_t from_lives, to_lives; /* `lives` of both nodes when the connection was opened */
  sim_way way;
  uint64_t silent_us; /* time at which keepalive finds that a NAT has dropped the connection; 0: none has */
  uint8_t up;
  sim_pair *next, **where; /* in sim_node.diallers of `to` */
};

hv_sim_link sim_link_default(void);
sim_pair *sim_pair_of(hv_sim *sim, uint32_t from, uint32_t to); /* created on first use; NULL: no memory */
const hv_sim_link *sim_link_of(hv_sim *sim, uint32_t from, uint32_t to);
/* True if a cut or a partition separates `from` from `to`. */
int sim_blocked(hv_sim *sim, uint32_t from, uint32_t to);
uint64_t sim_delay_us(hv_sim *sim, uint32_t from, uint32_t to);
int sim_stands(hv_sim *sim, const sim_pair *pair); /* true if the connection is open */
/* The time at which the connection of a pair can carry data, in us: now, or after a handshake that begins now. */
uint64_t sim_dial(hv_sim *sim, sim_pair *pair);
/* Arrival time of `size` bytes that leave at `leave`, in us: uplink and link rate with their queues, delay, jitter. */
uint64_t sim_transit(hv_sim *sim, sim_pair *pair, uint64_t leave, size_t size);
/* The time at which `size` bytes have passed the receiver's downlink, in us. 0 if there is nothing to wait for, because the node
 * has no limit or because *queued is set: they have waited already. Sets *queued. */
uint64_t sim_way_in(sim_node *node, size_t size, uint8_t *queued);
void sim_connected(hv_sim *sim, sim_pair *pair);
void sim_disconnect(hv_sim *sim, sim_pair *pair);
/* Closes all connections to a dead node. Each dialler that can be reached gets PEER_DOWN, unless the node was unplugged. */
void sim_connections_lost(sim_node *gone);
/* True with probability p. */
int sim_chance(hv_sim *sim, double p);
void sim_links_fini(hv_sim *sim);
hv_addr sim_addr_of(const hv_sim *sim, uint32_t node, uint16_t port); /* port 0: the port on which it listens */
/* The node that has an address, by its host; NULL: none has it, or it is that of a home. */
sim_node *sim_host_at(hv_sim *sim, const hv_addr *addr);

/* ---- homes and what passes their NATs (sim_home.c); the rules by kind are in sim_nat.c ---- */

enum { SIM_PORT = 31337 /* on which nodes listen */ };

/* The node that listens on an address, for a new connection of `from`. NULL: none, and *why is as hv_sim_reaches says. */
sim_node *sim_node_at(sim_node *from, const hv_addr *addr, hv_status *why);
/* A connection that `from` opens to the node at this address passes the NATs: pair->way is the one that stands, or a new one.
 * False: the NAT of `from` has no port left. */
int sim_leads(hv_sim *sim, sim_pair *pair, const hv_addr *addr);
/* False if a NAT between both has dropped the connection: what is sent on it is lost. The dialler's keepalive finds out later. */
int sim_carries(hv_sim *sim, uint32_t dialler, uint32_t other, sim_way way);
/* The address from which the connection of a pair comes, as its other end sees it. */
hv_addr sim_seen_at(hv_sim *sim, const sim_pair *pair);
void sim_homes_fini(hv_sim *sim);

/* ---- unary calls (sim_call.c) ---- */

/* A call as the caller's side has it. */
struct sim_call {
  hv_call *call;
  sim_node *from, *to; /* to: NULL if nothing listens on the address */
  uint64_t serial;     /* unique; a packet with another one belongs to an earlier call in this block; 0: block not in use */
  sim_alarm end;       /* SIM_CALL_END */
  uint64_t end_due;    /* time of `end`, in us; UINT64_MAX: not set */
  hv_status status;    /* the result that the call gets when `end` is due */
  const char *text;
  sim_way way;
  uint32_t version;                    /* of the request */
  unsigned tries;                      /* requests sent */
  uint8_t meets;                       /* True: of sim_call_meet */
  struct sim_blob *held;               /* the request, for a try in another version; NULL: none */
  char why[HV_VERSIONS_TEXT_MAX];      /* a text about versions */
  sim_call *next, **where;             /* in sim_node.calls of `from` */
  sim_call *next_asked, **where_asked; /* in sim_node.asked of `to` */
};

/* A call as the core of the called node has it, until it replies. */
typedef struct sim_request {
  hv_request pub; /* first: what core sees */
  struct sim_request *next, **where;
  sim_node *node;
  uint32_t from;  /* index of the caller */
  sim_call *call; /* where the answer goes, if its serial is still this one */
  uint64_t serial;
  sim_way way;
} sim_request;

/* The encoded bytes of a message, shared by its duplicates. */
typedef struct sim_blob {
  unsigned refs;
  size_t size;
  uint64_t hash;
  uint8_t bytes[];
} sim_blob;

/* A request or an answer on its way. */
typedef struct sim_packet {
  sim_blob *blob;
  sim_call *call;
  uint64_t serial;           /* of the call when it was sent */
  uint32_t from;             /* index of the sender */
  sim_way way;               /* of the caller's connection */
  uint8_t is_answer, queued; /* queued: has waited at the receiver's downlink */
} sim_packet;

/* These three fill hv_env. */
hv_status sim_call_start(hv_env *env, hv_call *call, const hv_msg *request);
void sim_call_stop(hv_env *env, hv_call *call);
/* Asks a peer for its versions, which go to hv_env.spoken. `done` is called outside of steps of core. */
hv_status sim_call_meet(sim_node *node, hv_call *call);
/* Frees a call that is under way, if it is; `done` is not called. */
void sim_call_drop(hv_call *call);
/* Puts the versions that a peer claims into hv_env.spoken. The line that this may log is narrated for the node. */
void sim_learn(sim_node *node, const hv_peer_id *peer, const hv_versions *speaks);
void sim_reply(hv_env *env, hv_request *request, const hv_msg *answer);
void sim_call_ends(sim_call *call);                          /* SIM_CALL_END */
void sim_packet_arrives(sim_node *node, sim_packet *packet); /* SIM_PACKET */
void sim_packet_drop(hv_sim *sim, sim_packet *packet);
/* Ends a call with this status at `due`, unless it ends sooner. */
void sim_call_end_at(sim_call *call, uint64_t due, hv_status status, const char *text);
void sim_calls_forget(sim_node *node, const sim_node *to); /* cancels the node's calls to another one */
void sim_calls_lost(sim_node *gone);                       /* ends the calls of others to a dead node */
void sim_calls_drop(sim_node *node);                       /* frees the node's own calls; its core gets no event */
void sim_requests_drop(sim_node *node);

/* ---- streams (sim_stream.c; their windows: sim_window.c) ---- */

typedef struct sim_segment sim_segment; /* a message on its way, with its cost: the bytes that it counts in windows */
typedef struct sim_held sim_held;       /* a payload that a core has received */

enum { SIM_CREDITS = 8 };
typedef struct sim_stream_ends sim_stream_ends;

/* One side of a stream. A message that it sends passes `queue`, then `flight`. */
struct sim_end {
  hv_stream *pub; /* what core sees; NULL: before STREAM_OPENED, and after STREAM_CLOSED */
  sim_node *node;
  sim_stream_ends *both;
  sim_segment *queue, **queue_end;   /* accepted from core, waits for window or pace */
  sim_segment *flight, **flight_end; /* has left and not arrived */
  sim_held *held;                    /* payloads that core has not released */
  size_t taken;                      /* cost of what core sent and has not arrived: at most the window */
  size_t unread;                     /* cost of what has left and the receiver has not released: at most the window */
  struct {
    uint64_t due;
    size_t bytes;
  } credits[SIM_CREDITS]; /* window updates on their way to this end; the oldest first */
  unsigned n_credits;
  uint64_t last_due; /* arrival time of the last message that left, in us: messages never overtake each other */
  uint64_t retry_us; /* wait before the next try while the link is blocked */
  hv_status status;  /* of STREAM_CLOSED, once close_due is set */
  const char *text;
  uint64_t pace;             /* bytes per second; 0: no limit */
  uint64_t paced_us;         /* time until which the messages that left occupy the pace */
  uint64_t leaves_us;        /* time at which the first message in `queue` may leave; 0: not computed */
  uint8_t live;              /* True until core gets STREAM_CLOSED */
  uint8_t said_end, got_end; /* this side half-closed; the other side's half-close arrived */
  uint8_t got_any;           /* a message has arrived */
  uint8_t wants_ready;       /* core got HV_BUSY and expects STREAM_READY */
  uint8_t missed;            /* keepalives in a row without an answer; 2 break the stream */
  uint8_t queued;            /* the first message in `flight` has waited at the receiver's downlink */
  uint8_t told, heard;       /* a message with this node's versions was sent; the first message of the other side has come */
  uint8_t asking;            /* the other side is being asked for its versions; nothing is sent meanwhile */
  sim_segment *waiting, **waiting_end; /* the first message and what core sends, while asking */
  hv_call meets;                       /* that call */
  sim_alarm arrive, credit, ready, close, pulse, leave;
  uint64_t close_due;     /* time of `close`, in us; UINT64_MAX: not set */
  sim_end *next, **where; /* in sim_node.ends */
};

struct sim_stream_ends {
  sim_end ends[2]; /* [0] belongs to the node that opened the stream */
  sim_way way;
  uint8_t broken, opened;         /* broken: nothing more is transferred; opened: the acceptor's core has it */
  char why[HV_VERSIONS_TEXT_MAX]; /* a text about versions */
};

static inline sim_end *sim_other(sim_end *end) {
  return &end->both->ends[end == &end->both->ends[0]];
}

/* These five fill hv_env. */
hv_status sim_stream_open(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                          hv_stream **out);
hv_status sim_stream_send(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload);
void sim_stream_end(hv_env *env, hv_stream *stream);
void sim_stream_cancel(hv_env *env, hv_stream *stream);
void sim_stream_pace(hv_env *env, hv_stream *stream, uint64_t rate);
void sim_stream_arrives(sim_end *end); /* SIM_ARRIVE */
void sim_stream_credit(sim_end *end);  /* SIM_CREDIT */
void sim_stream_leaves(sim_end *end);  /* SIM_LEAVE */
void sim_stream_ready(sim_end *end);   /* SIM_READY */
void sim_stream_closes(sim_end *end);  /* SIM_CLOSE */
void sim_stream_pulse(sim_end *end);   /* SIM_PULSE */
/* Sends a window update to the sender: so many bytes were released. If SIM_CREDITS are under way, the last one is merged with it.
 */
void sim_window_grant(sim_end *sender, size_t bytes);
/* A copy of what has arrived, for the core of this end; the window has room again when that is released. NULL: no memory. */
hv_payload *sim_window_hold(sim_end *end, hv_payload *payload);
/* The end is freed: what its core still holds counts in no window any more. */
void sim_window_detach(sim_end *end);
void sim_streams_forget(sim_node *node, const sim_node *to); /* cancels the node's streams with another one */
/* Breaks all streams of a dying node. Its own core gets no event; the other ends get STREAM_CLOSED if tell_others is set. */
void sim_streams_break(sim_node *node, int tell_others);
void sim_streams_end(sim_node *node);  /* closes each with HV_CANCELLED at once; its core gets STREAM_CLOSED */
void sim_streams_drop(sim_node *node); /* frees the ends that sim_streams_break left */

/* ---- the simulation (sim.c) ---- */
struct hv_sim {
  hv_mem *mem;
  hv_sim_config config;
  uint64_t now; /* virtual time in us */
  sim_heap heap;
  sim_pool calls, packets;
  sim_nat **homes; /* by number, from 1 */
  size_t n_homes, homes_room;
  sim_node **nodes; /* by index */
  size_t n_nodes, nodes_room;
  sim_node *stepping;                           /* the node whose core runs now; NULL: none */
  void (*crash)(sim_node *node, int unplugged); /* sim_node_crash */
  sim_pair **pairs;                             /* a hash table by (from, to), with open addressing */
  size_t n_pairs, pairs_room;
  uint64_t random, secret, hash, serial; /* secret: key of the fast cryptography; hash: the trace; serial: of the last call */
  uint64_t cuts;                         /* number of the present set of cuts; hv_sim_heal starts a new, empty set */
  int any_cut, any_link;                 /* True once a pair was cut, or got a link of its own */
  uint64_t rewired;                      /* changes of cuts and groups so far */
  hv_sim_counts counts;
  hv_buf scratch; /* a message being encoded */
  hv_sim_tap *tap;
  void *tap_arg;
  struct {
    uint64_t n; /* 0: no kill is planned */
    size_t node;
    int after;
  } kill; /* of hv_sim_kill_at_event */
  hv_log *log;
};

static inline hv_sim *sim_of(hv_env *env) {
  return ((sim_node *)env)->sim;
}

#endif
