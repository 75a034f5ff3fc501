/* Messages of random contents, of every kind; whether two are the same; and how bytes are read. */
#ifndef HV_TESTS_MSGS_H
#define HV_TESTS_MSGS_H

#include "lib/check.h"

#include "core/msg.h"
#include "core/versions.h"

enum { MSGS_RECORDS = 40, MSGS_FINDS = 5 };

/* A message with the memory it points to. */
typedef struct msgs_sample {
  hv_msg msg;
  hv_card cards[HV_CARDS_MAX];
  hv_record records[MSGS_RECORDS], newer[MSGS_RECORDS];
  hv_contact contacts[HV_CONTACTS_MAX];
  hv_msg_find finds[MSGS_FINDS];
  hv_msg_found founds[MSGS_FINDS];
  hv_status verdicts[MSGS_RECORDS];
  hv_match_member members[HV_MATCH_MEMBERS_MAX];
  hv_ended ended[HV_ENDED_MAX];
  uint8_t bytes[4096];
} msgs_sample;

/* The versions of this code. */
extern const hv_versions msgs_own;

/* Fills s with a message of this kind, within the limits of msg.h. */
void msgs_random(check_rng *rng, hv_msg_kind kind, msgs_sample *s);

/* Fails the test unless both say the same. */
void msgs_assert_same(const hv_msg *a, const hv_msg *b);

/* Reads bytes that stand in a block of exactly their size, so that a sanitizer sees a step beyond, and gives the message back;
 * fails the test if anything of mem is left behind. */
hv_status msgs_read(hv_span bytes, hv_mem *mem, size_t budget);

#endif
