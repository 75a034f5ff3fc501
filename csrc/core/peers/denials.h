/* The list of denials of a closed swarm: a set of entries, each of which the swarm's key has signed.
 *
 * Room: core (uses msg).
 * Owner: a list is a span that its caller keeps.
 * Thread: pure functions; any.
 * Limits: HV_DENIALS_MAX entries. An entry is left out HV_DENIALS_KEEP_S after the end of what it denies.
 * Rules and layout: docs/design/denials.md.
 */
#ifndef HV_CORE_DENIALS_H
#define HV_CORE_DENIALS_H

#include "core/msg.h"

#define HV_DENIALS_DOMAIN "hv:denial"
#define HV_DENIALS_KEEP_S (7 * 86400)
#define HV_DENIALS_NO_END INT64_MAX /* the denial does not end by itself */

enum { HV_DENIAL_SIGNED = 56 }; /* bytes of an entry that are signed */

typedef struct hv_denial {
  uint8_t subject[32]; /* the key of a peer, or the ID of an invitation and zeros */
  uint64_t number;     /* a random one for each denial; subject and number name an entry */
  int taken_back;      /* 1: a holder has taken this denial back */
  int64_t end_s;       /* end of the invitation in seconds since 1970; HV_DENIALS_NO_END */
} hv_denial;

/* HV_MALFORMED: these bytes are no list. No signature is checked. */
hv_status hv_denials_check(hv_span list);
/* Number of entries, taken back ones included. For this and the functions below a list must have passed hv_denials_check. */
size_t hv_denials_count(hv_span list);
/* Reads the entry with this index. */
void hv_denials_at(hv_span list, size_t index, hv_denial *out);
/* Writes the bytes of an entry that are signed. */
void hv_denials_print(const hv_denial *entry, uint8_t out[HV_DENIAL_SIGNED]);
/* True if the list denies this subject. */
int hv_denials_has(hv_span list, const uint8_t subject[32]);
/* True if `list` has all that `other` has. */
int hv_denials_cover(hv_span list, hv_span other);
/* A number that is equal for equal lists, and else differs. 0: the list is empty. */
uint64_t hv_denials_mark(hv_span list);

/* True if the swarm's key has signed these bytes. */
typedef int hv_denials_verify(void *arg, hv_span bytes, const uint8_t signature[64]);

/* Writes the union of two lists into `out`, which has room for HV_DENIALS_BYTES_MAX, without the entries that have ended by now_s.
 * `mine` is believed; of `theirs` only entries that `mine` has not are verified. *added: entries that `mine` had not, or not taken
 * back. HV_CORRUPT: an entry is not signed by the key, and neither it nor those behind it are taken; HV_TOO_LARGE: `out` is full,
 * and has all of `mine`. */
hv_status hv_denials_merge(hv_span mine, hv_span theirs, int64_t now_s, hv_denials_verify *verify, void *arg, uint8_t *out,
                           size_t *size, size_t *added);

#endif
