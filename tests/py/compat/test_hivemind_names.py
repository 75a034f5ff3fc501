"""Every public name of hivemind 1.1.12 (hivemind_names.txt, by list_names.py): imported through the import hook,
or refused."""

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PROGRAM = """
import hivemind_c.as_hivemind, importlib, json, sys
from hivemind_c.as_hivemind.names import ABSENT
there, reasons, nothing = [], [], []
for line in open(sys.argv[1]):
    module, names = line.strip().split(": ")
    for name in names.split():
        try:
            getattr(importlib.import_module(module), name)
            there.append(f"{module}.{name}")
        except (ImportError, AttributeError) as error:
            said = any(f": {reason}. See " in str(error) for reason in ABSENT.values())
            (reasons if said else nothing).append(f"{module}.{name}")
print(json.dumps([there, reasons, nothing]))
"""
# The names that are missing without a reason of their own: inner parts of hivemind that its examples and pages do not
# use.
NO_ANSWER = """
hivemind.averaging.averager: compute_schema_hash
hivemind.compression.base: USE_LEGACY_BFLOAT16
hivemind.compression.floating: get_num_bits
hivemind.compression.quantization: BNB_MISSING_MESSAGE EXECUTOR
hivemind.compression.quantization: Quantization average_buckets get_chunk_size quantile_qq_approximation
hivemind.dht.dht: ReturnType
hivemind.dht.node: Blacklist CacheRefreshQueue DEFAULT_NUM_WORKERS
hivemind.dht.routing: BinaryDHTValue KBucket RoutingTable
hivemind.dht.schema: conbytes
hivemind.hivemind_cli.run_dht: report_status
hivemind.optim.grad_averager: TGradientAverager
hivemind.optim.grad_scaler: torch_version
hivemind.optim.power_sgd_averager: AllReducePhases GatheredData
hivemind.optim.state_averager: ZERO_GRAD_SET_TO_NONE_DEFAULT
hivemind.p2p.p2p_daemon_bindings: P2PDaemonError P2PHandlerError
hivemind.p2p.p2p_daemon_bindings.datastructures: StreamInfo sha256_digest
hivemind.utils.logging: CustomFormatter TRUE_CONSTANTS TextStyle always_log_caller
hivemind.utils.logging: golog_level_to_python in_ipython loglevel python_level_to_golog use_colors
hivemind.utils.math: orthogonalize_
hivemind.utils.mpfuture: ALL_STATES PID PipeEnd SharedBytes State TERMINAL_STATES UID UpdateType
hivemind.utils.tensor_descr: BatchTensorDescriptor DUMMY_BATCH_SIZE DescriptorBase
hivemind.utils.timed_storage: HeapEntry ROOT
"""


def listed(text):
    return [
        f"{module}.{name}"
        for module, names in (line.split(": ") for line in text.strip().splitlines())
        for name in names.split()
    ]


def test_every_public_name_is_there_or_known_as_missing():
    path = HERE / "hivemind_names.txt"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    there, reasons, nothing = json.loads(done.stdout)
    assert sorted(there + reasons + nothing) == sorted(listed(path.read_text())) and len(there) > 150
    assert nothing == listed(NO_ANSWER)
