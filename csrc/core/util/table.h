/* A hash table by chains, which grows with what it holds.
 *
 * Room: core (uses mem). Allocates the chains alone: a node is a field of the element that it finds.
 * Thread: that of the code that holds the table.
 * Limits: none; without memory for more chains, the chains grow longer.
 */
#ifndef HV_CORE_TABLE_H
#define HV_CORE_TABLE_H

#include "base/mem.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct hv_table_node hv_table_node;
struct hv_table_node {
  hv_table_node *next; /* in its chain */
  uint64_t hash;
};

typedef struct hv_table {
  hv_mem *mem;
  hv_table_node **chains; /* all of them may be walked */
  size_t room, n;         /* chains, a power of two; nodes */
} hv_table;

/* HV_NOMEM: nothing to fini, and no chains to walk. */
hv_status hv_table_init(hv_table *table, hv_mem *mem);
void hv_table_fini(hv_table *table); /* does not access the elements; a table of zeros is fine */

/* Adds a node (borrowed until it is removed) under a hash. For keys that strangers choose, hash by core/util/fold.h. */
void hv_table_add(hv_table *table, hv_table_node *node, uint64_t hash);
/* Removes a node that is in this table. */
void hv_table_remove(hv_table *table, hv_table_node *node);

/* The first node under a hash, the newest one as long as the table has not grown; NULL: none. */
hv_table_node *hv_table_first(const hv_table *table, uint64_t hash);
/* The next node under the same hash; NULL: none. */
hv_table_node *hv_table_next(const hv_table_node *node);

#endif
