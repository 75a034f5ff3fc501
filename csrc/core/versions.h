/* Which versions of the protocol a peer speaks, and the rule by which two peers choose one.
 *
 * Room: core (uses base). Pure functions; no state.
 * Thread: any.
 * Limits: versions are 1 to HV_VERSIONS_MAX. Feature bits that this node does not know are kept and have no effect.
 * Rules: docs/design/wire.md, "Versions".
 */
#ifndef HV_CORE_VERSIONS_H
#define HV_CORE_VERSIONS_H

#include "base/buf.h"

/* The versions that this code can write and read. */
#define HV_PROTOCOL_LOWEST 1u
#define HV_PROTOCOL_HIGHEST 1u
/* The feature bits that this code has. */
#define HV_FEATURE_STATE_WANTED 1ull /* it answers HV_MSG_STATE_WANTED */
#define HV_FEATURE_DIAL 2ull         /* it answers HV_MSG_DIAL */
#define HV_FEATURE_PRESENT 4ull      /* it takes HV_MSG_PRESENT and HV_MSG_ENDED */
#define HV_FEATURE_GIFT 16ull        /* it takes HV_MSG_GIFT */
#define HV_FEATURE_DENIALS 256ull    /* it answers HV_MSG_DENIALS with the union of two lists */
#define HV_PROTOCOL_FEATURES (HV_FEATURE_STATE_WANTED | HV_FEATURE_DIAL | HV_FEATURE_PRESENT | HV_FEATURE_DENIALS | HV_FEATURE_GIFT)

#define HV_VERSIONS_MAX 65535u
#define HV_VERSIONS_TEXT_MAX 256 /* bytes of a sentence about two peers, with its end */

typedef struct hv_versions {
  uint32_t lowest, highest; /* the versions that it speaks */
  uint64_t features;        /* a bit for each */
} hv_versions;

/* The versions and features of this code. */
hv_versions hv_versions_own(void);
/* The versions of a peer that names only that of its message. */
hv_versions hv_versions_plain(uint32_t version);
/* True if 1 <= lowest <= highest <= HV_VERSIONS_MAX. */
int hv_versions_valid(const hv_versions *versions);
int hv_versions_equal(const hv_versions *a, const hv_versions *b);
/* True if this version is one of them. */
int hv_versions_has(const hv_versions *versions, uint32_t version);

/* The highest version that both speak. 0: there is none. */
uint32_t hv_versions_common(const hv_versions *a, const hv_versions *b);

/* The version that most of these n peers speak, among equals the highest. *speak (may be NULL): how many speak it. 0: there are
 * none. */
uint32_t hv_versions_of_most(const hv_versions *peers, size_t n, size_t *speak);

/* The sentence for two peers without a common version. `peer` speaks `theirs`, and this node `mine`. */
void hv_versions_explain(const char *peer, const hv_versions *theirs, const hv_versions *mine, char text[HV_VERSIONS_TEXT_MAX]);
/* The same sentence in a refusal, for the caller to read. */
void hv_versions_refuse(const hv_versions *mine, const hv_versions *caller, char text[HV_VERSIONS_TEXT_MAX]);

#endif
