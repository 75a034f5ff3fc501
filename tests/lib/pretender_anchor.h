/* The hands of a pretended program with an outer optimizer (core/outer): local steps of the model, and steps of the anchor.
 * Used by pretender.c alone. */
#ifndef HV_TESTS_PRETENDER_ANCHOR_H
#define HV_TESTS_PRETENDER_ANCHOR_H

#include "lib/pretender.h"

/* 1: it has done the action, and *ok is the answer; 0: the action is as for any other program. */
int pretender_anchor_does(pretender *p, const hv_epoch_order *order, int *ok);
/* Takes an anchor over: the model stays as far ahead of it as it was of the one before. */
void pretender_anchor_adopts(pretender *p, const void *anchor);
/* A round of differences is over. */
void pretender_anchor_met(pretender *p, const hv_epoch_met *round);

/* pretender.c */
void pretender_fails(pretender *p, const char *format, ...);
/* Writes n values of a usual size that are not its own. */
void pretender_makes_up(pretender *p, float *values, size_t n);

#endif
