/* Marks for ThreadSanitizer where something is given to gRPC and where it comes back on another thread.
 *
 * Room: net. gRPC hands things over safely, but is not built for ThreadSanitizer, which cannot see that. Without the
 * sanitizer the marks do nothing.
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
