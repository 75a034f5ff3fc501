#include "core/util/table.h"

enum { FIRST_ROOM = 64 };

hv_status hv_table_init(hv_table *table, hv_mem *mem) {
  *table = (hv_table){.mem = mem, .chains = hv_mem_array(mem, FIRST_ROOM, sizeof *table->chains)};
  table->room = table->chains ? FIRST_ROOM : 0;
  return table->chains ? HV_OK : HV_NOMEM;
}

void hv_table_fini(hv_table *table) {
  hv_mem_free(table->chains);
  *table = (hv_table){.mem = table->mem};
}

static void put(hv_table_node **chains, size_t room, hv_table_node *node) {
  size_t to = node->hash & (room - 1);
  node->next = chains[to];
  chains[to] = node;
}

static void grow(hv_table *table) {
  size_t room = table->room * 2;
  hv_table_node **chains = hv_mem_array(table->mem, room, sizeof *chains);
  if (!chains)
    return;
  for (size_t i = 0; i < table->room; i++)
    for (hv_table_node *node = table->chains[i], *next; node; node = next) {
      next = node->next;
      put(chains, room, node);
    }
  hv_mem_free(table->chains);
  table->chains = chains;
  table->room = room;
}

void hv_table_add(hv_table *table, hv_table_node *node, uint64_t hash) {
  node->hash = hash;
  put(table->chains, table->room, node);
  if (++table->n > table->room)
    grow(table);
}

void hv_table_remove(hv_table *table, hv_table_node *node) {
  hv_table_node **at = &table->chains[node->hash & (table->room - 1)];
  while (*at != node)
    at = &(*at)->next;
  *at = node->next;
  *node = (hv_table_node){0};
  table->n--;
}

static hv_table_node *same_from(hv_table_node *node, uint64_t hash) {
  while (node && node->hash != hash)
    node = node->next;
  return node;
}

hv_table_node *hv_table_first(const hv_table *table, uint64_t hash) {
  return same_from(table->chains[hash & (table->room - 1)], hash);
}

hv_table_node *hv_table_next(const hv_table_node *node) {
  return same_from(node->next, node->hash);
}
