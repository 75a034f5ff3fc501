/* A device of plain C for core/round/run: its memory is the host's with every bit turned over, so that whoever touches it by the
 * way of plain memory gets nonsense. It counts what passes, and can be told to fail.
 */
#ifndef HV_TESTS_AWAY_H
#define HV_TESTS_AWAY_H

#include "kern/device.h"

enum { AWAY_SUMS = 8 };

typedef struct away_device {
  hv_device table;
  uint64_t encoded, decoded; /* chunks */
  uint64_t raw;              /* values that were read or written as they are */
  uint64_t added, averaged;  /* contributions to its sums; chunks made of those */
  long calls, fail_at;       /* made so far; from this call on all fail with HV_IO: -1 none */
  int plain;                 /* decodes nothing itself: HV_UNSUPPORTED; and has no sums */
  int n_sums;                /* it has so many: AWAY_SUMS */
  void *sums[AWAY_SUMS];
} away_device;

/* For one thread. */
void away_init(away_device *device);
/* A member that stopped in the middle of a round did not give its sums back. */
void away_fini(away_device *device);
/* Takes memory there, or back. */
void away_turn(void *data, size_t bytes);

#endif
