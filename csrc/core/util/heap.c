#include "core/util/heap.h"

#include <stddef.h>

static void put_at(hv_heap_node **where, hv_heap_node *node) {
  *where = node;
  if (node)
    node->where = where;
}

/* Of two heaps, nothing beside them, one; its `where` is the caller's to set. */
static hv_heap_node *meld(hv_heap_node *a, hv_heap_node *b, hv_heap_before *before) {
  if (before(b, a)) {
    hv_heap_node *first = b;
    b = a;
    a = first;
  }
  put_at(&b->next, a->child);
  put_at(&a->child, b);
  return a;
}

/* Of a row of heaps one: by pairs, and then the pairs. */
static hv_heap_node *meld_row(hv_heap_node *row, hv_heap_before *before) {
  hv_heap_node *pairs = NULL, *all = NULL;
  while (row) {
    hv_heap_node *a = row, *b = a->next;
    row = b ? b->next : NULL;
    a->next = NULL;
    if (b) {
      b->next = NULL;
      a = meld(a, b, before);
    }
    a->next = pairs;
    pairs = a;
  }
  while (pairs) {
    hv_heap_node *next = pairs->next;
    pairs->next = NULL;
    all = all ? meld(all, pairs, before) : pairs;
    pairs = next;
  }
  return all;
}

void hv_heap_add(hv_heap_node **top, hv_heap_node *node, hv_heap_before *before) {
  node->child = node->next = NULL;
  put_at(top, *top ? meld(*top, node, before) : node);
}

void hv_heap_remove(hv_heap_node **top, hv_heap_node *node, hv_heap_before *before) {
  hv_heap_node *below = meld_row(node->child, before);
  put_at(node->where, node->next); /* the top has nothing beside it */
  if (below)
    put_at(top, *top ? meld(*top, below, before) : below);
  *node = (hv_heap_node){NULL, NULL, NULL};
}
