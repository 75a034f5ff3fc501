/* Operations: requests of a program, from its thread to the hive thread and back.
 *
 * Room: net (uses core/node, future); shared by the hive*.c files only. hivemind_c.h is their contract.
 * Owner: the hive's list holds an operation from its start to its end. Its future outlives it.
 * Thread: made and submitted on the program's thread; started and ended on the hive thread.
 */
#ifndef HV_NET_HIVE_INNER_H
#define HV_NET_HIVE_INNER_H

#include "core/node.h"
#include "net/hive/future.h"

typedef struct hv_hive_op hv_hive_op;
struct hv_hive_op {
  hv_command command;
  hv_hive_op *next, **link;
  hv_hive *hive;
  hv_future *future;
  void (*start)(hv_hive_op *self, hv_node *node);
  void (*cancel)(hv_hive_op *self, hv_node *node); /* NULL: it just ends */
  void (*check)(hv_hive_op *self, hv_node *node);  /* something changed in the node; NULL: not waiting for that */
  hv_payload *payload;
  uint8_t *bytes; /* freed with it */
  void *block;    /* likewise, until it is given away */
  size_t count;
  hv_peer_id peer;
  union {
    hv_node_echo echo;
    hv_parcel_send send;
    struct {
      hv_dht_op op;
      hv_dht_item item;
      hv_env *env;
    } dht;
    struct {
      hv_hive_averager *averager;
      hv_average_step step;
      const hv_average_config *config; /* to make one */
      hv_future *about;                /* the step that is meant; compared only */
      float weight;
      hv_span bits;
      uint64_t reached;
    } average;
    hv_state_offer state_offer;
    hv_state_load state_load;
    struct {
      hv_span prefix;
      int at_once;
      float priority;
    } state_change;
  } u;
};

/* HV_OK, or HV_FORKED: then nothing of the hive may be touched. Asked first by every call of the program's. */
hv_status hv_hive_usable(const hv_hive *hive);
hv_hive_op *hv_hive_new_op(hv_hive *hive, void (*start)(hv_hive_op *self, hv_node *node)); /* NULL: no memory */
/* Sends it to the hive thread and gives out its future. Takes the op, also on failure. */
hv_status hv_hive_submit(hv_hive_op *op, hv_future **out);
void hv_hive_free_op(hv_hive_op *op); /* its future is finished already, or it was never submitted */
/* Each fails the op's future and frees the op. hv_hive_fail_op: the cause is the status' own. */
void hv_hive_fail_op(hv_hive_op *op, hv_status status, const char *text);
void hv_hive_fail_op_by(hv_hive_op *op, hv_status status, hv_cause cause, const char *text);

/* Hands a command to the hive thread; HV_CLOSED: it is still the caller's. */
hv_status hv_hive_post(hv_hive *hive, hv_command *command);

#endif
