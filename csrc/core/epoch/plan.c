#include "core/epoch/plan.h"

const char *hv_epoch_action_name(hv_epoch_action action) {
  static const char *const names[] = {
#define HV_EPOCH_ACTION_NAME(name, text) #name,
      HV_EPOCH_ACTION_MAP(HV_EPOCH_ACTION_NAME)
#undef HV_EPOCH_ACTION_NAME
  };
  return (unsigned)action < HV_EPOCH_ACTIONS ? names[action] : "?";
}

hv_status hv_epoch_options_check(const hv_epoch_options *o, hv_error *err) {
  if (o->outer && !o->use_local_updates)
    return hv_fail(err, HV_INVALID, "outer_optimizer steps an anchor for local steps: write use_local_updates=True");
  if (o->outer && (o->delay_optimizer_step || o->delay_state_averaging || o->offload))
    return hv_fail(err, HV_INVALID,
                   "outer_optimizer cannot be combined with delay_optimizer_step, delay_state_averaging or offload_optimizer: the "
                   "model steps in each batch, and no state is averaged; remove them");
  if (o->overlap && (!o->outer || o->overlap > 100))
    return hv_fail(err, HV_INVALID,
                   "overlap is the part of an epoch in which batches go on while the difference travels: write a number up to 1, "
                   "with outer_optimizer");
  if (o->delay_grad_averaging && o->use_local_updates)
    return hv_fail(err, HV_INVALID,
                   "delay_grad_averaging cannot be combined with use_local_updates: no gradients are averaged then; remove "
                   "delay_grad_averaging");
  if (o->delay_grad_averaging && !o->delay_optimizer_step && !o->auxiliary)
    return hv_fail(err, HV_INVALID,
                   "delay_grad_averaging=True needs delay_optimizer_step=True: a step cannot come before its gradients; "
                   "remove delay_optimizer_step");
  if (o->delay_optimizer_step && !o->offload && !o->auxiliary)
    return hv_fail(err, HV_INVALID,
                   "a delayed optimizer step works on a copy of the parameters while the model trains on: write "
                   "offload_optimizer=True, optimizer=lambda params: torch.optim.AdamW(params), params=model.parameters()");
  if (o->average_state_every < 1)
    return hv_fail(err, HV_INVALID, "average_state_every must be a number of swarm epochs, 1 or more, not 0");
  return HV_OK;
}

hv_epoch_options hv_epoch_options_of_follower(const hv_epoch_options *these) {
  return (hv_epoch_options){.use_local_updates = these->use_local_updates,
                            .outer = these->outer,
                            .delay_grad_averaging = these->delay_grad_averaging,
                            .auxiliary = 1,
                            .average_state_every = these->average_state_every};
}

static void do_now(hv_epoch_plan *plan, hv_epoch_action action) {
  plan->now[plan->n_now++] = (uint8_t)action;
}

static void do_late(hv_epoch_plan *plan, hv_epoch_action action) {
  plan->late[plan->n_late++] = (uint8_t)action;
}

static void put(hv_epoch_plan *plan, int late, hv_epoch_action action) {
  (late ? do_late : do_now)(plan, action);
}

static hv_epoch_plan plan_batch(const hv_epoch_options *o) {
  hv_epoch_plan plan = {0};
  if (o->auxiliary)
    return plan;
  if (!o->use_local_updates) {
    do_now(&plan, HV_EPOCH_SUM);
    return plan;
  }
  put(&plan, o->delay_optimizer_step, HV_EPOCH_LOCAL_STEP);
  if (o->offload || o->delay_optimizer_step)
    put(&plan, o->delay_optimizer_step, HV_EPOCH_APPLY);
  return plan;
}

/* Gradients, or differences in their place. */
static int averages_gradients(const hv_epoch_options *o) {
  return !o->use_local_updates || o->outer;
}

/* The end of an epoch with gradients. If something is late, so is whatever comes after it, but for COUNT. */
static void plan_gradients(hv_epoch_plan *plan, const hv_epoch_options *o, int averages_state, int alone) {
  int steps_late = o->delay_optimizer_step, state_late = averages_state && o->delay_state_averaging;
  if (!alone)
    put(plan, o->delay_grad_averaging, HV_EPOCH_AVERAGE_GRADIENTS);
  put(plan, steps_late, HV_EPOCH_STEP);
  put(plan, steps_late, HV_EPOCH_SCHEDULE);
  do_now(plan, HV_EPOCH_COUNT);
  if (!steps_late && state_late && o->offload)
    do_now(plan, HV_EPOCH_APPLY); /* the step; the average follows */
  if (averages_state)
    put(plan, steps_late || state_late, HV_EPOCH_AVERAGE_STATE);
  if (steps_late || averages_state || o->offload || o->outer)
    put(plan, steps_late || state_late, HV_EPOCH_APPLY);
}

static hv_epoch_plan plan_end(const hv_epoch_options *o, int alone, int averages_state) {
  hv_epoch_plan plan = {0};
  if (o->auxiliary) {
    if (!alone && averages_gradients(o))
      do_now(&plan, HV_EPOCH_AVERAGE_GRADIENTS);
    if (averages_gradients(o))
      do_now(&plan, HV_EPOCH_COUNT);
    if (averages_state)
      do_now(&plan, HV_EPOCH_AVERAGE_STATE);
    if (!averages_gradients(o)) /* it must not be ahead of those who may come to this round */
      do_now(&plan, HV_EPOCH_COUNT);
  } else if (!averages_gradients(o)) {
    do_now(&plan, HV_EPOCH_SCHEDULE);
    do_now(&plan, HV_EPOCH_COUNT);
    if (averages_state) {
      put(&plan, o->delay_state_averaging, HV_EPOCH_AVERAGE_STATE);
      put(&plan, o->delay_state_averaging, HV_EPOCH_APPLY);
    }
  } else
    plan_gradients(&plan, o, averages_state, alone);
  return plan;
}

hv_epoch_traits hv_epoch_traits_of(const hv_epoch_options *o) {
  hv_epoch_traits traits = {.has_replica = !o->auxiliary,
                            .sums = averages_gradients(o),
                            .local_steps = !o->auxiliary && o->use_local_updates,
                            .carries = o->outer,
                            .lead = o->delay_grad_averaging,
                            .overlap = o->auxiliary ? 0 : o->overlap,
                            .copies = o->offload || o->outer,
                            .every = o->average_state_every,
                            .batch = plan_batch(o)};
  for (int alone = 0; alone <= 1; alone++)
    for (int averages_state = 0; averages_state <= 1; averages_state++)
      traits.ends[alone][averages_state] = plan_end(o, alone, averages_state && !alone);
  return traits;
}

const hv_epoch_plan *hv_epoch_plan_end(const hv_epoch_traits *traits, uint64_t next_epoch, int alone) {
  return &traits->ends[alone != 0][hv_epoch_averages_state_at(traits, next_epoch)];
}

int hv_epoch_averages_state_at(const hv_epoch_traits *traits, uint64_t epoch) {
  return !traits->carries && epoch % traits->every == 0; /* anchors are equal: an average would change no bit */
}

uint64_t hv_epoch_state_number(const hv_epoch_traits *traits, uint64_t epoch) {
  return epoch / traits->every;
}

uint64_t hv_epoch_state_epoch(const hv_epoch_traits *traits, uint64_t epoch) {
  return traits->sums ? epoch : epoch - epoch % traits->every;
}

int hv_epoch_plan_has(const hv_epoch_plan *plan, hv_epoch_action action) {
  for (size_t i = 0; i < HV_EPOCH_PLAN_MAX; i++)
    if ((i < plan->n_now && plan->now[i] == action) || (i < plan->n_late && plan->late[i] == action))
      return 1;
  return 0;
}
