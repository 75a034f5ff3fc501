/* Functions that the bindings of core/epoch share.
 *
 * Room: bind. Thread: each with the GIL held, which is the lock of the objects.
 * Errors: a function that returns int returns -1 with an exception set, where nothing else is said.
 */
#ifndef HV_BIND_EPOCH_H
#define HV_BIND_EPOCH_H

#include "bind.h"

#include "core/epoch/facts.h"

/* An env that hashes, and can do nothing else. */
hv_env bind_hashing(void);

/* The members of a group. */
typedef struct bind_members {
  hv_lineage_member *list;
  size_t n;
} bind_members;

/* Reads a sequence of (peer, is_client, is_auxiliary, word as bytes) into memory that bind_members_fini frees. */
int bind_members_init(bind_state *state, PyObject *sequence, bind_members *out);
void bind_members_fini(bind_members *members);

/* The averagings of a round, and the members of all of them. */
typedef struct bind_parts {
  hv_average_outcome *list;
  hv_average_member *members;
  size_t n;
} bind_parts;

/* Reads a tuple of results of averagings, from which it borrows, into memory that bind_parts_fini frees, also after an error. */
int bind_parts_init(PyObject *tuple, bind_parts *out);
void bind_parts_fini(bind_parts *parts);

/* Reads bytes of the size of a mark. False: they are something else, and no exception is set. */
int bind_mark(PyObject *object, hv_mark *out);
/* The numbers of a sequence, 8 bytes each, in memory that the caller frees with PyMem_Free. NULL: an exception is set. */
uint64_t *bind_numbers(PyObject *sequence, size_t *out_n);

/* Of a Lineage, a SampleLedger, an EpochPlan, a Progress (NULL: it was made before fork()). */
hv_lineage *bind_lineage_of(PyObject *object);
hv_epoch_ledger *bind_ledger_of(PyObject *object);
const hv_epoch_options *bind_plan_options(PyObject *object);
hv_hive_progress *bind_progress_of(PyObject *object);
/* Lets a Lineage digest the state, if its mark is not known. */
int bind_lineage_know(PyObject *lineage);

#endif
