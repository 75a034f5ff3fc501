"""encode to 8 bits by quantiles against memcpy of the input, and against hivemind's

512 MB of float32 on one core. `encode`: in chunks of 512 KB as the averager sends them, each with a code book of its own; `encode_whole`: as one
chunk; `encode_heavy`: of data with tails as 1/x^2. `encode_hivemind`: its class on 40 MB against our
kernels, their time / ours; `class_..._hivemind`: against our class.
"""

from benchmarks.codecs import against_hivemind, against_memory

GOALS = {"encode": 0.25, "encode_whole": 0.25, "encode_heavy": 0.25, "encode_hivemind": 40.0, "error_hivemind": 1.0}
ROUNDS = 7


def measure(run):
    against_memory(
        run,
        {
            "encode": ("encode", "quantile8"),
            "encode_whole": ("encode", "quantile8", "--chunk-kb", "0"),
            "encode_heavy": ("encode", "quantile8", "--data", "heavy"),
        },
    )
    against_hivemind(run, "quantile8", "Quantile8BitQuantization", times=1)
