/* A relay on loopback for tests: passes the bytes of each connection on to a port, until it is told to stop, to hold still, to
 * pass less, or to break. */
#ifndef HV_TESTS_RELAY_H
#define HV_TESTS_RELAY_H

#include <stddef.h>
#include <stdint.h>

typedef struct relay relay;

/* Listens on 127.0.0.1 and passes on to 127.0.0.1:to. NULL: it could not. */
relay *relay_new(uint16_t to);
uint16_t relay_port(const relay *r);
/* Holds still: nothing passes, nothing is closed. */
void relay_pause(relay *r, int on);
/* From now on so many bytes a second pass on each connection, each way. */
void relay_limit(relay *r, size_t bytes_per_s);
/* Resets every connection and listens no more. */
void relay_break(relay *r);
void relay_free(relay *r); /* NULL is fine */

#endif
