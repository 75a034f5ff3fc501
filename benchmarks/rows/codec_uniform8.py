"""encode to 8 bits uniformly against memcpy of the input, and against hivemind's

512 MB of float32 on one core. `encode`: in chunks of 512 KB as the averager sends them; `encode_whole`: as one chunk, which is read twice.
`encode_hivemind`: its class on 40 MB against our kernels, their time / ours; `class_..._hivemind`: against our class; `error_hivemind`: 1 or more is no worse.
"""

from benchmarks.codecs import against_hivemind, against_memory

GOALS = {"encode": 0.5, "encode_whole": 0.5, "encode_hivemind": 20.0, "error_hivemind": 1.0}
ROUNDS = 7


def measure(run):
    against_memory(run, {"encode": ("encode", "uniform8"), "encode_whole": ("encode", "uniform8", "--chunk-kb", "0")})
    against_hivemind(run, "uniform8", "Uniform8BitQuantization")
