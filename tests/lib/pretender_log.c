#include "lib/pretender_log.h"

#include "kern/codec.h"
#include "lib/pretender_anchor.h"

#include <string.h>

enum { OF_CHUNK = 4, CHUNKS = PRETENDER_VALUES / OF_CHUNK, CHUNK_MAX = 128, LONG = 1 << 16, LIES = 4 };

/* An entry that is false. */
typedef struct entry {
  hv_payload payload; /* first */
  hv_span spans[CHUNKS];
  uint8_t chunks[CHUNKS][CHUNK_MAX];
} entry;

static const uint8_t nothing[LONG]; /* a chunk that no average has */

static void frees_entry(hv_payload *payload) {
  hv_mem_free(payload);
}

static size_t pick(pretender *p, size_t n) {
  return (size_t)(check_random(&p->rng) % n);
}

int pretender_log_is_false(const pretender *p) {
  return (p->program.lies & (PRETENDER_LIES_ENTRIES | PRETENDER_LIES_FUTURE)) != 0;
}

void pretender_log_opens(pretender *p) {
  hv_step_log_config config = {.key = hv_span_of("run", 3), .memory = (uint64_t)LONG * HV_STEP_LOG_ENTRIES};
  if (pretender_log_is_false(p) && hv_step_log_new(p->env, hv_node_state(p->node), &config, &p->false_log, NULL) != HV_OK)
    pretender_fails(p, "n%zu has no memory for its log", p->index);
}

/* The average as its owners encoded it, but for one value if it is to be another. */
static entry *encodes(pretender *p, int other) {
  float values[PRETENDER_VALUES];
  entry *e = hv_mem_array(p->env->mem, 1, sizeof *e);
  if (!e)
    return NULL;
  memcpy(values, p->gradients, sizeof values);
  if (other)
    values[pick(p, PRETENDER_ANCHOR)] += 1;
  for (size_t i = 0; i < CHUNKS; i++) {
    uint64_t size = 0;
    hv_codec_encode(hv_cpu_best(), HV_CODEC_NONE, HV_DTYPE_FLOAT32, values + i * OF_CHUNK, OF_CHUNK, NULL, e->chunks[i], CHUNK_MAX,
                    &size);
    e->spans[i] = hv_span_of(e->chunks[i], (size_t)size);
  }
  return e;
}

/* Other values under the right mark, the right values under another one, or chunks that are too few or too long. */
void pretender_log_adds(pretender *p, const hv_mark *before) {
  const hv_epoch *m = pretender_look(p);
  hv_step_log_facts facts = {.epoch = m->end.epoch, .stamps = {m->end.stamp}, .n_stamps = 1};
  size_t lie = p->program.lies & PRETENDER_LIES_ENTRIES ? pick(p, LIES) : 0, n = lie == 2 ? CHUNKS - 1 : CHUNKS;
  entry *e = p->false_log ? encodes(p, lie == 0) : NULL;
  if (!e)
    return;
  memcpy(facts.before, before->bytes, HV_BALLOT_LINEAGE);
  if (p->program.lies & PRETENDER_LIES_FUTURE)
    facts.epoch += p->program.ahead;
  if (lie == 1)
    facts.before[pick(p, HV_BALLOT_LINEAGE)] ^= 1;
  if (lie == 3)
    e->spans[pick(p, CHUNKS)] = hv_span_of(nothing, LONG);
  hv_payload_init(&e->payload, e->spans, n, frees_entry, NULL);
  p->n_false_entries += hv_step_log_add(p->false_log, &facts, &e->payload) == HV_OK;
  hv_payload_release(&e->payload);
}
