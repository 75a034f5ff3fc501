#include "net/outage.h"

#include <string.h>

hv_status hv_outage_of(const char *text) {
  if (strcasestr(text, "connection refused"))
    return HV_REFUSED;
  static const char *const unreachable[] = {"failed to connect", "unreachable", "no route", "resol",
                                            "no address",        "timed out",   "handshake"};
  for (size_t i = 0; i < sizeof unreachable / sizeof *unreachable; i++)
    if (strcasestr(text, unreachable[i]))
      return HV_UNREACHABLE;
  return HV_CLOSED;
}
