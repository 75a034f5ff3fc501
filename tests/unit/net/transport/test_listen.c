/* Why an address cannot be listened on: each error of the system has its status, its cause and its sentence. */
#include "lib/check.h"

#include "net/transport/listen.h"

#include <errno.h>
#include <string.h>

static void every_error_of_the_system_has_its_cause(void **state) {
  (void)state;
  static const struct {
    int error;
    hv_status status;
    hv_cause cause;
  } cases[] = {
      {EADDRINUSE, HV_IN_USE, HV_CAUSE_ADDRESS_IN_USE},  {EACCES, HV_PERMISSION, HV_CAUSE_PORT_NOT_ALLOWED},
      {EPERM, HV_PERMISSION, HV_CAUSE_PORT_NOT_ALLOWED}, {EADDRNOTAVAIL, HV_INVALID, HV_CAUSE_NOT_OWN_ADDRESS},
      {EAFNOSUPPORT, HV_INVALID, HV_CAUSE_NO_IPV6},      {EMFILE, HV_IO, HV_CAUSE_OTHER},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hv_error err = {0};
    assert_int_equal(hv_listen_explain(cases[i].error, "[::1]:80", &err), cases[i].status);
    assert_int_equal(err.cause, cases[i].cause);
    assert_non_null(strstr(err.text, "cannot listen on [::1]:80: "));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_error_of_the_system_has_its_cause)};
  return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
