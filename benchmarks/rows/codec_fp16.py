"""encode to float16 against memcpy of the input, and against hivemind's

512 MB of float32 on one core. `encode`: in chunks of 512 KB as the averager sends them; `encode_whole`: as one chunk. The bound is 1.33: fewer bytes
are written than memcpy writes. `encode_hivemind`: its class on 40 MB against our kernels, their time / ours; `class_..._hivemind`: against our class.
"""

from benchmarks.codecs import against_hivemind, against_memory

GOALS = {"encode": 1.0, "encode_whole": 1.0, "encode_hivemind": 20.0}
ROUNDS = 7


def measure(run):
    against_memory(run, {"encode": ("encode", "float16"), "encode_whole": ("encode", "float16", "--chunk-kb", "0")})
    against_hivemind(run, "float16", "Float16Compression")
