/* A group in the simulator that averages once: who is in it, what each brought, and what came out. */
#ifndef HV_TESTS_SCENE_H
#define HV_TESTS_SCENE_H

#include "lib/away.h"
#include "lib/check.h"

#include "core/node.h"
#include "net/sim/sim.h"

enum { SCENE_MEMBERS_MAX = 8 };

typedef struct scene_member {
  struct scene *scene;
  size_t index;
  hv_round round;
  hv_allreduce *allreduce;
  float *in, *out; /* an auxiliary's: NULL */
  float *saved;    /* what `in` was at the beginning */
  float weight;
  hv_run in_run, out_run;
  hv_status status;
  int done, begun;
  uint64_t done_us;
  hv_command begin;
  away_device device;
  int is_away;
} scene_member;

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  size_t n;
  uint64_t n_values;
  hv_round_member plan[SCENE_MEMBERS_MAX];
  scene_member members[SCENE_MEMBERS_MAX];
} scene;

typedef struct scene_setup {
  size_t n;
  uint64_t n_values;
  uint32_t chunk_values;
  hv_codec codec, narrow;
  uint64_t row;          /* under SCALED_ROWS */
  unsigned sends_narrow; /* members (bits) that send under `narrow` */
  uint64_t seed;
  uint32_t stall_ms;        /* 0: 3,000 */
  size_t client, auxiliary; /* which member is one; 0: none is */
  size_t leader;
  hv_sim_link link; /* delay_us 0: the sim's own */
  size_t window;
  int in_place;
  int keep;                         /* encoded averages are kept */
  int quiet;                        /* payloads stay out of the trace */
  uint64_t line;                    /* each member's line carries so many bytes per second, up and down; 0: any */
  uint64_t slow;                    /* the line of the last member, if not 0 */
  uint64_t told[SCENE_MEMBERS_MAX]; /* what spans are made by; 0: all are alike */
  uint64_t job_us;                  /* 0: the sim's own */
  unsigned away;                    /* members (bits) whose values lie on a device */
  const hv_device *device;          /* on which; NULL: one of lib/away.h for each */
} scene_setup;

void scene_open(scene *s, const scene_setup *how);
void scene_begin(scene *s, size_t member);
void scene_begin_all(scene *s); /* each a little after the one before */
void scene_run(scene *s, double seconds);
/* Whether neither of two members hears the other. */
void scene_cut(scene *s, size_t a, size_t b, int cut);
/* Brings the values of those who have them on a device into the host's memory, for looking at; once, after the last run. */
void scene_bring(scene *s);
/* Gives all rounds up, and holds that nothing is left of them. */
void scene_close(scene *s);
/* The weighted mean in float64 of what those of a set (bits) brought. */
double scene_mean(const scene *s, unsigned set, uint64_t at);
/* The set of those who are in a chunk, as a member says. */
unsigned scene_set(const scene *s, size_t member, uint32_t chunk);

/* Every chunk that a member holds is the mean of those whom it names (codec none), and the rest is as it was; nothing between. */
void scene_each_chunk_is_right(const scene *s, size_t member);
/* These are told HV_OK, and have the same bits. */
void scene_all_have_the_same(const scene *s, unsigned set);

#endif
