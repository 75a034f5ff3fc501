"""Shared by the codec rows: benchmarks/c/bench_codec against memcpy and add, and the public classes against hivemind's."""

from __future__ import annotations

from typing import Dict, Sequence

from benchmarks import peers
from benchmarks.frame import Run, column
from benchmarks.programs import build_c, c_program, our_python

#: 512 MB is far beyond the caches; chunks of 512 KB are what the averager sends, and 0 is one chunk of everything.
MEGABYTES = "512"

#: Encode and decode 40 MB of normal float32 with one thread, and say how far off it came back.
CLASSES = """
import json, sys, time
import torch
from {package}.compression import {name}, CompressionInfo
torch.set_num_threads(1)
torch.manual_seed(0)
tensor = torch.randn(10_000_000)
codec, info = {name}(), CompressionInfo.from_tensor(tensor)
codec.extract(codec.compress(tensor[:100_000], CompressionInfo.from_tensor(tensor[:100_000])))
encode_s, decode_s = [], []
for _ in range({times}):
    begun = time.perf_counter()
    packed = codec.compress(tensor, info)
    encoded = time.perf_counter()
    back = codec.extract(packed)
    encode_s.append(encoded - begun)
    decode_s.append(time.perf_counter() - encoded)
size = len(packed.buffer)
error = ((tensor - back).double().norm() / tensor.double().norm()).item()
print(json.dumps({{"encode_s": min(encode_s), "decode_s": min(decode_s), "bits": 8 * size / tensor.numel(), "relative_error": error}}))
"""


def bench(what: str, codec: str, *options: str) -> Dict[str, float]:
    """Three rounds of A-B-B-A in one process; gb_per_s is ours, against_gb_per_s memcpy's or the add's."""
    sample = c_program("bench_codec", what, codec, "--mb", MEGABYTES, "--rounds", "3", *options)
    return {name: sample[name] for name in ("gb_per_s", "against_gb_per_s", "relative_error", "cpu_s")}


def against_memory(run: Run, turns: Dict[str, Sequence[str]]) -> None:
    """Each turn {name: arguments of bench_codec} as a ratio of the same name."""
    build_c()
    samples = run.interleave({name: (lambda arguments=arguments: bench(*arguments)) for name, arguments in turns.items()})
    for name, of in samples.items():
        run.ratio(name, column(of, "gb_per_s"), column(of, "against_gb_per_s"))
    run.figures_of(samples)


def against_hivemind(run: Run, codec: str, name: str, times: int = 2) -> None:
    """hivemind's class against our kernels (encode_hivemind: into memory that is there, as the averager does) and against our class of the
    same name (class_..._hivemind: both make new buffers), on 40 MB with one thread. error_hivemind: theirs / ours."""
    ours, theirs = (CLASSES.format(package=package, name=name, times=times) for package in ("hivemind_c", "hivemind"))
    contestants = {
        "kernels": lambda: c_program("bench_codec", "encode", codec, "--mb", "40"),
        "class": lambda: our_python(ours),
        "hivemind": lambda: peers.python(theirs),
    }
    samples = run.interleave(contestants, rounds=max(3, run.rounds // 2))
    hivemind = samples["hivemind"]
    per_element = [sample["encode_s"] / 10_000_000 for sample in hivemind]
    run.ratio("encode_hivemind", per_element, [seconds / (10 << 20) for seconds in column(samples["kernels"], "seconds")])
    run.ratio("class_encode_hivemind", column(hivemind, "encode_s"), column(samples["class"], "encode_s"))
    run.ratio("class_decode_hivemind", column(hivemind, "decode_s"), column(samples["class"], "decode_s"))
    run.ratio("error_hivemind", column(hivemind, "relative_error"), column(samples["class"], "relative_error"))
    run.figure("kernels_encode_s", column(samples["kernels"], "seconds"))
    for who in ("class", "hivemind"):
        for measure in ("encode_s", "decode_s", "relative_error", "bits"):
            run.figure(f"{who}_{measure}", column(samples[who], measure))
