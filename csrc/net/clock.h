/* The machine's clocks and the kernel's random bytes.
 *
 * Room: net. The only file that reads clocks or draws random bytes; core gets both through hv_env.
 * Thread: any.
 */
#ifndef HV_NET_CLOCK_H
#define HV_NET_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Monotonic time in us. */
uint64_t hv_clock_us(void);
/* Time in us that the machine has slept since its start, which hv_clock_us does not count. */
uint64_t hv_clock_asleep_us(void);
/* Seconds since 1970, as set on this machine. */
int64_t hv_clock_unix_s(void);
/* Fills out with random bytes. It cannot fail. */
void hv_random(void *out, size_t size);

#endif
