/* Which peers may take part in a closed swarm: a peer's membership, and the judgement of it.
 *
 * Room: core (uses env). The world owns an hv_admission (hv_env.admission), verifies signatures, and asks it before it
 * takes a call or a stream. An open swarm has none.
 * Thread: pure functions over values that do not change; any thread.
 * Limits: an invitation counts for HV_ADMISSION_GRACE_S after its end, because clocks differ.
 * Rules: docs/design/invitations.md.
 */
#ifndef HV_CORE_ADMISSION_H
#define HV_CORE_ADMISSION_H

#include "core/env.h"

#define HV_ADMISSION_GRACE_S 3600
#define HV_INVITATION_NAME_MAX 32         /* bytes of a name: letters, digits and "-_." */
#define HV_PROOF_MAX 300                  /* bytes of a proof of membership (net/invitation.h) */
#define HV_SWARM_KEY_TEXT_MAX 64          /* room for the text of a swarm key and its end */
#define HV_INVITE_TEXT_MAX 256            /* room for the text of an invitation and its end */
#define HV_INVITATION_TEXT_MAX 24         /* room for the text of an invitation's ID, "inv-" and 16 hexadecimal digits */
#define HV_ADMISSION_TIME_MAX 32          /* room for the text of a moment */
#define HV_INVITATION_LAST_S 253402300799 /* last moment at which an invitation can end: of the year 9999 */

/* An invitation as its holder and all members know it. Its secret half is with the peers that were invited by it. */
typedef struct hv_invitation {
  hv_peer_id key; /* its public half, whose first 8 bytes are its ID */
  int64_t end_s;  /* seconds since 1970 */
  char name[HV_INVITATION_NAME_MAX + 1];
} hv_invitation;

typedef enum hv_membership_kind {
  HV_MEMBERSHIP_NONE,    /* the peer has shown nothing that is valid for this swarm */
  HV_MEMBERSHIP_INVITED, /* it has an invitation */
  HV_MEMBERSHIP_HOLDER   /* it has the key of the swarm */
} hv_membership_kind;

/* The membership that a peer's certificate proves. */
typedef struct hv_membership {
  hv_membership_kind kind;
  hv_invitation invitation; /* of an invited peer */
} hv_membership;

/* A closed swarm, as one of its members knows it. */
struct hv_admission {
  hv_peer_id swarm; /* public half of the swarm's key */
  hv_membership me;
  hv_span denials; /* the list of denials (core/peers/denials.h), all of whose signatures are right; empty: none */
};

/* A refusal of this node by a peer. */
typedef struct hv_admission_refusal {
  hv_cause cause; /* HV_CAUSE_OTHER: there is none */
  char text[HV_MSG_TEXT_MAX];
} hv_admission_refusal;

/* Remembers the refusal if a hello ended with HV_NOT_ADMITTED. */
void hv_admission_note(hv_admission_refusal *refusal, const hv_event *event);

/* Why this peer is not admitted at now_s (seconds since 1970, by this node's clock). HV_CAUSE_OTHER: it is admitted. admission
 * NULL: the swarm is open, and all are. peer may be NULL: only what it has shown is judged. */
hv_cause hv_admission_judge(const hv_admission *admission, const hv_peer_id *peer, const hv_membership *shown, int64_t now_s);

/* True if this is why a peer is not admitted to a closed swarm. */
static inline int hv_admission_is_cause(hv_cause cause) {
  return cause == HV_CAUSE_NOT_INVITED || cause == HV_CAUSE_INVITATION_ENDED || cause == HV_CAUSE_DENIED;
}

/* The sentence of a refusal, for the refused peer to read. */
void hv_admission_refuse(hv_cause cause, const hv_membership *shown, int64_t now_s, char text[HV_MSG_TEXT_MAX]);
/* The sentence for a peer at `where` that this node does not talk to. */
void hv_admission_explain(hv_cause cause, const char *where, const hv_membership *shown, int64_t now_s, char text[HV_MSG_TEXT_MAX]);

/* A number that is equal for equal lists of denials, and else differs; 0: there is none. admission may be NULL. */
uint64_t hv_admission_mark(const hv_admission *admission);
/* Writes the subject of a denial of an invitation: its ID, and zeros. That of a peer is its key. */
void hv_invitation_subject(const hv_invitation *invitation, uint8_t out[32]);
/* Reads the ID of an invitation as the subject of a denial. False: it is none. */
int hv_invitation_parse(hv_span text, uint8_t out[32]);
/* True if these bytes can be the name of an invitation. An empty one is. */
int hv_invitation_name_is_right(hv_span name);
/* Writes the ID, "inv-3f9a0c1b2d4e5f60", and returns out. */
const char *hv_invitation_print(const hv_invitation *invitation, char out[HV_INVITATION_TEXT_MAX]);
/* Writes how this peer is a member: "inv-3f9a0c1b2d4e5f60 lab-3", "holder" of the key, or nothing, and returns out. */
#define HV_MEMBERSHIP_TEXT_MAX (HV_INVITATION_TEXT_MAX + 1 + HV_INVITATION_NAME_MAX)
const char *hv_membership_print(const hv_membership *shown, char out[HV_MEMBERSHIP_TEXT_MAX]);
/* Writes a moment, "2026-12-04 10:00 UTC", and returns out. */
const char *hv_admission_time(int64_t at_s, char out[HV_ADMISSION_TIME_MAX]);

#endif
