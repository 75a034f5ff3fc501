#include "base/mem.h"
#include "cuda/hv_cuda.h"
#include "cuda/world.h"

static hv_status open_device(int index, const hv_cuda_kit *kit, hv_cuda **out, hv_error *note, hv_error *err) {
  hv_mem *mem = hv_mem_new(NULL, HV_MEM_UNLIMITED);
  hv_cuda *cuda = mem ? hv_mem_alloc(mem, sizeof *cuda) : NULL;
  hv_status status =
      cuda ? hv_cuda_world_open(index, kit, mem, &cuda->world, note, err) : hv_fail(err, HV_NOMEM, "no memory for a GPU's table");
  if (status == HV_OK)
    *out = cuda;
  else
    hv_mem_free(cuda);
  hv_mem_drop(mem); /* it stays as long as its blocks do */
  return status;
}

static void close_device(hv_cuda *cuda) {
  cuda->world.close(cuda->world.self);
  hv_mem_free(cuda);
}

const hv_cuda_api *hv_cuda_api_of(uint32_t version) {
  static const hv_cuda_api api = {
      .device_type = HV_CUDA_DEVICE_TYPE,
      .open = open_device,
      .close = close_device,
      .encode_room = hv_cuda_encode_room,
      .encode = hv_cuda_encode,
      .check_room = hv_cuda_check_room,
      .check = hv_cuda_check,
      .decode = hv_cuda_decode,
      .add = hv_cuda_add,
      .finite = hv_cuda_finite,
      .accumulate = hv_cuda_accumulate,
      .stage_new = hv_stage_new,
      .stage_free = hv_stage_free,
      .send = hv_stage_send,
      .receive = hv_stage_receive,
      .transfers_new = hv_transfers_new,
      .transfers_free = hv_transfers_free,
      .transfers_device = hv_transfers_device,
      .transfers_follow = hv_transfers_follow,
      .transfers_why = hv_transfers_why,
  };
  return version == HV_CUDA_VERSION ? &api : NULL;
}
