/* A server that takes what attackers send, TLS too, and does nothing with it: what an attack costs without a node. */
#ifndef HV_TESTS_SINK_H
#define HV_TESTS_SINK_H

#include "core/addr.h"

/* Listens, prints a line once it does, and serves until the process ends. Returns only if it cannot. */
void sink_run(const hv_addr *at);

#endif
