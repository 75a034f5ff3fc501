/* Questions of a program to gRPC itself, without a hive (contract in hivemind_c.h). */
#include "hivemind_c.h"

#include "net/transport/grpc.h"

const char *hv_grpc_version(void) {
  return hv_grpc_loaded();
}
