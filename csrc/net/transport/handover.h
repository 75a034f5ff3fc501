/* Who may touch this now? Marks for what goes through gRPC from one thread to another.
 *
 * Room: net (knows nothing). gRPC hands things over safely, but it is not built for ThreadSanitizer, which therefore cannot see it:
 * where something is given to gRPC and where it comes back, it is told. Without that sanitizer these say nothing.
 */
#ifndef HV_NET_HANDOVER_H
#define HV_NET_HANDOVER_H

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define GIVEN_TO_GRPC(pointer) __tsan_release(pointer)
#define BACK_FROM_GRPC(pointer) __tsan_acquire(pointer)
#else
#define GIVEN_TO_GRPC(pointer) (void)(pointer)
#define BACK_FROM_GRPC(pointer) (void)(pointer)
#endif

#endif
