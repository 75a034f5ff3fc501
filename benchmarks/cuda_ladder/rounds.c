/* Rounds of averaging in the simulator (tests/sim/swarm/swarm_round.c) in which half of the members have their values in the
 * memory of a GPU. Members die, stall and lie; each chunk must be the mean of its contributions, and equal members must agree to
 * the bit. Prints one JSON object, and ends with 1 if a round failed.
 *
 * Usage: rounds [FIRST LAST [NVRTC]], seeds 1 to 200 by default. It needs the driver alone, so it also runs over
 * tests/lib/fake_driver.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/world.h"
#include "sim/swarm/swarm.h"

#define MUST(call)                                                                                                                 \
  do {                                                                                                                             \
    hv_status status_ = (call);                                                                                                    \
    if (status_ != HV_OK)                                                                                                          \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, hv_status_name(status_), err.text), exit(2);                                   \
  } while (0)

enum { LANDING = 1 << 20, NODES = 8 };

static hv_error err;

/* The GPU, with a stream and page-locked memory for copies. */
typedef struct gpu {
  const hv_cuda_api *api;
  hv_cuda *cuda;
  void *stream, *event, *landing;
  hv_mem mem;
} gpu;

static void *take(void *self, size_t bytes) {
  const hv_cuda_world *world = &((gpu *)self)->cuda->world;
  void *memory = NULL;
  MUST(world->device_take(world->self, bytes, &memory, &err));
  return memory;
}

static void give(void *self, void *memory) {
  const hv_cuda_world *world = &((gpu *)self)->cuda->world;
  world->device_free(world->self, memory);
}

/* Copies between the device and the landing, and waits for it. */
static void cross(gpu *g, void *to, const void *from, size_t bytes) {
  const hv_cuda_world *world = &g->cuda->world;
  if (bytes > LANDING)
    printf("a part of %zu bytes is too large\n", bytes), exit(2);
  MUST(world->copy(world->self, g->stream, to, from, bytes, &err));
  MUST(world->record(world->self, g->event, g->stream, &err));
  MUST(world->wait(world->self, g->event, &err));
}

static void put(void *self, void *there, const void *here, size_t bytes) {
  gpu *g = self;
  memcpy(g->landing, here, bytes);
  cross(g, there, g->landing, bytes);
}

static void get(void *self, void *here, const void *there, size_t bytes) {
  gpu *g = self;
  cross(g, g->landing, there, bytes);
  memcpy(here, g->landing, bytes);
}

static const hv_device *open_way(void *self, uint32_t chunk_values, void **way) {
  gpu *g = self;
  hv_transfers *transfers = NULL;
  hv_transfers_shape shape = {chunk_values, 2, 3, 1 << 24};
  MUST(g->api->transfers_new(g->cuda, &g->mem, &shape, &transfers, &err));
  *way = transfers;
  return g->api->transfers_device(transfers);
}

static void close_way(void *self, void *way) {
  gpu *g = self;
  if (way)
    MUST(g->api->transfers_why(way, &err));
  g->api->transfers_free(way);
}

int main(int argc, char **argv) {
  static const swarm_room room = {.name = "round", .play = swarm_round_play};
  const char *compilers[] = {"libnvrtc.so.13", "libnvrtc.so.12", argc > 3 ? argv[3] : "libnvrtc.so"};
  hv_cuda_kit kit = {compilers, 3, NULL};
  gpu g = {.api = hv_cuda_api_of(HV_CUDA_VERSION)};
  swarm_place place = {&g, take, give, put, get, open_way, close_way};
  swarm_options options = {.first_seed = argc > 2 ? strtoull(argv[1], NULL, 10) : 1,
                           .last_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 200,
                           .nodes = NODES,
                           .minutes = 1.5,
                           .faults = SWARM_LOSS | SWARM_DUPLICATE | SWARM_REORDER | SWARM_KILL | SWARM_UNPLUG | SWARM_PAUSE |
                                     SWARM_PARTITION | SWARM_SKEW | SWARM_LIARS,
                           .place = &place};
  swarm_run run, sum = {.options = &options};
  unsigned failed = 0, played = 0;
  MUST(g.api->open(0, &kit, &g.cuda, NULL, &err));
  const hv_cuda_world *world = &g.cuda->world;
  hv_mem_init(&g.mem, NULL, HV_MEM_UNLIMITED);
  MUST(world->stream_new(world->self, &g.stream, &err));
  MUST(world->event_new(world->self, &g.event, &err));
  MUST(world->pinned_take(world->self, LANDING, &g.landing, &err));
  for (uint64_t seed = options.first_seed; seed <= options.last_seed; seed++, played++) {
    swarm_play(&room, &options, seed, &run);
    for (int i = 0; i < SWARM_FIGURES_MAX && run.figures[i].name; i++)
      swarm_figure(&sum, run.figures[i].name, run.figures[i].sum);
    failed += run.failure[0] != 0;
    if (run.failure[0])
      printf("seed %llu: %s\n", (unsigned long long)seed, run.failure);
  }
  printf("{\"row\": \"rounds in the simulator\", \"rounds\": %u, \"failed\": %u", played, failed);
  for (int i = 0; i < SWARM_FIGURES_MAX && sum.figures[i].name; i++)
    printf(", \"%s\": %.0f", sum.figures[i].name, sum.figures[i].sum);
  printf("}\n");
  world->pinned_free(world->self, g.landing);
  world->event_free(world->self, g.event);
  world->stream_free(world->self, g.stream);
  g.api->close(g.cuda);
  return failed > 0;
}
