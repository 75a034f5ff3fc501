/* What does one message say of several zones? Sums (sum.h) in as few bytes as they need: a message costs some 64 before it says
 * anything, so it says more than one.
 *
 * Room: core (uses sum). Pure values; any thread. Used by zones.
 *
 * The bytes: the speaker's own epoch and 1 more (0: it is in none), then sums until the end. A sum: a byte, 5 bits of its level and
 * 3 of the number of its parts, or 7 for the usual one: a single part, in the speaker's epoch, with all owners in it, each of whom
 * is one contributor and no client. Others go on with the owners that are in no part, twice, and 1 more if contributors and clients
 * follow. Then the parts: the epoch, as a signed difference to the speaker's (not in a usual sum); owners; samples, samples before,
 * thousandths of a sample per second (2 bytes each); 50ths of a second of age. Whole numbers are of 7 bits a byte, lowest first,
 * the highest bit set but in the last. Samples and speeds have 6 bits of exponent and 10 of mantissa, so that they are off by a
 * 1,000th at most, to either side.
 */
#ifndef HV_CORE_WORDS_H
#define HV_CORE_WORDS_H

#include "core/progress/sum.h"

#define HV_WORDS_MAX 9   /* sums in a message */
#define HV_WORDS_MINE 31 /* as a level: the zone that was asked for */

typedef struct hv_word {
  unsigned level;
  hv_sum sum;
} hv_word;

typedef struct hv_words {
  uint64_t epoch; /* the speaker's own, if it is in one */
  int any;
  size_t n;
  hv_word words[HV_WORDS_MAX];
} hv_words;

/* Sums that have no room any more are left out. The number of bytes. */
size_t hv_words_pack(const hv_words *words, uint8_t out[HV_WORDS_BYTES_MAX]);
/* HV_MALFORMED: no such bytes, a number beyond its limit, or numbers that do not fit together. */
hv_status hv_words_unpack(hv_span bytes, hv_words *out);

#endif
