/* Events that upset a pretended program: errors of its actions, gradients that overflow, checkpoints, a wish for the swarm's state.
 * Used by pretender.c alone. */
#ifndef HV_TESTS_PRETENDER_UPSET_H
#define HV_TESTS_PRETENDER_UPSET_H

#include "lib/pretender.h"

/* 1: the action raised an error, and has not happened. */
int pretender_breaks(pretender *p, const hv_epoch_order *order);
/* 1: the batch that is ready counts for nothing, or waits. */
int pretender_batch_is_upset(pretender *p);
/* Between two batches. 1: its machine has heard of something. */
int pretender_is_upset(pretender *p);

#endif
