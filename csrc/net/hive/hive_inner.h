/* Operations: a program's requests to its node, which run on the hive thread and finish a future.
 *
 * Room: net (uses core/node, future); private to hive*.c. hivemind_c.h is their contract. hive.c has what all operations share; the
 * other files have one kind each, and hive.c calls none of them.
 * Owner: the hive's list owns an operation from its start to its end. Its future has its own references.
 * Thread: created and submitted on the program's thread; started and ended on the hive thread.
 */
#ifndef HV_NET_HIVE_INNER_H
#define HV_NET_HIVE_INNER_H

#include "core/node.h"
#include "net/hive/closed.h"
#include "net/hive/future.h"
#include "net/transport/loop.h"

typedef struct hv_hive_op hv_hive_op;
struct hv_hive_op {
  hv_command command;
  hv_hive_op *next, **link;
  hv_hive *hive;
  hv_future *future;
  void (*start)(hv_hive_op *self, hv_node *node);
  void (*cancel)(hv_hive_op *self, hv_node *node); /* NULL: the operation only fails with HV_CANCELLED */
  void (*check)(hv_hive_op *self, hv_node *node);  /* called after a change in the node; NULL: not needed */
  hv_payload *payload;
  uint8_t *bytes; /* freed with the operation */
  void *block;    /* also freed with it, unless it became the result */
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
      const hv_average_config *config; /* of an averager to create */
      hv_future *about;                /* the future of the step that is meant; compared, not used */
      float weight;
      hv_span text; /* group bits, or a setup; the program waits, and keeps it */
      uint64_t reached;
    } average;
    struct {
      hv_hive_follower *follower;
      const hv_hive_follower_config *config; /* of one to open: the program waits, and keeps it */
      hv_hive_count *count;                  /* the same, of one that is asked */
    } follow;
    struct {
      hv_hive_step_log *log;
      void *request; /* the program waits, and keeps it */
    } log;
    hv_span denials;         /* the program waits, and keeps them */
    uint64_t upload_rate;    /* bytes per second */
    hv_credentials *renewed; /* the program waits; taken, or still the program's */
    hv_state_offer state_offer;
    hv_state_load state_load;
    hv_state_wait state_wait;
    hv_state_want state_want;
    hv_gift_wait gift_wait;
    hv_gift_give gift_give;
    hv_gift_take gift_take;
    struct {
      hv_span prefix;
      hv_gift_figures figures; /* trainers: in `block` */
      uint64_t every, size_max;
    } gift_follow;
    struct {
      hv_span prefix;
      int at_once;
      float priority;
    } state_change;
  } u;
};

/* HV_OK, or HV_FORKED in a child process, where the hive must not be used. Every public function asks this first. */
hv_status hv_hive_usable(const hv_hive *hive);
hv_hive_op *hv_hive_new_op(hv_hive *hive, void (*start)(hv_hive_op *self, hv_node *node)); /* NULL: no memory */
/* Sends an operation to the hive thread and returns its future. Takes the operation, also on failure. */
hv_status hv_hive_submit(hv_hive_op *op, hv_future **out);
/* The same, and waits for the answer. NULL: HV_NOMEM. */
hv_status hv_hive_ask(hv_hive_op *op, hv_error *err);
void hv_hive_free_op(hv_hive_op *op); /* its future is finished, or it was never submitted */
/* Ends an operation without a result: well, or with a failure. */
void hv_hive_end_op(hv_hive_op *op, hv_status status, const char *text);
/* Each fails the future and frees the operation. hv_hive_fail_op: with the cause that follows from the status. */
void hv_hive_fail_op(hv_hive_op *op, hv_status status, const char *text);
void hv_hive_fail_op_by(hv_hive_op *op, hv_status status, hv_cause cause, const char *text);

/* Its place in a closed swarm. */
hv_closed *hv_hive_closed(hv_hive *hive);
hv_loop *hv_hive_loop(hv_hive *hive);
/* The averager's own, which only the hive thread may use. */
hv_average *hv_hive_averager_core(hv_hive_averager *averager);
/* The averages that its last step kept, which the caller releases; NULL: none, or they were taken. On the hive thread. */
hv_payload *hv_hive_averager_take_kept(hv_hive_averager *averager);

/* Posts a command to the hive thread. HV_CLOSED: it still belongs to the caller. */
hv_status hv_hive_post(hv_hive *hive, hv_command *command);

#endif
