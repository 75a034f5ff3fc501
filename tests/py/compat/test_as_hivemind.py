"""The import hook for programs that say `import hivemind` (python/hivemind_c/as_hivemind), each in a process: what it
changes holds for a whole process."""

import os
import subprocess
import sys
import textwrap

import pytest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))


@pytest.fixture
def folder(tmp_path):
    """Where programs are written, with a package hivemind that must lose."""
    site = tmp_path / "site"
    for name in ("hivemind", "lightning_hivemind"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("raise RuntimeError('the installed one was imported')\n")
    return tmp_path


def run(folder, *arguments, code=0, site=True):
    """A Python process; (what it printed, its errors)."""
    paths = [os.path.join(ROOT, "python"), *([str(folder / "site")] if site else [])]
    env = {name: value for name, value in os.environ.items() if name != "HIVEMIND_C_AS_HIVEMIND"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**env, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def written(folder, source, name="train.py"):
    (folder / name).write_text(textwrap.dedent(source))
    return name


WORKERS = """
    import sys

    import torch

    import hivemind


    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            from hivemind.utils import nested_flatten

            return sum(nested_flatten([index, hivemind.DHT.__module__ == "hivemind_c.dht.dht"]))


    if __name__ == "__main__":
        loader = torch.utils.data.DataLoader(Numbers(), num_workers=1, multiprocessing_context="spawn")
        print(sys.argv[1:], [int(one) for one in loader], sys.path[1])
"""


def test_program_runs_with_its_workers_and_is_told_once(folder):
    out, err = run(folder, "-m", "hivemind_c.as_hivemind", written(folder, WORKERS), "--flag", "1")
    assert out == f"['--flag', '1'] [1, 2] {folder}\n"
    lines = [line for line in err.splitlines() if "means hivemind_c" in line]
    assert (
        len(lines) == 2
        and lines[0].startswith("hivemind means hivemind_c in this program and not the package at")
        and str(folder / "site") in lines[0]
    )
    assert lines[1].startswith("lightning_hivemind means")


def test_import_opens_it_for_child_processes(folder):
    out, err = run(
        folder,
        "-c",
        """if True:
        import subprocess, sys
        import hivemind_c.as_hivemind
        import hivemind
        import hivemind_c.as_hivemind  # a cell that runs twice
        print(hivemind.get_dht_time.__module__, flush=True)
        subprocess.run([sys.executable, "-c", "import hivemind.optim.optimizer as one; print(one.Optimizer.__module__)"], check=True)
        subprocess.run([sys.executable, "-m", "hivemind.hivemind_cli.run_dht", "--version"], check=True)
        """,
        site=False,
    )
    assert out.splitlines()[:2] == ["hivemind_c.dht.values", "hivemind_c.optim.optimizer"] and out.splitlines()[
        2
    ].startswith("hivemind_c ")
    assert err == ""


def test_child_process_finds_hivemind_c_by_the_hook(folder):
    """One whose path has nothing of hivemind_c, as that of a program that was started in the folder of the package."""
    out, _ = run(
        folder,
        "-c",
        """if True:
        import os, subprocess, sys
        import msgpack
        import hivemind_c.as_hivemind
        hook = os.environ["PYTHONPATH"].split(os.pathsep)[0]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([hook, os.path.dirname(os.path.dirname(msgpack.__file__))])}
        program = "import sys; sys.path[:] = [one for one in sys.path if one]; import lightning_hivemind, hivemind.utils.nested as nested; print(nested.__name__, lightning_hivemind.__version__)"
        subprocess.run([sys.executable, "-S", "-c", program], env=env, check=True)
        """,
        site=False,
    )
    assert out == "hivemind.utils.nested 0.1.0\n"


def test_torchrun_holds_it_in_every_worker(folder):
    program = written(
        folder,
        # one write a line: both workers write into one pipe, unbuffered
        "import os, hivemind\nline = ' '.join([os.environ['RANK'], hivemind.__version__, hivemind.DHT.__module__])\n"
        "print(line + '\\n', end='')\n",
    )
    out, err = run(
        folder,
        "-m",
        "hivemind_c.as_hivemind",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        program,
    )
    assert sorted(out.splitlines()) == ["0 1.1.12 hivemind_c.dht.dht", "1 1.1.12 hivemind_c.dht.dht"]
    assert err.count("means hivemind_c") == 2  # once for each of the two packages


def test_notebook_cells_import_through_it(folder):
    out, _ = run(
        folder,
        "-c",
        """if True:
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        for cell in ("import hivemind_c.as_hivemind", "from hivemind import DHT", "print(DHT.__module__)", "import hivemind.moe"):
            shell.run_cell(cell)
        """,
    )
    assert out.startswith("hivemind_c.dht.dht\n") and "Mixture of Experts is out of its scope" in out


def test_import_after_another_hivemind_is_refused(folder):
    (folder / "site/hivemind/__init__.py").write_text("")
    _, err = run(folder, "-c", "import hivemind\nimport hivemind_c.as_hivemind", code=1)
    assert "ImportError: hivemind_c cannot take the place of hivemind: it was imported already, from " in err
    assert "import hivemind_c.as_hivemind before it" in err and "restart the kernel" in err


def test_changes_reach_the_module_behind(folder):
    """An attribute that a program replaces in a module, as a test does with a mock, is replaced in hivemind_c."""
    out, _ = run(
        folder,
        "-c",
        """if True:
        import hivemind_c.as_hivemind
        from unittest import mock
        import hivemind.utils.networking, hivemind_c.utils.networking
        with mock.patch("hivemind.utils.networking.LOCALHOST", "here"):
            print(hivemind_c.utils.networking.LOCALHOST, hivemind.utils.networking.LOCALHOST)
        print(hivemind_c.utils.networking.LOCALHOST)
        hivemind.mine = 1
        print(hivemind.mine, "Optimizer" in dir(hivemind))
        from hivemind import *
        print(DecentralizedAverager.__name__, hivemind.optim.GradScaler.__name__)
        """,
        site=False,
    )
    assert out.splitlines() == ["here here", "127.0.0.1", "1 True", "DecentralizedAverager GradScaler"]


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["nowhere.py"], "nowhere.py cannot be run: there is no such file; check its path"),
        (["-m", "nowhere"], "nowhere cannot be run: there is no such module; install it, or check its spelling"),
        (
            ["-m", "hivemind.nowhere"],
            "hivemind.nowhere cannot be run: hivemind_c has no hivemind.nowhere: no name here is like it. See docs/howto/migrate-from-hivemind.md",
        ),
        (["-m"], "-m cannot be run: no module stands behind it"),
        (["--fast", "train.py"], "--fast cannot be run: it is no option"),
    ],
)
def test_wrong_arguments_are_answered_in_one_line(folder, arguments, error):
    _, err = run(folder, "-m", "hivemind_c.as_hivemind", *arguments, code=1, site=False)
    assert err.splitlines()[0] == error
    assert "Traceback" not in err


# ---- names ----

# The names that the peers' examples, tutorials, benchmarks and other public programs import.
NAMES = """
    hivemind: DHT Optimizer DecentralizedAverager TrainingAverager GradScaler get_dht_time get_logger Float16Compression PeerID __version__ averaging dht optim utils p2p compression
    hivemind.averaging: DecentralizedAverager
    hivemind.averaging.averager: DecentralizedAverager GatheredData
    hivemind.averaging.control: AveragingStage StepControl
    hivemind.averaging.group_info: GroupInfo
    hivemind.compression: CompressionBase CompressionInfo Float16Compression NoCompression PerTensorCompression Quantile8BitQuantization RoleAdaptiveCompression
    hivemind.compression: ScaledFloat16Compression SizeAdaptiveCompression TensorRole Uniform8BitQuantization BlockwiseQuantization deserialize_torch_tensor serialize_torch_tensor
    hivemind.compression.base: CompressionBase CompressionInfo NoCompression TensorRole
    hivemind.compression.floating: Float16Compression ScaledFloat16Compression
    hivemind.compression.quantization: BlockwiseQuantization Quantile8BitQuantization Uniform8BitQuantization
    hivemind.compression.serialization: deserialize_tensor_stream deserialize_torch_tensor serialize_torch_tensor
    hivemind.dht: DHT DHTID DHTNode
    hivemind.dht.crypto: RSASignatureValidator
    hivemind.dht.node: DHTNode
    hivemind.dht.routing: DHTID
    hivemind.dht.schema: BytesWithPublicKey SchemaValidator
    hivemind.dht.validation: CompositeValidator DHTRecord RecordValidatorBase
    hivemind.optim: GradScaler Optimizer TrainingAverager
    hivemind.optim.grad_averager: GradientAverager GradientAveragerFactory
    hivemind.optim.grad_scaler: GradScaler
    hivemind.optim.optimizer: Optimizer logger
    hivemind.optim.power_sgd_averager: PowerSGDGradientAverager
    hivemind.optim.progress_tracker: GlobalTrainingProgress LocalTrainingProgress ProgressTracker TrainingProgressSchema
    hivemind.optim.state_averager: LRSchedulerBase OptimizerFactory ParamGroups Parameters SchedulerFactory TorchOptimizer TrainingStateAverager dump_optimizer_state initialize_optimizer_state_ load_optimizer_state
    hivemind.optim.training_averager: TrainingAverager dump_optimizer_state initialize_optimizer_state load_optimizer_state
    hivemind.p2p: PeerID PeerInfo
    hivemind.p2p.p2p_daemon_bindings.datastructures: PeerID
    hivemind.proto: runtime_pb2
    hivemind.proto.runtime_pb2: CompressionType Tensor FLOAT16
    hivemind.utils: DHTExpiration MAX_DHT_TIME_DISCREPANCY_SECONDS MPFuture MSGPackSerializer PerformanceEMA SerializerBase TensorDescriptor TimedStorage ValueWithExpiration
    hivemind.utils: amap_in_executor as_aiter enter_asynchronously get_dht_time get_logger nested_compare nested_flatten nested_map nested_pack switch_to_uvloop use_hivemind_log_handler
    hivemind.utils.asyncio: achain aenumerate aiter_with_timeout anext asingle azip cancel_and_wait iter_as_aiter
    hivemind.utils.crypto: RSAPrivateKey RSAPublicKey
    hivemind.utils.limits: increase_file_limit
    hivemind.utils.logging: get_logger use_hivemind_log_handler
    hivemind.utils.math: get_flatten_greedy_dims
    hivemind.utils.mpfuture: InvalidStateError MPFuture
    hivemind.utils.multiaddr: Multiaddr
    hivemind.utils.nested: nested_compare nested_flatten nested_map nested_pack
    hivemind.utils.networking: LOCALHOST choose_ip_address log_visible_maddrs
    hivemind.utils.performance_ema: PerformanceEMA
    hivemind.utils.serializer: MSGPackSerializer
    hivemind.utils.streaming: combine_from_streaming split_for_streaming
    hivemind.utils.tensor_descr: TensorDescriptor
    hivemind.utils.timed_storage: DHTExpiration TimedStorage ValueWithExpiration get_dht_time
    lightning_hivemind.strategy: HivemindStrategy HiveMindScheduler
"""

# Names that are missing: the sentence that answers it.
ANSWERS = {
    "from hivemind import Optimiser": "hivemind_c has no hivemind.Optimiser: did you mean hivemind.Optimizer?",
    "from hivemind.averaging import Optimizer": "hivemind_c has no hivemind.averaging.Optimizer: did you mean hivemind.Optimizer?",
    "from hivemind.optim.optimizer import Optimiser": "did you mean hivemind.optim.optimizer.Optimizer?",
    "from hivemind import Server": "Mixture of Experts is out of its scope.",
    "import hivemind.moe.client": "Mixture of Experts is out of its scope.",
    "from hivemind.p2p import P2P": "peers talk through DHT and the averagers.",
    "from hivemind.averaging.matchmaking import Matchmaking": "rounds of averaging run in C",
    "from hivemind.utils.auth import TokenAuthorizerBase": "a swarm cannot be closed by tokens",
    "import hivemind.optm": "did you mean hivemind.optim?",
    "from lightning_hivemind.strategy import HivemindStrateg": "did you mean lightning_hivemind.strategy.HivemindStrategy?",
    "import hivemind; hivemind.nested_flaten": "did you mean hivemind.nested_flatten?",
}


def test_imported_names_are_there_and_others_are_answered(folder):
    lines = [
        f"from {module} import {', '.join(names.split())}"
        for module, names in (line.strip().split(": ") for line in NAMES.strip().splitlines())
    ]
    tries = [
        f"try:\n    {text.replace('; ', chr(10) + '    ')}\n    print('it was imported')\nexcept {'AttributeError' if ';' in text else 'ImportError'} as error:\n    print(error)"
        for text in ANSWERS
    ]
    out, _ = run(folder, "-m", "hivemind_c.as_hivemind", written(folder, "\n".join(lines + tries)), site=False)
    for (statement, answer), printed in zip(ANSWERS.items(), out.splitlines(), strict=True):
        assert answer in printed and printed.endswith("See docs/howto/migrate-from-hivemind.md"), statement
