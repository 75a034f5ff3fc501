/* The one call of gRPC that C cannot make (contract in acceptor.h). */
#include "net/transport/acceptor.h"

struct grpc_byte_buffer;

namespace grpc_core {

/* As gRPC declares it in a header of its own that it does not install. */
class TcpServerFdHandler {
public:
  virtual ~TcpServerFdHandler() = default;
  virtual void Handle(int listener_fd, int fd, grpc_byte_buffer *read_before) = 0;
};

} // namespace grpc_core

/* In the place of the listening socket. gRPC only hands it on, but refuses a negative one (1.85). */
static const int SOME_LISTENER = 0;

extern "C" void hv_acceptor_take(void *acceptor, int fd) {
  static_cast<grpc_core::TcpServerFdHandler *>(acceptor)->Handle(SOME_LISTENER, fd, nullptr);
}
