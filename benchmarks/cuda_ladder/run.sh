#!/bin/bash
# Everything that waits for a GPU, in less than ten minutes on a machine with one: builds, tests, compute-sanitizer, figures.
#   benchmarks/cuda_ladder/run.sh [FOLDER]     the results' folder (default: gpu-results)
#   DRY=1 benchmarks/cuda_ladder/run.sh        only says what would be run
# Needs nvcc and NVRTC 12.4 or later (one toolkit has both), a C compiler, python3 with its headers, torch 2.10 or later and pytest. No network, gRPC or OpenSSL.
cd "$(dirname "$0")/../.." || exit 1
out=$(realpath -m "${1:-gpu-results}")
build=build/gpu
[ -n "$DRY" ] && out=$(mktemp -d) && trap 'rm -r "$out"' EXIT
mkdir -p "$out"
export PATH=$PATH:$(ls -d /usr/local/cuda/bin 2>/dev/null) PYTHONUNBUFFERED=1
export LD_LIBRARY_PATH=$(ls -d /usr/local/cuda/lib64 2>/dev/null):$LD_LIBRARY_PATH HIVEMIND_CACHE=$out/cache # NVRTC; where the tests keep kernels
failed=0
# step NAME SECONDS COMMAND...: its output goes to NAME.log, and one line here says how it went
step() {
  local name=$1 most=$2 from=$SECONDS
  shift 2
  [ -n "$DRY" ] && { printf '%s: %s\n' "$name" "$*"; return; }
  if timeout "$most" "$@" > "$out/$name.log" 2>&1; then local how=ok; else local how="FAILED ($?)"; failed=1; fi
  printf '%-22s %-14s %4d s   %s\n' "$name" "$how" $((SECONDS - from)) "$(tail -n 1 "$out/$name.log" | cut -c 1-120)" | tee -a "$out/summary.txt"
}
: > "$out/summary.txt"
step machine 30 bash -c 'nvidia-smi; nvcc --version; python3 -c "import torch; print(torch.__version__, torch.cuda.get_device_name())"'
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 2>/dev/null | tr -d '. ')
arch=${arch:-90}
make_() { make -s -j"$(nproc)" -C csrc OUT=$build CUDA_ARCH="$arch" WARN=-Wall CC="${CC:-cc}" FOREIGN= "$@"; }
export -f make_
export build arch
step build 200 bash -c 'make_ cuda cuda-ladder'
step check 60 csrc/$build/cuda_check
sanitizer=$(command -v compute-sanitizer || ls -d /usr/local/cuda/bin/compute-sanitizer /opt/nvidia/*/compute-sanitizer 2>/dev/null | head -n 1)
for tool in memcheck racecheck initcheck synccheck; do
  step "$tool" 60 "${sanitizer:-compute-sanitizer}" --tool $tool --error-exitcode 3 csrc/$build/cuda_check quick
done
[ -n "$DRY" ] || cp csrc/$build/libhivemind_cuda.so python/hivemind_c/ 2>> "$out/build.log"
small() {
  include=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
  make_ $(cd csrc && find base kern core -name '*.c' | sed "s|\(.*\)\.c|$build/\1.o|") &&
    ${CC:-cc} -std=c11 -O2 -fPIC -shared -D_GNU_SOURCE -pthread -I"$include" -Icsrc -Icsrc/include -Icsrc/bind benchmarks/cuda_ladder/small_module.c \
      csrc/bind/py_error.c csrc/bind/py_tensor.c csrc/bind/py_codec.c csrc/bind/py_cuda.c csrc/$build/{base,kern,core}/*.o -lm -ldl \
      -o csrc/$build/_hivemind_small.abi3.so
}
export -f small
step small 90 bash -c small
step python 120 env PYTHONPATH=csrc/$build:benchmarks/cuda_ladder:python python3 -m pytest -q --noconftest -p small -p no:cacheprovider \
  -k "${TESTS:-gpu and not lost}" tests/py/compression/test_cuda.py
step lowrank 60 bash -c 'make_ lowrank && cp csrc/$build/libhivemind_lowrank.so python/hivemind_c/'
step without-network 120 env PYTHONPATH=csrc/$build:benchmarks/cuda_ladder:python python3 -m pytest -q --noconftest -p small -p no:cacheprovider \
  -k "gpu and (mixed or without_a_kernel or on_a_gpu_a_round)" tests/py/compression/test_cuda_rounds.py tests/py/compression/test_lowrank.py
step rows 150 csrc/$build/cuda_rows
step ladder 60 csrc/$build/cuda_ladder
for row in powersgd micro bitsandbytes_row; do
  step $row 60 env PYTHONPATH=csrc/$build:benchmarks/cuda_ladder:python python3 benchmarks/cuda_ladder/$row.py
done
step goals 10 python3 benchmarks/cuda_ladder/goals.py "$out"
[ -n "$DRY" ] && exit 0
cat "$out/goals.log" >> "$out/summary.txt"
echo "everything is in $out" | tee -a "$out/summary.txt"
exit $failed
