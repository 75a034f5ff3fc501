/* States on demand, on the donor's side: which prefixes this node gives a state of when a joiner wants one, and which number is
 * next.
 *
 * Room: core (uses env, dht, ballot, contact).
 * Owner: state.
 * Thread: the hive thread.
 * Limits: HV_DEMANDS_MAX prefixes. One number of a prefix at a time is the program's, and the next comes no sooner than after a
 * pause as long as that took. For one network HV_DEMAND_BURST sharings begin at once, then one each HV_DEMAND_PERIOD_US.
 * Errors: those of hv_state_wait.done.
 * Rules: docs/design/state.md, "States on demand".
 */
#ifndef HV_CORE_DEMAND_H
#define HV_CORE_DEMAND_H

#include "core/state/state.h"

#define HV_DEMANDS_MAX 64
#define HV_DEMAND_NETWORKS 64 /* networks of askers that are remembered */
#define HV_DEMAND_BURST 8
#define HV_DEMAND_PERIOD_US 2000000ull
#define HV_DEMAND_AHEAD_MS 5000ull /* a number may be so far ahead of the donor's clock */
#define HV_DEMAND_SUFFIX ".state_donors"
#define HV_DEMAND_KEY_MAX (HV_STATE_PREFIX_MAX + sizeof HV_DEMAND_SUFFIX)
#define HV_DEMAND_VALUE_MAX (1 + HV_CONTACT_ADDRS_MAX)

typedef struct hv_demand hv_demand;

typedef struct hv_demands {
  hv_env *env;
  hv_dht *dht;
  hv_demand *first;
  size_t n;
  uint32_t declare_ms;
  char subkey[HV_BALLOT_SUBKEY_MAX];
  size_t subkey_size;
  uint8_t value[HV_DEMAND_VALUE_MAX]; /* of a declaration */
  size_t value_size;
  int started, stopping;
  struct {
    uint64_t network, free_us; /* free_us: when its burst is whole again */
  } networks[HV_DEMAND_NETWORKS];
} hv_demands;

/* env and dht are borrowed until fini. */
void hv_demands_init(hv_demands *demands, hv_env *env, hv_dht *dht, const hv_state_config *config);
/* Frees everything; waits under way end with HV_CLOSED. Only when the world has ended. */
void hv_demands_fini(hv_demands *demands);
/* Begins to declare, with these packed addresses; later: this node has other addresses now. */
void hv_demands_start(hv_demands *demands, hv_span addrs);
/* Ends all waits with HV_CANCELLED, and declares nothing any more. */
void hv_demands_stop(hv_demands *demands);

/* The contract is that of hv_state_wait_start and hv_state_wait_end. */
hv_status hv_demands_wait(hv_demands *demands, hv_state_wait *wait, hv_error *err);
void hv_demands_end(hv_demands *demands, hv_span prefix);
/* Answers HV_MSG_STATE_WANTED. */
void hv_demands_asked(hv_demands *demands, const hv_event *event);

/* Writes the key under which the donors of a prefix are declared; returns its size. */
size_t hv_demand_key(hv_span prefix, uint8_t out[HV_DEMAND_KEY_MAX]);
/* Reads a declaration: *addrs (borrowed) is where its signer can be asked. HV_MALFORMED, HV_VERSION. */
hv_status hv_demand_read(hv_span bytes, hv_span *addrs);

#endif
