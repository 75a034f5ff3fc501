/* All messages between peers, as plain structs.
 *
 * Room: core (uses base, peer, addr). net/wire.c encodes and decodes them; it checks the limits below in both directions.
 * Owner: spans and arrays in a message are borrowed. A message passed to hv_env is read during that call only; a message in an
 * event lives until the end of the event's step.
 * Thread: any; types and constants.
 * Fields and their bytes: docs/design/wire.md.
 */
#ifndef HV_CORE_MSG_H
#define HV_CORE_MSG_H

#include "core/addr.h"
#include "core/peer.h"

#define HV_CARD_ADDRS_MAX 8 /* addresses of one peer */
#define HV_CARDS_MAX 64     /* cards in one message */
#define HV_DENIALS_MAX 1024 /* entries of a list of denials */
#define HV_DENIAL_BYTES 120 /* bytes of an entry */
#define HV_DENIALS_BYTES_MAX (HV_DENIAL_BYTES * HV_DENIALS_MAX)
#define HV_MSG_TEXT_MAX 256                 /* bytes of an error text or agent name */
#define HV_MSG_BLOB_MAX (1u << 20)          /* bytes of one span in a control message */
#define HV_MSG_BYTES_MAX (2u << 20)         /* encoded bytes of a control message */
#define HV_CONTACTS_MAX 32                  /* contacts in one message */
#define HV_CONTACT_ADDRS_MAX 160            /* bytes of a contact's packed addresses */
#define HV_RECORDS_MAX 2048                 /* records in one message */
#define HV_FINDS_MAX 32                     /* FINDs in one message */
#define HV_RECORD_KEY_MAX 1024              /* bytes of a key, and of a subkey */
#define HV_RECORD_VALUE_MAX (1u << 16)      /* bytes of a value */
#define HV_STATE_PREFIX_MAX 512             /* bytes of a prefix of states */
#define HV_MATCH_KEY_MAX 384                /* bytes of a key of matchmaking */
#define HV_MATCH_EPOCH_MAX 64               /* bytes of an epoch's name */
#define HV_MATCH_SCHEMA_TEXT_MAX (1u << 14) /* bytes of a description of tensors */
#define HV_MATCH_AVOID_MAX 16               /* hosts that did not serve a seeker */
#define HV_MATCH_MEMBERS_MAX 256            /* members of a group */
#define HV_ENDED_MAX 32                     /* peers that ended, in one message */
#define HV_BULK_HEADER_MAX (1u << 16)       /* encoded bytes of a bulk header */
#define HV_BULK_PAYLOAD_MAX (4u << 20)      /* payload bytes of one bulk message */

typedef enum hv_msg_kind {
  HV_MSG_NONE,
  HV_MSG_REFUSAL,       /* reply: refused, and the reason */
  HV_MSG_HELLO,         /* request and reply: the sender's card and some cards that it knows */
  HV_MSG_ECHO,          /* request and reply: the same bytes back */
  HV_MSG_LEAVE,         /* request and (empty) reply: the sender ends */
  HV_MSG_PARCEL,        /* stream: a piece of a bulk transfer, or its receipt */
  HV_MSG_FIND,          /* request: the contacts near a point, and the records kept there */
  HV_MSG_FOUND,         /* reply: records, contacts */
  HV_MSG_STORE,         /* request: keep these records */
  HV_MSG_STORED,        /* reply: a verdict for each */
  HV_MSG_SHARE,         /* stream, first: a member's contributions to a span, and the averages back */
  HV_MSG_CHUNK,         /* stream: one chunk, the codes are the payload */
  HV_MSG_STATE,         /* stream, first: the manifest whose bytes are wanted; HV_MSG_CHUNK asks and answers */
  HV_MSG_JOIN,          /* stream, first: asks a host to be in its group (core/match/match.h, also for those below) */
  HV_MSG_GATHER,        /* stream: the sender's data for the group; the bytes are the payload */
  HV_MSG_ACCEPTED,      /* stream: the member may wait here, and the host is alive */
  HV_MSG_REDIRECT,      /* stream: ask another host */
  HV_MSG_DISBAND,       /* stream: refused or dissolved, with the reason; from a member: it leaves */
  HV_MSG_BEGIN,         /* stream: the group; the data of its members is the payload */
  HV_MSG_SUMMON,        /* request: the sender hosts an epoch */
  HV_MSG_SUMMONED,      /* reply: the state of the peer that was summoned */
  HV_MSG_ATTEND,        /* stream, first: a member's stream to the coordinator of its round */
  HV_MSG_NEWS,          /* stream: a report or order on that stream */
  HV_MSG_PROGRESS,      /* request: the progress of a zone of a run (core/progress/zones.h) */
  HV_MSG_PROGRESS_TOLD, /* reply: the sum of that zone */
  HV_MSG_FINDS,         /* request: several FINDs at once */
  HV_MSG_FOUNDS,        /* reply: a FOUND for each, or for as many as fit */
  HV_MSG_DEPART,        /* request and (empty) reply: the sender leaves a key, a round or a run */
  HV_MSG_STATE_WANTED,  /* request: a joiner wants a state; reply: the number of the state that is given (core/state/demand.h) */
  HV_MSG_DIAL,          /* request: call the sender back at an address; reply: whether that was possible (core/peers/reach.h) */
  HV_MSG_PRESENT,       /* stream, first: the sender only dials out, and lives as long as this stream (core/peers/presence.h) */
  HV_MSG_ENDED,         /* on that stream, or request and (empty) reply: peers whose stream ended */
  HV_MSG_DENIALS,       /* request: the sender's list of denials; reply: the union of both (core/peers/spread.h) */
  HV_MSG_GIFT,          /* stream, first: a state that its sender gives to a hub (core/state/gift.h, also for those below) */
  HV_MSG_GIFT_PIECE,    /* stream: the manifest or a chunk of that state, which is the payload */
  HV_MSG_GIFT_TAKEN,    /* stream, back: the hub takes the state; and at the end: it has it whole */
  HV_MSG_KINDS
} hv_msg_kind;

/* A peer's identity and addresses. */
typedef struct hv_card {
  hv_peer_id id;
  uint8_t client_mode; /* 1: cannot be dialled */
  uint8_t n_addrs;
  hv_addr addrs[HV_CARD_ADDRS_MAX];
} hv_card;

typedef struct hv_msg_refusal {
  hv_status status;
  hv_span text; /* one sentence */
} hv_msg_refusal;

typedef struct hv_msg_hello {
  hv_card me;
  hv_span agent;        /* "hivemind_c/0.1.0" */
  hv_addr you;          /* reply only: the caller's address; kind HV_ADDR_NONE if not known */
  const hv_card *cards; /* some peers that the sender knows */
  size_t n_cards;
  uint64_t life;    /* a random number, drawn anew at each start of the node; 0: not given */
  uint64_t age_ms;  /* time since that start */
  uint64_t denials; /* mark of its list of denials (hv_admission_mark); 0: none */
} hv_msg_hello;

typedef struct hv_msg_echo {
  hv_span bytes;
} hv_msg_echo;

/* One transfer is a stream: pieces one way, one receipt back. The bytes are the stream message's payload. */
typedef struct hv_msg_parcel {
  uint64_t size;   /* of the whole transfer */
  uint64_t offset; /* of this piece */
  uint8_t receipt; /* 1: no bytes, `offset` bytes have arrived whole */
} hv_msg_parcel;

/* A node of the DHT. Its addresses follow each other: a byte of length, then a packed address (core/peers/contact.h). */
typedef struct hv_contact {
  hv_peer_id id;
  hv_span addrs; /* HV_CONTACT_ADDRS_MAX bytes at most; none: it cannot be dialled */
} hv_contact;

/* A record of the DHT as it travels; its rules are in core/dht/store.h. */
typedef struct hv_record {
  hv_span key; /* in a FOUND: empty, the asker knows it */
  hv_span subkey;
  hv_span value;
  uint8_t has_subkey; /* an empty subkey is a subkey, too */
  uint32_t ttl_ms;    /* remaining lifetime */
  uint32_t lease_ms;  /* signed: longest lifetime after one signature of its owner */
  uint64_t version;   /* signed: the owner's newest record has the highest */
  hv_peer_id signer;  /* unknown: not signed; lease_ms, version and signature then have no meaning */
  uint8_t signature[64];
} hv_record;

typedef struct hv_msg_find {
  hv_hash target; /* contacts near this */
  hv_hash key;    /* records of this key; usually the same */
  uint8_t want_records;
  uint8_t n_contacts; /* most contacts in the reply */
  hv_span me;         /* the sender's packed addresses; none: it cannot be dialled */
} hv_msg_find;

typedef struct hv_msg_found {
  const hv_record *records;
  size_t n_records;
  const hv_contact *contacts;
  size_t n_contacts;
} hv_msg_found;

typedef struct hv_msg_finds {
  const hv_msg_find *finds; /* without `me` */
  size_t n_finds;
  hv_span me;
} hv_msg_finds;

typedef struct hv_msg_founds {
  const hv_msg_found *founds; /* in the order of the finds; the last may be missing */
  size_t n_founds;
} hv_msg_founds;

typedef struct hv_msg_store {
  const hv_record *records;
  size_t n_records;
  hv_span me;
} hv_msg_store;

typedef struct hv_msg_stored {
  const hv_status *verdicts; /* in the order of the records */
  size_t n_verdicts;
  const hv_record *newer; /* newer records of the same signer that stood in the way; the receiver reads the first only */
  size_t n_newer;
} hv_msg_stored;

#define HV_ROUND_ID_SIZE 16
#define HV_SHARE_LACKS_MAX (1u << 15) /* bytes: a bit for each chunk of a row */
#define HV_CHUNK_FROM_MAX 32          /* bytes: a bit for each member */

typedef struct hv_msg_share {
  uint8_t round[HV_ROUND_ID_SIZE];
  uint32_t member; /* the sender's index in the group's order */
  float weight;    /* samples behind its values; any bits: the owner checks it */
  uint32_t view;   /* of the round */
  float norm;      /* largest L2 norm of a chunk of its values; any bits: the owner checks it; 0: not measured */
  hv_span lacks;   /* a bit for each chunk of the owner's row whose average it lacks; none: all */
} hv_msg_share;

typedef struct hv_msg_state {
  hv_hash digest; /* of the manifest */
} hv_msg_state;

typedef struct hv_msg_chunk {
  uint32_t index; /* in the whole run */
  /* For an average: the members whose values it contains, a bit for each (HV_CHUNK_FROM_MAX bytes). No payload: no average. */
  hv_span from;
  uint32_t view; /* for an average: the view in which it was made */
} hv_msg_chunk;

typedef struct hv_msg_join {
  hv_span key, epoch;
  hv_hash schema; /* hash of all that must be equal in a group */
  uint32_t n_chunks;
  hv_span addrs; /* packed, as in hv_contact; none: it cannot be dialled */
  uint8_t auxiliary;
  uint64_t bandwidth;   /* bytes per second; 0: not known */
  uint32_t expected;    /* group size that is enough; 0: all known peers */
  uint32_t wait_ms;     /* remaining time that it waits */
  uint32_t gather_size; /* bytes of the payload of the HV_MSG_GATHER that follows; 0: none follows */
  hv_span avoid;        /* IDs of hosts that do not serve it, one after another, at most HV_MATCH_AVOID_MAX */
  uint8_t stay;         /* 1: it cannot go elsewhere */
  uint32_t known;       /* peers that it expects to come, itself included, the host not; 0: it has only just begun */
} hv_msg_join;

typedef struct hv_msg_accepted {
  uint32_t present, expected;
} hv_msg_accepted;

typedef struct hv_msg_redirect {
  hv_contact to;
} hv_msg_redirect;

typedef struct hv_msg_disband {
  hv_status status;    /* never HV_OK */
  hv_span text;        /* one sentence */
  hv_span schema_text; /* from a host that averages other tensors: their description */
  uint64_t at;         /* 1 + the number of the others' epoch; 0: not known */
} hv_msg_disband;

typedef struct hv_match_member {
  hv_peer_id id;
  hv_span addrs; /* packed; none: a client */
  uint8_t auxiliary;
  uint32_t first, count; /* its span, in chunks */
  uint32_t gather_size;  /* of its part of the payload */
} hv_match_member;

typedef struct hv_msg_begin {
  uint8_t nonce[HV_ROUND_ID_SIZE]; /* the round's id is a hash over this and all that follows */
  uint32_t leader;
  const hv_match_member *members;
  size_t n_members;
} hv_msg_begin;

typedef struct hv_msg_summon {
  hv_span key, epoch;
  hv_span addrs;  /* the host's, packed */
  uint64_t at;    /* 1 + the number of the host's own epoch; 0: not known */
  uint8_t seeks;  /* 1: it seeks a group there, or has just found none */
  uint64_t comes; /* 1 + the number of the epoch to which it comes next, after it missed a step; 0: it missed none */
} hv_msg_summon;

typedef enum hv_summoned {
  HV_SUMMONED_IDLE,     /* it will come once it seeks */
  HV_SUMMONED_SEEKS,    /* it seeks, or has just found no group */
  HV_SUMMONED_STRANGER, /* it knows no such key */
  HV_SUMMONED_HAD,      /* it has had its group of that epoch */
  HV_SUMMONED_KINDS
} hv_summoned;

typedef struct hv_msg_summoned {
  uint8_t state;  /* hv_summoned */
  uint64_t at;    /* 1 + the number of its epoch; 0: not known */
  uint64_t comes; /* as in hv_msg_summon */
} hv_msg_summoned;

typedef struct hv_msg_attend {
  uint8_t round[HV_ROUND_ID_SIZE];
  uint32_t member; /* the sender's index in the group's order */
  uint32_t view;   /* the highest view that it has promised: it takes part in none before it */
} hv_msg_attend;

/* Reports and orders between members and the coordinator of a round (core/agree/council.h). */
typedef enum hv_news {
  HV_NEWS_TROUBLE,  /* to the coordinator: in `view`, these members are suspected */
  HV_NEWS_ASK,      /* to a member: stop, promise to take part in no view before `view`, and report */
  HV_NEWS_REPORT,   /* to the coordinator: the sender has stopped; `installed` and its members; payload: the chunks that it holds */
  HV_NEWS_PLAN,     /* to a member: the members of `view`; `installed`: the latest that any of them was in; the payload is its
                       plan (core/agree/view.h) */
  HV_NEWS_DONE,     /* to the coordinator: the sender has all averages */
  HV_NEWS_FINISHED, /* to a member: all members have all averages */
  HV_NEWS_OUT,      /* to a member: the round continues without it, or has failed */
  HV_NEWS_HERE, /* the sender knows of this round. `members`: to a member, the live coordinator if it is another one; from a member,
                   the coordinator that it attends because this one was silent, or itself and the members that attend it */
  HV_NEWS_FALSE, /* to the coordinator, before TROUBLE: in `view`, messages of these members to the sender were false */
  HV_NEWS_COUNT
} hv_news;

typedef struct hv_msg_news {
  uint8_t what; /* hv_news */
  uint32_t view;
  uint32_t installed;
  hv_span members; /* a bit for each, HV_CHUNK_FROM_MAX bytes; or none */
  uint64_t rate;   /* of HERE: bytes per second that the owner saw of this sender's first chunks; 0: not known */
} hv_msg_news;

#define HV_ZONE_MSG_BYTES_MAX 1024 /* core/progress/zone_msg.h */

typedef struct hv_msg_progress {
  uint32_t run;
  uint32_t depth; /* depth, in bits, of the zone around the peer that is asked; 256: the peer itself */
  hv_span words;  /* the sums of the asker's own zone of that depth, and those that it passes on */
} hv_msg_progress;

typedef struct hv_msg_progress_told {
  uint8_t absent; /* 1: this node is no contributor */
  hv_span words;
} hv_msg_progress_told;

/* The peer stays, but leaves what is named here. */
typedef struct hv_msg_depart {
  hv_span key;                     /* a key of matchmaking; empty: none */
  uint8_t round[HV_ROUND_ID_SIZE]; /* a round that it has not begun; zeros: none */
  uint32_t run;                    /* a run of core/progress/zones.h; 0: none */
} hv_msg_depart;

typedef struct hv_msg_denials {
  hv_span list; /* empty: none */
} hv_msg_denials;

typedef struct hv_msg_dial {
  hv_addr addr;
  uint8_t reached; /* reply: 1: the peer answered there */
  hv_span text;    /* reply: why it did not; one sentence */
} hv_msg_dial;

typedef struct hv_msg_present {
  uint64_t life; /* hv_msg_hello.life of the sender */
} hv_msg_present;

typedef struct hv_ended {
  hv_peer_id id;
  uint64_t life;   /* the one that ended; 0: not known */
  uint64_t ago_ms; /* time since its stream ended */
} hv_ended;

typedef struct hv_msg_ended {
  const hv_ended *peers;
  size_t n_peers;
} hv_msg_ended;

typedef struct hv_msg_state_wanted {
  hv_span prefix;  /* none in the reply */
  uint64_t number; /* the epoch under which the state is to be offered; of a reply that names another: the one that would count */
} hv_msg_state_wanted;

#define HV_GIFT_TICKET 16  /* bytes */
#define HV_GIFT_LINEAGE 16 /* bytes */

typedef struct hv_msg_gift {
  hv_span prefix;
  uint8_t ticket[HV_GIFT_TICKET];
  uint64_t epoch;
  uint8_t lineage[HV_GIFT_LINEAGE]; /* zeros: not known */
  uint64_t size;                    /* bytes of the image */
  uint32_t manifest_size;
  hv_hash digest; /* of the manifest */
} hv_msg_gift;

typedef struct hv_msg_gift_piece {
  uint8_t manifest; /* 1: the payload is the manifest; 0: a chunk */
  uint64_t offset;  /* of the chunk in the image */
} hv_msg_gift_piece;

typedef struct hv_msg_gift_taken {
  uint8_t whole;  /* 1: all bytes came, and their digests are right */
  uint64_t bytes; /* of the image that came */
} hv_msg_gift_taken;

typedef struct hv_msg {
  hv_msg_kind kind;
  union {
    hv_msg_refusal refusal;
    hv_msg_hello hello;
    hv_msg_echo echo;
    hv_msg_parcel parcel;
    hv_msg_share share;
    hv_msg_chunk chunk;
    hv_msg_progress progress;
    hv_msg_progress_told progress_told;
    hv_msg_state state;
    hv_msg_join join;
    hv_msg_accepted accepted;
    hv_msg_redirect redirect;
    hv_msg_disband disband;
    hv_msg_begin begin;
    hv_msg_summon summon;
    hv_msg_summoned summoned;
    hv_msg_attend attend;
    hv_msg_news news;
    hv_msg_find find;
    hv_msg_found found;
    hv_msg_finds finds;
    hv_msg_founds founds;
    hv_msg_store store;
    hv_msg_stored stored;
    hv_msg_depart depart;
    hv_msg_state_wanted state_wanted;
    hv_msg_dial dial;
    hv_msg_present present;
    hv_msg_ended ended;
    hv_msg_denials denials;
    hv_msg_gift gift;
    hv_msg_gift_piece gift_piece;
    hv_msg_gift_taken gift_taken;
  } u;
} hv_msg;

#endif
