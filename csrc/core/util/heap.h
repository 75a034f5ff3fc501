/* Which of many comes first, when each may change or go at any time? A pairing heap of nodes that stand in what they order.
 *
 * Room: core (knows nothing). Pure; allocates nothing; whoever holds the top decides on the thread. Adding costs a comparison, a
 * removal log n of them on average over all that was done; nothing recurses.
 * Fredman et al., "The pairing heap: a new form of self-adjusting heap", 1986.
 */
#ifndef HV_CORE_HEAP_H
#define HV_CORE_HEAP_H

typedef struct hv_heap_node hv_heap_node;
struct hv_heap_node {
  hv_heap_node *child, *next, **where; /* the first below it; beside it; what points to it */
};

/* 1: a comes before b. The same for all calls with one heap. */
typedef int hv_heap_before(const hv_heap_node *a, const hv_heap_node *b);

/* *top is the first, NULL in an empty heap; it stays where it is in memory. Of equal ones any is first. What changes its place in
 * the order is removed and added again. */
void hv_heap_add(hv_heap_node **top, hv_heap_node *node, hv_heap_before *before);
void hv_heap_remove(hv_heap_node **top, hv_heap_node *node, hv_heap_before *before); /* it is in this heap */

#endif
