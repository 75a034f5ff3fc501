/* Annotations for ThreadSanitizer where an object is passed to gRPC and comes back on another thread.
 *
 * Room: net. gRPC synchronises these accesses, but is not compiled for ThreadSanitizer, which would report false races. Without the
 * sanitizer the macros do nothing.
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
