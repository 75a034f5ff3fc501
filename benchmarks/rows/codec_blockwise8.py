"""encode to 8 bits blockwise against memcpy of the input, against hivemind's, and against bitsandbytes itself

512 MB of float32 on one core. `encode`: the dynamic map, in chunks of 512 KB as the averager sends them; `encode_whole`: as one chunk; `linear8`, `linear4`:
blocks of 64 with a scale each, and `..._feedback` with the residual kept. `encode_hivemind`: its class on 40 MB against our kernels, their time / ours;
`class_..._hivemind`: against our class; `bitsandbytes`: its quantize_blockwise against our kernels.
"""

from benchmarks import peers
from benchmarks.codecs import against_hivemind, against_memory
from benchmarks.frame import column
from benchmarks.programs import c_program

GOALS = {"encode": 0.6, "encode_whole": 0.6, "encode_hivemind": 50.0, "bitsandbytes": 3.0, "error_hivemind": 0.99}
ROUNDS = 7

BITSANDBYTES = """
import json, time
import torch
from bitsandbytes.functional import quantize_blockwise
torch.set_num_threads(1)
torch.manual_seed(0)
tensor = torch.randn(10_485_760)
quantize_blockwise(tensor[:100_000], blocksize=4096)
times = []
for _ in range(3):
    begun = time.perf_counter()
    quantize_blockwise(tensor, blocksize=4096)
    times.append(time.perf_counter() - begun)
print(json.dumps({"encode_s": min(times)}))
"""


def measure(run):
    against_memory(
        run,
        {
            "encode": ("encode", "blockwise8"),
            "encode_whole": ("encode", "blockwise8", "--chunk-kb", "0"),
            "linear8": ("encode", "linear8"),
            "linear4": ("encode", "linear4"),
            "linear8_feedback": ("feedback", "linear8"),
            "linear4_feedback": ("feedback", "linear4"),
        },
    )
    against_hivemind(run, "blockwise8", "BlockwiseQuantization")
    kernels = lambda: c_program("bench_codec", "encode", "blockwise8", "--mb", "40")  # noqa: E731
    samples = run.interleave({"kernels": kernels, "bitsandbytes": lambda: peers.python(BITSANDBYTES)}, rounds=3)
    run.ratio("bitsandbytes", column(samples["bitsandbytes"], "encode_s"), column(samples["kernels"], "seconds"))
    run.figure("bitsandbytes_encode_s", column(samples["bitsandbytes"], "encode_s"))
