/* How did it go? One list of error codes, and how they read.
 *
 * Room: base (knows nothing). Used by everybody.
 * HV_OK is 0. A function that can fail returns hv_status; one that speaks to a person also takes an
 * `hv_error *` (may be NULL) and leaves there one sentence with the cause and the remedy.
 * What a person reads is UTF-8, whoever wrote it.
 * Threads: pure functions; an hv_error belongs to its caller.
 */
#ifndef HV_BASE_STATUS_H
#define HV_BASE_STATUS_H

#define HV_STATUS_MAP(X)                                                                                                           \
  X(OK, "ok")                                                                                                                      \
  X(NOMEM, "out of memory")                                                                                                        \
  X(BUDGET, "memory budget exceeded")                                                                                              \
  X(INVALID, "invalid argument")                                                                                                   \
  X(MALFORMED, "malformed bytes")                                                                                                  \
  X(CORRUPT, "checksum or signature does not match")                                                                               \
  X(TOO_LARGE, "larger than allowed")                                                                                              \
  X(VERSION, "other protocol version")                                                                                             \
  X(DENIED, "identity refused")                                                                                                    \
  X(PERMISSION, "file permissions refused")                                                                                        \
  X(REFUSED, "connection refused")                                                                                                 \
  X(UNREACHABLE, "no way to the peer")                                                                                             \
  X(TIMEOUT, "timed out")                                                                                                          \
  X(CANCELLED, "cancelled")                                                                                                        \
  X(CLOSED, "closed")                                                                                                              \
  X(BUSY, "busy, try again when told")                                                                                             \
  X(NOT_FOUND, "not found")                                                                                                        \
  X(EXISTS, "already there")                                                                                                       \
  X(IN_USE, "address already in use")                                                                                              \
  X(STATE, "not possible in this state")                                                                                           \
  X(FORKED, "used in a forked child")                                                                                              \
  X(UNSUPPORTED, "not supported")                                                                                                  \
  X(IO, "input or output failed")                                                                                                  \
  X(CRYPTO, "cryptography failed")                                                                                                 \
  X(NOT_FINITE, "a value is not finite")                                                                                           \
  X(INTERNAL, "internal error")

typedef enum hv_status {
#define HV_STATUS_ENUM(name, text) HV_##name,
  HV_STATUS_MAP(HV_STATUS_ENUM)
#undef HV_STATUS_ENUM
      HV_STATUS_COUNT
} hv_status;

/* A status with its sentence. Zero-initialise it; text is always terminated. */
typedef struct hv_error {
  hv_status status;
  char text[1020];
} hv_error;

/* The few words for a status, for example "timed out". Never NULL, also for numbers off the list. */
const char *hv_status_text(hv_status status);

/* The name of a status, for example "TIMEOUT". Never NULL. */
const char *hv_status_name(hv_status status);

/* Makes text UTF-8 in place: each byte that is none becomes '?'. It may have come from a peer, or been cut inside a character. */
void hv_text_mend(char *text);

/* Writes the sentence into err (borrowed, may be NULL) and returns status: `return hv_fail(err, HV_X, "...");` */
hv_status hv_fail(hv_error *err, hv_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
