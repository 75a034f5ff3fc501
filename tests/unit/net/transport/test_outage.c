/* The words of several versions of gRPC on connections that fail. */
#include "lib/check.h"

#include "net/transport/outage.h"

typedef struct saying {
  const char *text;
  hv_status status;
  hv_cause cause;
} saying;

/* Heard from gRPC core 1.51 (Debian's, and grpcio 1.51.3). */
static const saying of_1_51[] = {
    {"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:47585: Failed to connect to remote host: Connection "
     "refused",
     HV_REFUSED, HV_CAUSE_REFUSED},
    {"failed to connect to all addresses; last error: UNKNOWN: ipv6:%5B2001:db8::1%5D:80: Failed to connect to remote host: No "
     "route "
     "to host",
     HV_UNREACHABLE, HV_CAUSE_NO_ROUTE},
    {"DNS resolution failed for no-such-host.invalid:80: C-ares status is not ARES_SUCCESS qtype=AAAA name=no-such-host.invalid "
     "is_balancer=0: Domain name not found",
     HV_UNREACHABLE, HV_CAUSE_NAME_NOT_FOUND},
    {"failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:33359: Socket closed", HV_UNREACHABLE,
     HV_CAUSE_OTHER},
    {"failed to connect to all addresses; last error: INTERNAL: ipv4:127.0.0.1:56817: Trying to connect an http1.x server",
     HV_UNREACHABLE, HV_CAUSE_NOT_A_PEER},
    {"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:33977: connection attempt timed out before receiving "
     "SETTINGS frame",
     HV_UNREACHABLE, HV_CAUSE_TIMED_OUT},
    {"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:39269: Ssl handshake failed: SSL_ERROR_SSL: "
     "error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER",
     HV_UNREACHABLE, HV_CAUSE_NOT_A_PEER},
    {"failed to connect to all addresses; last error: UNKNOWN: ipv4:224.0.0.1:9: Network is unreachable", HV_UNREACHABLE,
     HV_CAUSE_NO_ROUTE},
    {"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:38881: Tls handshake failed: SSL_ERROR_SSL: "
     "error:0A00042E:SSL routines::tlsv1 alert protocol version",
     HV_UNREACHABLE, HV_CAUSE_TLS_VERSION},
    {"Socket closed", HV_CLOSED, HV_CAUSE_CONNECTION_LOST},
};

/* Heard from gRPC core 1.85.1 (grpcio of that version), asked in the same ways. */
static const saying of_1_85[] = {
    {"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:40815: Failed to connect to remote host: Connection "
     "refused",
     HV_REFUSED, HV_CAUSE_REFUSED},
    {"failed to connect to all addresses; last error: UNKNOWN: ipv6:%5B::1%5D:40815: Failed to connect to remote host: Connection "
     "refused",
     HV_REFUSED, HV_CAUSE_REFUSED},
    {"failed to connect to all addresses; last error: UNKNOWN: ipv6:%5B2001:db8::1%5D:80: Failed to connect to remote host: "
     "getsockopt(SO_ERROR): No route to host",
     HV_UNREACHABLE, HV_CAUSE_NO_ROUTE},
    {"errors resolving no-such-host.invalid:80: [field:hostname lookup error:address lookup failed for no-such-host.invalid:80: "
     "Domain name not found]",
     HV_UNREACHABLE, HV_CAUSE_NAME_NOT_FOUND},
    {"failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:50945: recvmsg:Connection reset by peer (104)",
     HV_UNREACHABLE, HV_CAUSE_OTHER},
    {"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:34549: connection attempt timed out before receiving "
     "SETTINGS frame",
     HV_UNREACHABLE, HV_CAUSE_TIMED_OUT},
    {"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:49421: Tls handshake failed (TSI_PROTOCOL_FAILURE): "
     "SSL_ERROR_SSL: error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER: Invalid certificate verification context: "
     "OK",
     HV_UNREACHABLE, HV_CAUSE_NOT_A_PEER},
    {"failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:52923: Handshake read failed (Socket closed)",
     HV_UNREACHABLE, HV_CAUSE_OTHER},
    {"Stream removed (Socket closed)", HV_CLOSED, HV_CAUSE_CONNECTION_LOST},
};

static void hear(const saying *sayings, size_t n) {
  for (size_t i = 0; i < n; i++) {
    hv_cause cause = HV_CAUSE_COUNT;
    hv_status status = hv_outage_of(sayings[i].text, &cause);
    if (status != sayings[i].status || cause != sayings[i].cause)
      fail_msg("%s by %s, not %s by %s: %s", hv_status_name(status), hv_cause_name(cause), hv_status_name(sayings[i].status),
               hv_cause_name(sayings[i].cause), sayings[i].text);
  }
}

static void messages_of_gRPC_1_51_are_understood(void **state) {
  (void)state;
  hear(of_1_51, sizeof of_1_51 / sizeof *of_1_51);
}

static void messages_of_gRPC_1_85_are_understood(void **state) {
  (void)state;
  hear(of_1_85, sizeof of_1_85 / sizeof *of_1_85);
}

static void refused_stream_is_not_reported_as_a_closed_port(void **state) {
  (void)state;
  hv_cause cause;
  assert_int_equal(hv_outage_of("Stream refused by server", &cause), HV_CLOSED);
  assert_int_equal(hv_outage_of("http2 error: REFUSED_STREAM", &cause), HV_CLOSED);
  assert_int_equal(cause, HV_CAUSE_CONNECTION_LOST);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_of_gRPC_1_51_are_understood),
      cmocka_unit_test(messages_of_gRPC_1_85_are_understood),
      cmocka_unit_test(refused_stream_is_not_reported_as_a_closed_port),
  };
  return cmocka_run_group_tests_name("outage", tests, NULL, NULL);
}
