/* Questions of a program to the libraries, without a hive (contract in hivemind_c.h). */
#include "hivemind_c.h"

#include "net/ports/ports.h"
#include "net/transport/grpc.h"

int hv_can_open_ports(void) {
  return hv_ports_are_built();
}

const char *hv_grpc_version(void) {
  return hv_grpc_loaded();
}
