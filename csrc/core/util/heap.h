/* A pairing heap: the first of many elements, each of which may be removed at any time.
 *
 * Room: core (uses mem.h). Allocates nothing: a node is a field of the element that it orders.
 * Thread: that of the code that holds the top. Nothing recurses.
 * Limits: adding costs one comparison; removing costs log n of them, averaged over all operations.
 * Paper: Fredman et al., "The pairing heap: a new form of self-adjusting heap", 1986.
 */
#ifndef HV_CORE_HEAP_H
#define HV_CORE_HEAP_H

#include "base/mem.h"

typedef struct hv_heap_node hv_heap_node;
struct hv_heap_node {
  hv_heap_node *child, *next, **where; /* the first node below; the next one beside; the pointer that points to this node */
};

/* True if a comes before b. One heap always uses the same function. */
typedef int hv_heap_before(const hv_heap_node *a, const hv_heap_node *b);

/* Adds a node (borrowed until it is removed). *top is the first node, NULL if the heap is empty. Among equal nodes any is first.
 * An element whose order changes is removed first and added again. */
void hv_heap_add(hv_heap_node **top, hv_heap_node *node, hv_heap_before *before);
/* Removes a node that is in this heap. */
void hv_heap_remove(hv_heap_node **top, hv_heap_node *node, hv_heap_before *before);

#endif
