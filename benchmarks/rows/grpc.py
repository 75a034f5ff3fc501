"""4 peers average 256 MB of float32 with TLS: on this tree's gRPC, and on the one inside a wheel of this project

GRPC_WHEEL is the wheel, which `make grpc && make wheel` put into dist/.
The ratio `grpc` is the round on this tree's gRPC (Debian's 1.51) to that on the wheel's.
The rest as in `allreduce`, with its ALLREDUCE_MB, ALLREDUCE_PEERS and ALLREDUCE_TIMES.
"""

import os
import subprocess
import sys
import tempfile

from benchmarks.frame import BenchmarkError, column
from benchmarks.programs import our_python, run as run_program
from benchmarks.rows.allreduce import CODECS, MB, OURS, PARENT, PEERS, config

GOALS = {}
ROUNDS = 5


def unpack(wheel, folder):
    """Puts the package of a wheel into a folder, without what it needs."""
    command = [sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--no-index", "--target", folder, wheel]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BenchmarkError(f"cannot unpack {wheel}: {done.stderr.strip()[-200:]}")


def measure(run):
    wheel = os.environ.get("GRPC_WHEEL")
    if not wheel:
        raise BenchmarkError("no wheel: say GRPC_WHEEL=dist/NAME.whl, after `make grpc && make wheel`")
    with tempfile.TemporaryDirectory() as folder:
        unpack(wheel, folder)
        told = config(codec=CODECS["fp32"], insecure=False)
        command = [sys.executable, "-c", PARENT, OURS, told]
        samples = run.interleave({
            "here": lambda: our_python(PARENT, OURS, told, timeout_s=300),
            "wheel": lambda: run_program(command, 300, {"PYTHONPATH": folder}),
        })
    run.ratio("grpc", column(samples["here"], "reduce_s"), column(samples["wheel"], "reduce_s"))
    for name, list_of in samples.items():
        run.figure(f"{name}_s_per_gb", [one / (PEERS * MB / 1024) for one in column(list_of, "reduce_s")])
        run.figure(f"{name}_cpu_s_per_gb", [one / (PEERS * MB / 1024) for one in column(list_of, "round_cpu_s")])
