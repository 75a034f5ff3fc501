"""decode-and-accumulate of each codec against a plain float32 add of the same length

A reducer's work on each contribution: check all of a chunk (its checksum, its parameters, that it is finite), then add weight times value.
The other side is a[i] += b[i], vectorised. 512 MB of float32 sums on one core, chunks of 512 KB.
"""

from benchmarks.codecs import against_memory

CODECS = ("none", "float16", "scaled_float16", "bfloat16", "uniform8", "quantile8", "blockwise8", "linear8", "linear4")
GOALS = {codec: 0.7 for codec in CODECS}
ROUNDS = 5


def measure(run):
    against_memory(run, {codec: ("accumulate", codec) for codec in CODECS})
