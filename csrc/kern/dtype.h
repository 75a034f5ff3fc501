/* The element types of tensors.
 *
 * Room: kern; depends on no other module. The numbers are stable, because chunk headers contain them.
 * Thread: any; constants and a pure function.
 */
#ifndef HV_KERN_DTYPE_H
#define HV_KERN_DTYPE_H

#include <stddef.h>
#include <stdint.h>

typedef enum hv_dtype {
  HV_DTYPE_FLOAT32 = 1,
  HV_DTYPE_FLOAT16 = 2,  /* IEEE binary16 */
  HV_DTYPE_BFLOAT16 = 3, /* the upper half of a binary32 */
  HV_DTYPE_FLOAT64 = 4
} hv_dtype;

/* Bytes of one element; 0 for a number off the list. */
static inline size_t hv_dtype_size(int dtype) {
  static const uint8_t sizes[] = {0, 4, 2, 2, 8};
  return dtype > 0 && dtype < (int)sizeof sizes ? sizes[dtype] : 0;
}

#endif
