#include "contract/contract_bench.h"

enum { TESTS_MAX = 128 };

static int fits(const contract_fixture *fixture, const contract_test *test) {
  switch (test->when) {
  case WITH_IDENTITY:
    return !fixture->claims_only;
  case WITH_KILL:
    return fixture->kill != NULL;
  case WITH_CUT:
    return fixture->cut != NULL;
  default:
    return 1;
  }
}

int contract_run(const contract_fixture *fixture) {
  const contract_test *const tables[] = {contract_calls, contract_streams, contract_ends, contract_versions};
  struct CMUnitTest tests[TESTS_MAX];
  size_t n = 0;
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const contract_test *test = tables[t]; test->name && n < TESTS_MAX; test++)
      if (fits(fixture, test))
        tests[n++] = (struct CMUnitTest){.name = test->name, .test_func = test->run, .initial_state = (void *)fixture};
  return _cmocka_run_group_tests(fixture->name, tests, n, NULL, NULL);
}
