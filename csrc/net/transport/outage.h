/* The status and cause of a failed connection, taken from gRPC's error text.
 *
 * Room: net; private to grpc.c. gRPC reports every failed connection with the code UNAVAILABLE, and only the text has the
 * reason. It differs between versions: tests/unit/net/transport/test_outage.c holds the texts of 1.51 and 1.85.
 * Thread: any; pure functions.
 */
#ifndef HV_NET_OUTAGE_H
#define HV_NET_OUTAGE_H

#include "base/status.h"

/* HV_REFUSED: nothing listens there. HV_UNREACHABLE: no connection was made. HV_CLOSED: a connection was lost. */
hv_status hv_outage_of(const char *text, hv_cause *cause);

#endif
