/* The messages that a core holds, and the windows that open again as it releases them (contract in sim_inner.h). */
#include "net/sim/sim_inner.h"

/* A received payload, charged to the receiving node until its core releases it. */
struct sim_held {
  hv_payload payload; /* first */
  hv_span part;
  sim_end *end; /* NULL: the stream was freed */
  sim_held *next, **where;
};

void sim_window_grant(sim_end *sender, size_t bytes) {
  hv_sim *sim = sender->node->sim;
  if (bytes == 0 || sender->both->broken)
    return;
  uint64_t due = sim->now + sim_delay_us(sim, sim_other(sender)->node->index, sender->node->index);
  unsigned last = sender->n_credits - 1;
  if (sender->n_credits == SIM_CREDITS || (sender->n_credits && sender->credits[last].due == due)) {
    sender->credits[last].due = due;
    sender->credits[last].bytes += bytes;
  } else {
    sender->credits[sender->n_credits].due = due;
    sender->credits[sender->n_credits++].bytes = bytes;
  }
  if (!sender->credit.slot)
    sim_alarm_set(sim, &sender->credit, SIM_CREDIT, sender->node->index, due);
}

static void free_held(hv_payload *payload) {
  sim_held *held = (sim_held *)payload;
  if (held->end) {
    *held->where = held->next;
    if (held->next)
      held->next->where = held->where;
    sim_window_grant(sim_other(held->end), payload->size);
  }
  hv_mem_free(held);
}

hv_payload *sim_window_hold(sim_end *end, hv_payload *payload) {
  enum { LEAD = (sizeof(sim_held) + 63) / 64 * 64 };
  sim_held *held = hv_mem_aligned(end->node->mem, LEAD + payload->size);
  if (!held)
    return NULL;
  uint8_t *bytes = (uint8_t *)held + LEAD;
  hv_payload_read(payload, 0, bytes, payload->size);
  held->part = hv_span_of(bytes, payload->size);
  hv_payload_init(&held->payload, &held->part, 1, free_held, NULL);
  held->end = end;
  held->next = end->held;
  held->where = &end->held;
  if (held->next)
    held->next->where = &held->next;
  end->held = held;
  return &held->payload;
}

void sim_window_detach(sim_end *end) {
  for (; end->held; end->held = end->held->next)
    end->held->end = NULL;
}
