/* The mapping of message fields: for each struct of msg.h, the fields of the protobuf message that encodes it.
 *
 * Room: net; included once, by wire.c, which defines the macros and uses the table to encode and to decode.
 * PAIR(name, ours, theirs) lists one row for each field of a struct, in the order of the numbers in proto/hivemind.proto, with the
 * limits of msg.h. SHAPE(name) completes it. Optional functions: `said` is called before a message is encoded and may clear
 * fields; `heard` is called after all fields were decoded, sees both structs, and may reject the message.
 * Rows, of which the last argument is the limit: BYTES: bytes. EXACT: bytes of one size, such as a key. MAYBE: the same, or absent
 * (then zeros). ONE: a nested message. LIST: several. ADDR: an address, or none. ADDRS: several. STATUS: a status other than HV_OK.
 * STATUSES: several, HV_OK included. FLAG: 0 or 1. U8, U32, U64, F32: numbers.
 * Thread: any; constants only.
 */
#ifndef HV_NET_WIRE_SHAPES_H
#define HV_NET_WIRE_SHAPES_H

PAIR(card, hv_card, Hv__Card) = {EXACT(card, id, hv_peer_id), FLAG(card, client_mode), ADDRS(card, addrs, HV_CARD_ADDRS_MAX)};
SHAPE(card);

PAIR(refusal, hv_msg_refusal, Hv__Refusal) = {STATUS(refusal, status), BYTES(refusal, text, HV_MSG_TEXT_MAX)};
SHAPE(refusal);

PAIR(hello, hv_msg_hello, Hv__Hello) = {
    ONE(hello, me, card), BYTES(hello, agent, HV_MSG_TEXT_MAX),
    ADDR(hello, you),     LIST(hello, cards, card, HV_CARDS_MAX),
    U64(hello, life),     U64(hello, age_ms),
    U64(hello, denials),
};
SHAPE(hello);

PAIR(echo, hv_msg_echo, Hv__Echo) = {BYTES(echo, bytes, HV_MSG_BLOB_MAX)};
SHAPE(echo);

static const shape leave_shape = {.type = &hv__leave__descriptor};

PAIR(depart, hv_msg_depart, Hv__Depart) = {BYTES(depart, key, HV_MATCH_KEY_MAX), MAYBE(depart, round, uint8_t *), U32(depart, run)};
SHAPE(depart);

PAIR(parcel, hv_msg_parcel, Hv__Parcel) = {U64(parcel, size), U64(parcel, offset), FLAG(parcel, receipt)};
SHAPE(parcel);

PAIR(contact, hv_contact, Hv__Contact) = {EXACT(contact, id, hv_peer_id), BYTES(contact, addrs, HV_CONTACT_ADDRS_MAX)};
SHAPE(contact);

PAIR(record, hv_record, Hv__Record) = {
    BYTES(record, key, HV_RECORD_KEY_MAX),
    BYTES(record, subkey, HV_RECORD_KEY_MAX),
    FLAG(record, has_subkey),
    BYTES(record, value, HV_RECORD_VALUE_MAX),
    U32(record, ttl_ms),
    U32(record, lease_ms),
    U64(record, version),
    MAYBE(record, signer, hv_peer_id),
    MAYBE(record, signature, uint8_t *),
};

/* A record without a signer has no signature, and none of the fields that a signature covers. */
static void record_said(void *theirs) {
  Hv__Record *to = theirs;
  if (hv_peer_is_known((const hv_peer_id *)to->signer.data))
    return;
  to->signer.len = to->signature.len = 0;
  to->lease_ms = 0;
  to->version = 0;
}

static hv_status record_heard(const void *theirs, void *ours) {
  const Hv__Record *from = theirs;
  const hv_record *to = ours;
  int is_signed = hv_peer_is_known(&to->signer),
      by_rights = is_signed ? from->signature.len != 0 : !from->signer.len && !from->signature.len && !to->version && !to->lease_ms;
  return by_rights && (to->has_subkey || !to->subkey.size) ? HV_OK : HV_MALFORMED;
}
SHAPE(record, .said = record_said, .heard = record_heard);

PAIR(find, hv_msg_find, Hv__Find) = {
    EXACT(find, target, hv_hash),
    MAYBE(find, key, hv_hash), /* absent: equal to the target */
    FLAG(find, want_records),
    U8(find, n_contacts, HV_CONTACTS_MAX),
    BYTES(find, me, HV_CONTACT_ADDRS_MAX),
};

static void find_said(void *theirs) {
  Hv__Find *to = theirs;
  if (memcmp(to->key.data, to->target.data, to->key.len) == 0)
    to->key.len = 0;
}

static hv_status find_heard(const void *theirs, void *ours) {
  hv_msg_find *to = ours;
  if (!((const Hv__Find *)theirs)->key.len)
    to->key = to->target;
  return HV_OK;
}
SHAPE(find, .said = find_said, .heard = find_heard);

PAIR(found, hv_msg_found, Hv__Found) = {
    LIST(found, records, record, HV_RECORDS_MAX),
    LIST(found, contacts, contact, HV_CONTACTS_MAX),
};
SHAPE(found);

PAIR(finds, hv_msg_finds, Hv__Finds) = {LIST(finds, finds, find, HV_FINDS_MAX), BYTES(finds, me, HV_CONTACT_ADDRS_MAX)};
SHAPE(finds);

PAIR(founds, hv_msg_founds, Hv__Founds) = {LIST(founds, founds, found, HV_FINDS_MAX)};
SHAPE(founds);

PAIR(store, hv_msg_store, Hv__Store) = {LIST(store, records, record, HV_RECORDS_MAX), BYTES(store, me, HV_CONTACT_ADDRS_MAX)};
SHAPE(store);

PAIR(stored, hv_msg_stored, Hv__Stored) = {
    STATUSES(stored, verdicts, HV_RECORDS_MAX),
    LIST(stored, newer, record, HV_RECORDS_MAX),
};
SHAPE(stored);

PAIR(share, hv_msg_share, Hv__Share) = {
    EXACT(share, round, uint8_t *),          U32(share, member), F32(share, weight), U32(share, view),
    BYTES(share, lacks, HV_SHARE_LACKS_MAX), F32(share, norm),
};
SHAPE(share);

PAIR(chunk, hv_msg_chunk, Hv__Chunk) = {U32(chunk, index), BYTES(chunk, from, HV_CHUNK_FROM_MAX), U32(chunk, view)};
SHAPE(chunk);

PAIR(state, hv_msg_state, Hv__State) = {EXACT(state, digest, hv_hash)};
SHAPE(state);

PAIR(state_wanted, hv_msg_state_wanted, Hv__StateWanted) = {BYTES(state_wanted, prefix, HV_STATE_PREFIX_MAX),
                                                            U64(state_wanted, number)};
SHAPE(state_wanted);

PAIR(dial, hv_msg_dial, Hv__Dial) = {ADDR(dial, addr), FLAG(dial, reached), BYTES(dial, text, HV_MSG_TEXT_MAX)};
SHAPE(dial);

PAIR(present, hv_msg_present, Hv__Present) = {U64(present, life)};
SHAPE(present);

PAIR(ended_peer, hv_ended, Hv__EndedPeer) = {EXACT(ended_peer, id, hv_peer_id), U64(ended_peer, life), U64(ended_peer, ago_ms)};
SHAPE(ended_peer);

PAIR(ended, hv_msg_ended, Hv__Ended) = {LIST(ended, peers, ended_peer, HV_ENDED_MAX)};
SHAPE(ended);
PAIR(denials, hv_msg_denials, Hv__Denials) = {BYTES(denials, list, HV_DENIALS_BYTES_MAX)};
SHAPE(denials);

PAIR(gift, hv_msg_gift, Hv__Gift) = {
    BYTES(gift, prefix, HV_STATE_PREFIX_MAX),
    EXACT(gift, ticket, uint8_t *),
    U64(gift, epoch),
    MAYBE(gift, lineage, uint8_t *),
    U64(gift, size),
    U32(gift, manifest_size),
    EXACT(gift, digest, hv_hash),
};
SHAPE(gift);

PAIR(gift_piece, hv_msg_gift_piece, Hv__GiftPiece) = {FLAG(gift_piece, manifest), U64(gift_piece, offset)};
SHAPE(gift_piece);

PAIR(gift_taken, hv_msg_gift_taken, Hv__GiftTaken) = {FLAG(gift_taken, whole), U64(gift_taken, bytes)};
SHAPE(gift_taken);

PAIR(join, hv_msg_join, Hv__Join) = {
    BYTES(join, key, HV_MATCH_KEY_MAX),
    BYTES(join, epoch, HV_MATCH_EPOCH_MAX),
    EXACT(join, schema, hv_hash),
    U32(join, n_chunks),
    BYTES(join, addrs, HV_CONTACT_ADDRS_MAX),
    FLAG(join, auxiliary),
    U64(join, bandwidth),
    U32(join, expected),
    U32(join, wait_ms),
    U32(join, gather_size),
    BYTES(join, avoid, HV_MATCH_AVOID_MAX * sizeof(hv_peer_id)),
    FLAG(join, stay),
    U32(join, known),
};
SHAPE(join);

static const shape gather_shape = {.type = &hv__gather__descriptor};

PAIR(accepted, hv_msg_accepted, Hv__Accepted) = {U32(accepted, present), U32(accepted, expected)};
SHAPE(accepted);

PAIR(redirect, hv_msg_redirect, Hv__Redirect) = {ONE(redirect, to, contact)};
SHAPE(redirect);

PAIR(disband, hv_msg_disband, Hv__Disband) = {
    STATUS(disband, status),
    BYTES(disband, text, HV_MSG_TEXT_MAX),
    BYTES(disband, schema_text, HV_MATCH_SCHEMA_TEXT_MAX),
    U64(disband, at),
};
SHAPE(disband);

PAIR(match_member, hv_match_member, Hv__MatchMember) = {
    EXACT(match_member, id, hv_peer_id),
    BYTES(match_member, addrs, HV_CONTACT_ADDRS_MAX),
    FLAG(match_member, auxiliary),
    U32(match_member, first),
    U32(match_member, count),
    U32(match_member, gather_size),
};
SHAPE(match_member);

PAIR(begin, hv_msg_begin, Hv__Begin) = {
    EXACT(begin, nonce, uint8_t *),
    U32(begin, leader),
    LIST(begin, members, match_member, HV_MATCH_MEMBERS_MAX),
};
SHAPE(begin);

PAIR(summon, hv_msg_summon, Hv__Summon) = {
    BYTES(summon, key, HV_MATCH_KEY_MAX),
    BYTES(summon, epoch, HV_MATCH_EPOCH_MAX),
    BYTES(summon, addrs, HV_CONTACT_ADDRS_MAX),
    U64(summon, at),
    FLAG(summon, seeks),
    U64(summon, comes),
};
SHAPE(summon);

PAIR(summoned, hv_msg_summoned, Hv__Summoned) = {U8(summoned, state, HV_SUMMONED_KINDS - 1), U64(summoned, at),
                                                 U64(summoned, comes)};
SHAPE(summoned);

PAIR(attend, hv_msg_attend, Hv__Attend) = {EXACT(attend, round, uint8_t *), U32(attend, member), U32(attend, view)};
SHAPE(attend);

PAIR(news, hv_msg_news, Hv__News) = {
    U8(news, what, HV_NEWS_COUNT - 1),       U32(news, view), U32(news, installed),
    BYTES(news, members, HV_CHUNK_FROM_MAX), U64(news, rate),
};
SHAPE(news);

PAIR(progress, hv_msg_progress, Hv__Progress) = {U32(progress, run), U32(progress, depth),
                                                 BYTES(progress, words, HV_ZONE_MSG_BYTES_MAX)};
SHAPE(progress);

PAIR(progress_told, hv_msg_progress_told, Hv__ProgressTold) = {FLAG(progress_told, absent),
                                                               BYTES(progress_told, words, HV_ZONE_MSG_BYTES_MAX)};
SHAPE(progress_told);

/* All kinds of messages. A new one needs a message in the .proto, a PAIR and a SHAPE above, and a line here. */
static const struct kind {
  const shape *shape;
  uint32_t number; /* of its field in the message Envelope */
} kinds[HV_MSG_KINDS] = {
    [HV_MSG_REFUSAL] = {&refusal_shape, HV__ENVELOPE__KIND_REFUSAL},
    [HV_MSG_HELLO] = {&hello_shape, HV__ENVELOPE__KIND_HELLO},
    [HV_MSG_ECHO] = {&echo_shape, HV__ENVELOPE__KIND_ECHO},
    [HV_MSG_LEAVE] = {&leave_shape, HV__ENVELOPE__KIND_LEAVE},
    [HV_MSG_PARCEL] = {&parcel_shape, HV__ENVELOPE__KIND_PARCEL},
    [HV_MSG_FIND] = {&find_shape, HV__ENVELOPE__KIND_FIND},
    [HV_MSG_FOUND] = {&found_shape, HV__ENVELOPE__KIND_FOUND},
    [HV_MSG_STORE] = {&store_shape, HV__ENVELOPE__KIND_STORE},
    [HV_MSG_STORED] = {&stored_shape, HV__ENVELOPE__KIND_STORED},
    [HV_MSG_SHARE] = {&share_shape, HV__ENVELOPE__KIND_SHARE},
    [HV_MSG_CHUNK] = {&chunk_shape, HV__ENVELOPE__KIND_CHUNK},
    [HV_MSG_STATE] = {&state_shape, HV__ENVELOPE__KIND_STATE},
    [HV_MSG_JOIN] = {&join_shape, HV__ENVELOPE__KIND_JOIN},
    [HV_MSG_GATHER] = {&gather_shape, HV__ENVELOPE__KIND_GATHER},
    [HV_MSG_ACCEPTED] = {&accepted_shape, HV__ENVELOPE__KIND_ACCEPTED},
    [HV_MSG_REDIRECT] = {&redirect_shape, HV__ENVELOPE__KIND_REDIRECT},
    [HV_MSG_DISBAND] = {&disband_shape, HV__ENVELOPE__KIND_DISBAND},
    [HV_MSG_BEGIN] = {&begin_shape, HV__ENVELOPE__KIND_BEGIN},
    [HV_MSG_SUMMON] = {&summon_shape, HV__ENVELOPE__KIND_SUMMON},
    [HV_MSG_SUMMONED] = {&summoned_shape, HV__ENVELOPE__KIND_SUMMONED},
    [HV_MSG_ATTEND] = {&attend_shape, HV__ENVELOPE__KIND_ATTEND},
    [HV_MSG_NEWS] = {&news_shape, HV__ENVELOPE__KIND_NEWS},
    [HV_MSG_PROGRESS] = {&progress_shape, HV__ENVELOPE__KIND_PROGRESS},
    [HV_MSG_PROGRESS_TOLD] = {&progress_told_shape, HV__ENVELOPE__KIND_PROGRESS_TOLD},
    [HV_MSG_FINDS] = {&finds_shape, HV__ENVELOPE__KIND_FINDS},
    [HV_MSG_FOUNDS] = {&founds_shape, HV__ENVELOPE__KIND_FOUNDS},
    [HV_MSG_DEPART] = {&depart_shape, HV__ENVELOPE__KIND_DEPART},
    [HV_MSG_STATE_WANTED] = {&state_wanted_shape, HV__ENVELOPE__KIND_STATE_WANTED},
    [HV_MSG_DIAL] = {&dial_shape, HV__ENVELOPE__KIND_DIAL},
    [HV_MSG_PRESENT] = {&present_shape, HV__ENVELOPE__KIND_PRESENT},
    [HV_MSG_ENDED] = {&ended_shape, HV__ENVELOPE__KIND_ENDED},
    [HV_MSG_DENIALS] = {&denials_shape, HV__ENVELOPE__KIND_DENIALS},
    [HV_MSG_GIFT] = {&gift_shape, HV__ENVELOPE__KIND_GIFT},
    [HV_MSG_GIFT_PIECE] = {&gift_piece_shape, HV__ENVELOPE__KIND_GIFT_PIECE},
    [HV_MSG_GIFT_TAKEN] = {&gift_taken_shape, HV__ENVELOPE__KIND_GIFT_TAKEN},
};

#endif
