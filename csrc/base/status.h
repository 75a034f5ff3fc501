/* Error codes: the kind of an error (hv_status), its cause (hv_cause), and the sentence for a person (hv_error).
 *
 * Room: base; depends on no other module. Used by all rooms.
 * Owner: an hv_error belongs to its caller.
 * Thread: any; pure functions.
 * Errors: HV_OK is 0. A function that can fail returns hv_status. A function with an `hv_error *` (may be NULL) also leaves
 * one sentence there: "what failed: cause; what to do".
 * A program decides by the codes and never by the sentence. docs/reference/error-causes.md lists the causes.
 * Text for a person is always valid UTF-8 without control characters.
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
  X(INTERNAL, "internal error")                                                                                                    \
  X(NOT_ADMITTED, "not admitted to the swarm")

typedef enum hv_status {
#define HV_STATUS_ENUM(name, text) HV_##name,
  HV_STATUS_MAP(HV_STATUS_ENUM)
#undef HV_STATUS_ENUM
      HV_STATUS_COUNT
} hv_status;

/* Why something failed, where that is finer than the status. The names are public: none changes, new ones are added. */
#define HV_CAUSE_MAP(X)                                                                                                            \
  X(OTHER, "other")                       /* none of those below: the status and the sentence hold all that is known */            \
  X(REFUSED, "refused")                   /* nothing listens at the address */                                                     \
  X(TIMED_OUT, "timed_out")               /* no answer within the time */                                                          \
  X(NO_ROUTE, "no_route")                 /* this machine has no route to the address */                                           \
  X(NAME_NOT_FOUND, "name_not_found")     /* the host name has no address */                                                       \
  X(NOT_A_PEER, "not_a_peer")             /* another program answers at the address */                                             \
  X(TLS_VERSION, "tls_version")           /* the other side offers no version of TLS that this side accepts */                     \
  X(OTHER_PEER, "other_peer")             /* another peer answers than the address names */                                        \
  X(BAD_CERTIFICATE, "bad_certificate")   /* the other side cannot prove its identity */                                           \
  X(CLOCK, "clock")                       /* a certificate is not valid at the time that this machine's clock shows */             \
  X(PROTOCOL_VERSION, "protocol_version") /* the other side speaks another version of the protocol */                              \
  X(CONNECTION_LOST, "connection_lost")   /* there was a connection, and it broke */                                               \
  X(CLOSED, "closed")                     /* the node, averager or tracker is shut down, or the round ended */                     \
  X(UNKNOWN_PEER, "unknown_peer")         /* this node has not met that peer */                                                    \
  X(CLIENT_MODE, "client_mode")           /* the peer is in client mode, so nothing can dial it */                                 \
  X(ADDRESS_IN_USE, "address_in_use")     /* another program listens at the address */                                             \
  X(PORT_NOT_ALLOWED, "port_not_allowed") /* the system does not let this user listen on the port */                               \
  X(NOT_OWN_ADDRESS, "not_own_address")   /* this machine does not have the address to listen on */                                \
  X(NO_IPV6, "no_ipv6")                   /* this machine has no IPv6 */                                                           \
  X(BAD_ADDRESS, "bad_address")           /* an address or a peer ID cannot be read */                                             \
  X(OTHER_TRANSPORT, "other_transport")   /* an address is for another transport than TCP */                                       \
  X(KEY_EXPOSED, "key_exposed")           /* other users may read the identity file */                                             \
  X(BAD_KEY, "bad_key")                   /* the identity file holds no key that can be used */                                    \
  X(MEMORY, "memory")                     /* there is no memory, or the node's limit is reached */                                 \
  X(NOT_INVITED, "not_invited")           /* the swarm is closed, and the peer shows no invitation to it */                        \
  X(INVITATION_ENDED, "invitation_ended") /* the peer's invitation to the swarm has ended */                                       \
  X(DENIED, "denied")                     /* a holder of the swarm's key has denied the peer or its invitation */                  \
  X(BAD_INVITATION, "bad_invitation")     /* a swarm key or an invitation cannot be read */

typedef enum hv_cause {
#define HV_CAUSE_ENUM(name, text) HV_CAUSE_##name,
  HV_CAUSE_MAP(HV_CAUSE_ENUM)
#undef HV_CAUSE_ENUM
      HV_CAUSE_COUNT
} hv_cause;

/* A status with its cause and its sentence. Zero-initialise it; text is always terminated. */
typedef struct hv_error {
  hv_status status;
  hv_cause cause;
  char text[1016];
} hv_error;

/* The few words for a status, for example "timed out". Never NULL, also for numbers off the list. */
const char *hv_status_text(hv_status status);

/* The name of a status, for example "TIMEOUT". Never NULL. */
const char *hv_status_name(hv_status status);

/* The name of a cause, for example "timed_out". Never NULL; "other" for numbers off the list. */
const char *hv_cause_name(hv_cause cause);

/* The cause that follows from a status alone, for example HV_CAUSE_TIMED_OUT; else HV_CAUSE_OTHER. */
hv_cause hv_cause_of(hv_status status);

/* Makes text safe to show, in place: each byte that is no UTF-8, or of a control character (C0, DEL, C1), becomes '?'. It may have
 * come from a peer, or been cut inside a character. A swarm key or an invitation in it is cut. hv_fail and the log do it for all
 * that they show. */
void hv_text_clean(char *text);

/* Writes the sentence into err (borrowed, may be NULL) and returns status: `return hv_fail(err, HV_X, "...");`
 * The cause is the status' own. */
hv_status hv_fail(hv_error *err, hv_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same with a cause; HV_CAUSE_OTHER: the status' own. */
hv_status hv_fail_by(hv_error *err, hv_status status, hv_cause cause, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
