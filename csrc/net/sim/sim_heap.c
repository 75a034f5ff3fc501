#include "net/sim/sim_inner.h"

#include <string.h>

enum { WAYS = 4, CHUNK = 64 };

static int before(const sim_entry *a, const sim_entry *b) {
  return a->due < b->due || (a->due == b->due && a->order < b->order);
}

static void put(sim_heap *heap, size_t i, const sim_entry *entry) {
  heap->entries[i] = *entry;
  if (entry->kind == SIM_TIMER)
    ((hv_timer *)entry->item)->world.slot = i + 1;
  else if (entry->kind < SIM_MOVABLE)
    ((sim_alarm *)entry->item)->slot = i + 1;
}

static void lose_slot(const sim_entry *entry) {
  if (entry->kind == SIM_TIMER)
    ((hv_timer *)entry->item)->world.slot = 0;
  else if (entry->kind < SIM_MOVABLE)
    ((sim_alarm *)entry->item)->slot = 0;
}

static void up(sim_heap *heap, size_t i, sim_entry entry) {
  while (i > 0) {
    size_t parent = (i - 1) / WAYS;
    if (!before(&entry, &heap->entries[parent]))
      break;
    put(heap, i, &heap->entries[parent]);
    i = parent;
  }
  put(heap, i, &entry);
}

static void down(sim_heap *heap, size_t i, sim_entry entry) {
  for (;;) {
    size_t child = WAYS * i + 1, best = child, end = child + WAYS < heap->size ? child + WAYS : heap->size;
    if (child >= heap->size)
      break;
    while (++child < end)
      if (before(&heap->entries[child], &heap->entries[best]))
        best = child;
    if (!before(&heap->entries[best], &entry))
      break;
    put(heap, i, &heap->entries[best]);
    i = best;
  }
  put(heap, i, &entry);
}

static void settle(sim_heap *heap, size_t i, sim_entry entry) {
  if (i > 0 && before(&entry, &heap->entries[(i - 1) / WAYS]))
    up(heap, i, entry);
  else
    down(heap, i, entry);
}

static int has_room(sim_heap *heap, size_t n) {
  size_t need = heap->size + heap->held + n;
  if (need <= heap->room)
    return 1;
  size_t room = heap->room ? heap->room : 64;
  while (room < need)
    room *= 2;
  sim_entry *entries = hv_mem_resize(heap->mem, heap->entries, room * sizeof *entries);
  if (!entries)
    return 0;
  heap->entries = entries;
  heap->room = room;
  return 1;
}

int sim_heap_hold(sim_heap *heap, size_t n) {
  if (!has_room(heap, n))
    return 0;
  heap->held += n;
  return 1;
}

void sim_heap_unhold(sim_heap *heap, size_t n) {
  heap->held -= n;
}

/* Reserved room is counted in addition to the entries. An alarm that is set counts twice, which wastes a few bytes. */
static void push(sim_heap *heap, uint64_t due, uint32_t node, sim_kind kind, void *item) {
  sim_entry entry = {due, ++heap->order, item, node, kind};
  up(heap, heap->size++, entry);
}

int sim_heap_push(sim_heap *heap, uint64_t due, uint32_t node, sim_kind kind, void *item) {
  if (!has_room(heap, 1))
    return 0;
  push(heap, due, node, kind, item);
  return 1;
}

void sim_heap_move(sim_heap *heap, size_t slot, uint64_t due) {
  sim_entry entry = heap->entries[slot - 1];
  entry.due = due;
  entry.order = ++heap->order;
  settle(heap, slot - 1, entry);
}

void sim_heap_remove(sim_heap *heap, size_t slot) {
  size_t i = slot - 1;
  lose_slot(&heap->entries[i]);
  sim_entry last = heap->entries[--heap->size];
  if (i < heap->size)
    settle(heap, i, last);
}

sim_entry sim_heap_pop(sim_heap *heap) {
  sim_entry top = heap->entries[0];
  sim_heap_remove(heap, 1);
  return top;
}

void sim_heap_defer(sim_heap *heap) {
  sim_entry top = heap->entries[0];
  top.due |= SIM_NEVER;
  down(heap, 0, top);
}

void sim_heap_filter(sim_heap *heap, int (*keep)(void *arg, sim_entry *entry), void *arg) {
  size_t kept = 0;
  for (size_t i = 0; i < heap->size; i++) {
    sim_entry entry = heap->entries[i];
    if (keep(arg, &entry))
      put(heap, kept++, &entry);
    else
      lose_slot(&entry);
  }
  heap->size = kept;
  for (size_t i = kept; i-- > 0;)
    down(heap, i, heap->entries[i]);
}

void sim_alarm_set(hv_sim *sim, sim_alarm *alarm, sim_kind kind, uint32_t node, uint64_t due) {
  if (alarm->slot)
    sim_heap_move(&sim->heap, alarm->slot, due);
  else
    push(&sim->heap, due, node, kind, alarm);
}

void sim_alarm_clear(hv_sim *sim, sim_alarm *alarm) {
  if (alarm->slot)
    sim_heap_remove(&sim->heap, alarm->slot);
}

/* ---- pools ---- */

void *sim_pool_take(sim_pool *pool) {
  if (!pool->free) {
    size_t size = (pool->size + 15) / 16 * 16;
    char *chunk = hv_mem_alloc(pool->mem, 16 + CHUNK * size);
    if (!chunk)
      return NULL;
    *(void **)chunk = pool->chunks;
    pool->chunks = chunk;
    for (size_t i = 0; i < CHUNK; i++)
      sim_pool_give(pool, chunk + 16 + i * size);
  }
  void *block = pool->free;
  pool->free = *(void **)block;
  return block;
}

void sim_pool_give(sim_pool *pool, void *block) {
  *(void **)block = pool->free;
  pool->free = block;
}

void sim_pool_fini(sim_pool *pool) {
  while (pool->chunks) {
    void *chunk = pool->chunks;
    pool->chunks = *(void **)chunk;
    hv_mem_free(chunk);
  }
}
