#include "net/transport/outage.h"

#include <string.h>

/* The first that occurs counts. */
static const struct {
  const char *words;
  hv_status status;
  hv_cause cause;
} sayings[] = {
    {"dns resolution failed", HV_UNREACHABLE, HV_CAUSE_NAME_NOT_FOUND},
    {"errors resolving", HV_UNREACHABLE, HV_CAUSE_NAME_NOT_FOUND},
    {"connection refused", HV_REFUSED, HV_CAUSE_REFUSED},
    {"no route", HV_UNREACHABLE, HV_CAUSE_NO_ROUTE},
    {"unreachable", HV_UNREACHABLE, HV_CAUSE_NO_ROUTE},
    {"resol", HV_UNREACHABLE, HV_CAUSE_NAME_NOT_FOUND},
    {"no address", HV_UNREACHABLE, HV_CAUSE_NAME_NOT_FOUND},
    {"alert protocol version", HV_UNREACHABLE, HV_CAUSE_TLS_VERSION},
    {"alert_protocol_version", HV_UNREACHABLE, HV_CAUSE_TLS_VERSION},
    {"unsupported protocol", HV_UNREACHABLE, HV_CAUSE_TLS_VERSION},
    {"unsupported_protocol", HV_UNREACHABLE, HV_CAUSE_TLS_VERSION},
    {"http1", HV_UNREACHABLE, HV_CAUSE_NOT_A_PEER},
    {"handshake failed", HV_UNREACHABLE, HV_CAUSE_NOT_A_PEER},
    {"timed out", HV_UNREACHABLE, HV_CAUSE_TIMED_OUT},
    {"failed to connect", HV_UNREACHABLE, HV_CAUSE_OTHER},
    {"handshake", HV_UNREACHABLE, HV_CAUSE_OTHER},
};

hv_status hv_outage_of(const char *text, hv_cause *cause) {
  for (size_t i = 0; i < sizeof sayings / sizeof *sayings; i++)
    if (strcasestr(text, sayings[i].words)) {
      *cause = sayings[i].cause;
      return sayings[i].status;
    }
  *cause = HV_CAUSE_CONNECTION_LOST;
  return HV_CLOSED;
}
