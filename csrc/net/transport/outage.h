/* gRPC's text on a connection that failed, as a status and a cause.
 *
 * Room: net; private to grpc.c. gRPC has one code, UNAVAILABLE, for all that can be wrong with a connection. Only its text tells
 * more, and differs from version to version: tests/unit/net/transport/test_outage.c holds what 1.51 and 1.85 say. Thread: a pure
 * function.
 */
#ifndef HV_NET_OUTAGE_H
#define HV_NET_OUTAGE_H

#include "base/status.h"

/* HV_REFUSED: nothing listens there. HV_UNREACHABLE: no connection came about. HV_CLOSED: there was one, and it was lost. */
hv_status hv_outage_of(const char *text, hv_cause *cause);

#endif
