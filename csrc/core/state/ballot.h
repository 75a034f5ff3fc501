/* Which state does the swarm mean? Announcements, and how they are counted against liars.
 *
 * Room: core (uses msg, peer). Pure; any thread.
 *
 * An announcement is the value of an owned record of the DHT (key PREFIX + ".state", subkey "[owner:PEERID]"), so each signer has
 * one voice.
 *
 * THE RULE. Of n signers that announce anything (the asker's own voice is not counted), a manifest M of epoch E is chosen when
 *   1. more than half of all n announce epoch E or a later one (so a peer that tells the truth has reached it: an epoch that a lone
 *      liar, or any minority, makes up is never looked at),
 *   2. more than half of those who announce exactly E name M,
 *   3. more than a third of all n name M,
 * and E is the newest epoch for which there is such an M. An asker that knows the swarm's epoch (epoch_least) needs no majority to
 * show it: where no more than three announce anything, for 1 more than a third of them is enough. Where there is none: a manifest
 * is chosen also when
 *   4. more than two thirds of all n announce the same epoch with the same lineage;
 * it is the one that most of those name, among equals the first by its digest. That is for replicas that have one history but not
 * the same bits, because they compute on different hardware or came through a lossy codec: a lineage says which averages and steps
 * a state is made of, and is the program's. While honest peers stand at one epoch, no minority is chosen, nor can it prevent the
 * choice. While they are between epochs fewer than a third who lie cannot reach 3 by themselves: M has an honest donor, or there is
 * none for the moment, and the joiner looks again. With n of 1 that one is believed; with 2, one who lies about the epoch's state
 * can prevent a choice, and one who claims an older epoch than the only honest donor wins: two are too few to tell. Rule 4 gives
 * fewer than a third who lie nothing where honest replicas are equal to the bit: of more than two thirds more than half are honest,
 * name one manifest and are the most. Where honest ones differ, liars that are more than each kind of hardware can deceive.
 * Identities cost nothing here, and no authorizer bounds the share of strangers: only the network can keep them off.
 *
 * BYTES of an announcement, little endian: u8 version 2; u64 epoch; 32 digest of the manifest; u64 bytes of the image; f32 priority
 * (finite); 16 lineage (zeros: none is told); then packed addresses (core/peers/contact.h), none when it cannot be dialled: then it
 * is a voice, but no donor. An empty value: withdrawn.
 */
#ifndef HV_CORE_BALLOT_H
#define HV_CORE_BALLOT_H

#include "core/msg.h"

#define HV_BALLOT_LINEAGE 16
#define HV_BALLOT_BYTES_MAX (1 + 8 + 32 + 8 + 4 + HV_BALLOT_LINEAGE + HV_CONTACT_ADDRS_MAX)

typedef struct hv_ballot {
  hv_peer_id signer; /* not in the bytes: the record's */
  uint64_t epoch;
  hv_hash digest;
  uint64_t size;
  float priority; /* donors with more are asked first */
  uint8_t lineage[HV_BALLOT_LINEAGE];
  hv_span addrs; /* borrowed from the bytes */
} hv_ballot;

#define HV_BALLOT_SUBKEY_MAX (HV_PEER_TEXT_MAX + 16)
/* The subkey under which this peer announces; returns its size. */
size_t hv_ballot_subkey(const hv_peer_id *signer, char out[HV_BALLOT_SUBKEY_MAX]);
/* Writes it into out and returns the size. */
size_t hv_ballot_write(const hv_ballot *ballot, uint8_t out[HV_BALLOT_BYTES_MAX]);
/* Reads a stranger's bytes; signer is left alone. HV_MALFORMED, HV_VERSION. */
hv_status hv_ballot_read(hv_span bytes, hv_ballot *out);

/* Counts by the rule; the order of ballots (one for each signer) may be changed. epoch_least: older epochs are not chosen, though
 * their voices count. HV_OK: *out is an index into ballots, one that names what was chosen: of those the
 * middle one by the size it says, which is no lie unless half of them lie. HV_NOT_FOUND: nobody announces anything
 * (of such an epoch). HV_STATE: there is no such majority. */
hv_status hv_ballot_count(hv_ballot *ballots, size_t n, uint64_t epoch_least, size_t *out);

#endif
