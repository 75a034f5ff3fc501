/* A peer's word as it travels when a group forms: the list [mark, rank] in MessagePack, as Python packs it.
 *
 * Room: core (uses lineage). Pure.
 * Thread: any.
 * Limits: HV_WORD_MAX bytes. Errors: bytes of another form are no word.
 */
#ifndef HV_CORE_EPOCH_WORD_H
#define HV_CORE_EPOCH_WORD_H

#include "core/epoch/lineage.h"

#define HV_WORD_MAX (3 + HV_MARK_SIZE + 9)

/* The bytes of a peer without a word. */
#define HV_WORD_NONE hv_span_of("\xc0", 1)

/* Returns the number of bytes. */
size_t hv_word_write(const hv_word *word, uint8_t out[HV_WORD_MAX]);
/* Of a stranger. 0: it is no word. */
int hv_word_read(hv_span bytes, hv_word *out);

#endif
