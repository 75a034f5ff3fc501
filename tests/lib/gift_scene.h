/* A hub and trainers that only dial out, with programs of their own: the trainers give states when the hub asks, and the hub offers
 * what it takes. Shared by tests/sim/state/test_sim_state_gifts.c and swarm_gifts.c. The state of an epoch follows from its number,
 * so what the hub takes and what a joiner loads are compared with it bit by bit. */
#ifndef HV_TESTS_GIFT_SCENE_H
#define HV_TESTS_GIFT_SCENE_H

#include "core/epoch/keep.h"
#include "lib/state_scene.h"

enum { GIFT_CLIENTS_MAX = 32, GIFT_HUB = 0, GIFT_TICK_MS = 250, GIFT_COUNTED_MS = 10000 };

struct gift_scene;

/* A state on its way from a trainer. */
typedef struct gift_given {
  struct gift_given *next;
  hv_gift_give give;
  state_copy copy;
  int done;
  char metadata[40];
} gift_given;

typedef struct gift_client {
  struct gift_scene *scene;
  size_t node;
  hv_command command;
  int posted; /* the command waits to be run */
  hv_gift_wait wait;
  int waits, is_asked, is_urgent; /* is_urgent: somebody is on the way, as its program knows */
  uint64_t seen_us;               /* when its program ran last */
  uint64_t epoch;                 /* as it reported then */
  int must_give;                  /* the words of a round say so: to the hub, under this ticket */
  uint8_t ticket[HV_GIFT_TICKET];
  gift_given *given;
  size_t n_given, n_arrived;
} gift_client;

/* A state that the hub holds. */
typedef struct gift_held {
  struct gift_held *next;
  struct gift_scene *scene;
  hv_payload payload;
  hv_span spans[STATE_PARTS];
  hv_manifest_part parts[STATE_PARTS];
  hv_state_offer offer;
  uint8_t *image;
  size_t size;
  char metadata[40];
} gift_held;

typedef struct gift_hub {
  hv_command command;
  int posted;
  uint64_t followed_us;
  hv_gift_take take;
  int waits;
  gift_held *arriving; /* what the take fills */
  gift_held *held;     /* on offer, or still being downloaded: the newest first */
  hv_keep keep;
  size_t n_taken, bytes, bytes_peak;
  int met; /* the words of a round, which it has not heard yet */
  hv_peer_id giver;
  uint64_t met_epoch;
  uint8_t ticket[HV_GIFT_TICKET];
} gift_hub;

typedef struct gift_scene {
  state_scene s;
  size_t n_clients;
  gift_client clients[GIFT_CLIENTS_MAX]; /* nodes 1 and up */
  gift_hub hub;
  uint64_t epoch; /* that the trainers are in */
  size_t values;
  hv_codec codec;
  uint64_t size_max; /* that the hub allows */
  char broken[200];  /* the first thing that does not hold */
} gift_scene;

/* A hub and n trainers that know it. sim and mem are the caller's. */
void gift_scene_init(gift_scene *scene, hv_sim *sim, hv_mem *mem, size_t n_clients, size_t values, hv_codec codec);
/* After the sim has been freed. */
void gift_scene_fini(gift_scene *scene);
/* Lets the world and the programs go on. */
void gift_scene_run(gift_scene *scene, double seconds);
/* Until the hub holds a state of this epoch or a later one. 1: it does. */
int gift_scene_await(gift_scene *scene, uint64_t epoch, double seconds);
/* The trainers end their epoch together. */
void gift_scene_next_epoch(gift_scene *scene);
/* The words of a round that ends their epoch: this trainer gives its state of the next one, because others lack it. */
void gift_scene_meet(gift_scene *scene, size_t client);
/* 1: what came is the state of its epoch. */
int gift_same(const gift_scene *scene, const state_try *try);

#endif
