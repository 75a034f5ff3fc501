/* The structs of DLPack 1.3, the C interface by which Python libraries share arrays (https://dmlc.github.io/dlpack).
 *
 * Room: bind; used by py_tensor.c alone. Declared here so that the build needs no header of torch. The layouts hold for all of
 * major version 1.
 */
#ifndef HV_BIND_DLPACK_H
#define HV_BIND_DLPACK_H

#include <stdint.h>

#define DLPACK_MAJOR 1u
#define DLPACK_READ_ONLY UINT64_C(1)

typedef struct dlpack_version {
  uint32_t major, minor;
} dlpack_version;

typedef enum dlpack_device_type { DLPACK_CPU = 1, DLPACK_CUDA_HOST = 3, DLPACK_ROCM_HOST = 11 } dlpack_device_type;
typedef enum dlpack_code { DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4 } dlpack_code;

typedef struct dlpack_device {
  int32_t type, index;
} dlpack_device;

typedef struct dlpack_tensor {
  void *data;
  dlpack_device device;
  int32_t n_dims;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides; /* strides in elements; NULL before 1.2: contiguous */
  uint64_t byte_offset;
} dlpack_tensor;

typedef struct dlpack_managed {
  dlpack_tensor tensor;
  void *context;
  void (*deleter)(struct dlpack_managed *self); /* may be NULL */
} dlpack_managed;

typedef struct dlpack_versioned {
  dlpack_version version;
  void *context;
  void (*deleter)(struct dlpack_versioned *self); /* may be NULL */
  uint64_t flags;
  dlpack_tensor tensor;
} dlpack_versioned;

/* The content of the capsule that a type has as its attribute dlpack_exchange_api. Each function returns 0, or -1 with an exception
 * set. */
typedef struct dlpack_exchange {
  dlpack_version version;
  struct dlpack_exchange *older;
  void (*allocate)(void);                                    /* unused here */
  int (*managed_from)(void *object, dlpack_versioned **out); /* the caller calls the deleter of *out */
  int (*object_from)(dlpack_versioned *tensor, void **out);
  int (*tensor_from)(void *object, dlpack_tensor *out); /* *out is valid while the object is alive; may be NULL */
  /* The current stream of a device. */
  int (*stream_of)(int32_t device_type, int32_t device_index, void **out);
} dlpack_exchange;

#endif
