/* The choice between the sets of kernels, one set for each kind of processor.
 *
 * Room: kern. Code that encodes, decodes or reduces holds a pointer to one set and passes it to each call.
 * Owner: nobody; the sets are constant and nothing is global.
 * Thread: any; pure. Ask once at the start.
 * Every set gives the same bits, so a replica that decodes on one machine equals a replica that decodes on another.
 */
#ifndef HV_KERN_CPU_H
#define HV_KERN_CPU_H

typedef struct hv_kern hv_kern; /* kern/kernels.h; opaque to all but kern */

typedef enum hv_cpu_level {
  HV_CPU_PORTABLE, /* plain C, everywhere: the reference */
  HV_CPU_AVX2,     /* AVX2 and F16C (x86-64-v3) */
  HV_CPU_AVX512,   /* AVX-512 F, BW, DQ, VL, CD and VBMI */
  HV_CPU_LEVELS
} hv_cpu_level;

/* The fastest set that this processor runs. Never NULL. */
const hv_kern *hv_cpu_best(void);

/* The set of one level; NULL when this processor or this build lacks it (HV_CPU_PORTABLE is never NULL). For tests and benchmarks.
 */
const hv_kern *hv_cpu_kern(hv_cpu_level level);

/* "portable", "avx2", "avx512". */
const char *hv_cpu_name(const hv_kern *kern);

#endif
