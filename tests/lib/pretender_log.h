/* A false log: the averages that a program which lies keeps for absent peers. Used by pretender.c alone. */
#ifndef HV_TESTS_PRETENDER_LOG_H
#define HV_TESTS_PRETENDER_LOG_H

#include "lib/pretender.h"

/* 1: it keeps no true one beside. */
int pretender_log_is_false(const pretender *p);
void pretender_log_opens(pretender *p);
/* It has stepped with an average, from the replica of this mark. */
void pretender_log_adds(pretender *p, const hv_mark *before);

#endif
