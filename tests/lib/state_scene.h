/* A swarm whose nodes offer and load states, some of them liars. Shared by tests/sim/state/test_sim_state.c and swarm_state.c.
 * A joiner's state is judged from outside: its image against the donors' own memory, and each chunk that arrives is counted at
 * its node's door, apart from what the loader says of itself. */
#ifndef HV_TESTS_STATE_SCENE_H
#define HV_TESTS_STATE_SCENE_H

#include "lib/check.h"
#include "lib/dht_swarm.h"

enum { STATE_NODES_MAX = 320, STATE_PARTS = 6, STATE_CHUNKS_MAX = 4096 };

typedef enum state_lie {
  STATE_HONEST,
  STATE_LIE_CHUNKS,    /* the right manifest, and chunks with a byte changed */
  STATE_LIE_MANIFEST,  /* announces the right one, and sends another */
  STATE_LIE_SILENT,    /* takes what is asked, and sends nothing */
  STATE_LIE_SHUT,      /* breaks each stream off when it has sent one chunk */
  STATE_LIE_SLOW,      /* sends all that is right, each chunk just before a joiner would have given it up */
  STATE_LIE_BUSY,      /* says for ever that it serves as many as it can */
  STATE_LIE_BUSY_LATE, /* the same, up to 15 s later: mostly one of several is about to speak */
  STATE_LIES
} state_lie;

/* A replica's memory, lent to a node until `free`. */
typedef struct state_copy {
  hv_payload payload;
  hv_span spans[STATE_PARTS];
  hv_manifest_part parts[STATE_PARTS];
  void *memory[STATE_PARTS];
  int freed; /* 1: all have let go of it */
} state_copy;

typedef struct state_offering {
  hv_command command;
  hv_state_offer offer;
  int done;
  hv_status status;
  char prefix[40], metadata[40];
} state_offering;

typedef struct state_try {
  hv_command command;
  hv_state_load load;
  dht_swarm *swarm;
  size_t node;
  int done, rooms;
  hv_status status;
  uint64_t started_us, ended_us, epoch;
  size_t n_chunks;
  hv_manifest_part parts[STATE_PARTS];
  size_t n_parts;
  uint8_t *image;
  uint8_t arrived[STATE_CHUNKS_MAX]; /* how often each chunk came to this node's door */
  char prefix[40], metadata[40], text[1024];
} state_try;

typedef struct state_scene {
  hv_mem *mem;
  dht_swarm swarm;
  state_lie lies[STATE_NODES_MAX];
  hv_env *envs[STATE_NODES_MAX];
  state_try *trying[STATE_NODES_MAX];
  struct state_slow *slow; /* what slow ones hold back */
  hv_status (*true_send)(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload);
} state_scene;

/* n nodes that know the first one; sim and mem are the caller's. swarm.config and swarm.state may be set before nodes are added. */
void state_scene_init(state_scene *scene, hv_sim *sim, hv_mem *mem);
size_t state_scene_add(state_scene *scene, state_lie lie, int client_mode);
void state_scene_fini(state_scene *scene); /* after the sim has been freed */

/* A replica: what it holds follows from `number` alone. values: floats in its large part. codec: of its float parts. */
void state_copy_make(state_copy *copy, hv_mem *mem, uint64_t number, size_t values, hv_codec codec);
void state_copy_free(state_copy *copy); /* when nobody has it any more */

void state_offer(state_scene *scene, size_t node, state_offering *offering, state_copy *copy, const char *prefix, uint64_t epoch);
void state_withdraw(state_scene *scene, size_t node, const char *prefix, int at_once);
void state_load(state_scene *scene, size_t node, state_try *try, const char *prefix, uint32_t timeout_ms);
/* Until all are done; 1: all are. */
int state_finish(state_scene *scene, state_try *tries, size_t n, double seconds);
/* 1: what came is what this replica holds, as its codec leaves it. */
int state_same(const state_try *try, const state_copy *copy);
/* Chunks that came more than once, each time counted. */
size_t state_twice(const state_try *try);
void state_try_free(state_try *try);

#endif
