#!/usr/bin/env python3
"""Everything that a machine with a GPU can show, in parts of at most nine minutes, as one report: `make gpu`.

It needs nvcc, a C compiler, and Python with its headers and torch, but neither the network nor gRPC.
The script itself uses the standard library alone.
With --rehearse it needs no GPU: kernels, driver and rounds run over stand-ins, and the figures say nothing.
"""

import argparse
import dataclasses
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

ROOT = Path(__file__).resolve().parent.parent
PARTS = "correct", "rounds", "kernels", "training", "sanitizer", "inside"
TOOLS = "memcheck", "racecheck", "initcheck", "synccheck"
WHOLE = "the whole extension: give a wheel as WHEEL=path, or put one into dist/"
SIMULATOR = (
    "protobuf-c, OpenSSL and xxhash: csrc/build/gpu/cuda_rounds of make -C csrc OUT=build/gpu cuda-rounds will do"
)
ROWS = {"codecs": 60, "casts": 45, "powersgd": 40, "micro": 100, "blockwise": 60, "offload": 55}  # seconds


def shared() -> None:
    """Imports python/hivemind_c/gpu_report as gpu_report, without hivemind_c around it, which needs the extension."""
    folder = ROOT / "python/hivemind_c/gpu_report"
    spec = importlib.util.spec_from_file_location(
        "gpu_report", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_report"] = module
    spec.loader.exec_module(module)


shared()
from gpu_report import machine  # noqa: E402
from gpu_report.report import REHEARSAL, Report  # noqa: E402
from gpu_report.steps import Command, Missing, Runner, Step, chosen, end_on_sigterm  # noqa: E402


def compiler(name: str, *places: str) -> str:
    """A tool of CUDA: on the path, or where toolkits are; its bare name if it is nowhere."""
    found = shutil.which(name) or next((str(path) for place in places for path in sorted(Path("/").glob(place))), "")
    return found or name


class Tree:
    """The commands, for this tree on this machine."""

    def __init__(self, results: Path, rehearse: bool, wheel: Optional[str]) -> None:
        self.results, self.rehearse = results, rehearse
        self.build_folder = "build/rel" if rehearse else "build/gpu"  # below csrc/
        self.built = ROOT / "csrc" / self.build_folder
        self.wheel = Path(wheel).resolve() if wheel else None
        self.gpus = machine.count()
        self.nvcc = compiler("nvcc", "usr/local/cuda*/bin/nvcc")
        libraries = [str(path) for path in sorted(Path("/usr/local").glob("cuda*/lib64"))]  # NVRTC is there
        self.env = {
            "PATH": os.pathsep.join([os.environ.get("PATH", ""), str(Path(self.nvcc).parent)]),
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [*libraries, os.environ.get("LD_LIBRARY_PATH", "")])),
            "HIVEMIND_CACHE": str(results / "cache"),  # where kernels are kept
            "PYTHONUNBUFFERED": "1",
        }
        if rehearse:
            self.env["HIVEMIND_GPU_STAND_IN"] = str(self.built / "libhivemind_cuda_stand_in.so")

    # ---- what is built ----

    def make(self, *targets: str) -> Command:
        arch = machine.capability().replace(".", "") or "90"
        options = [
            f"OUT={self.build_folder}",
            f"CUDA_ARCH={arch}",
            f"NVCC={self.nvcc}",
            f"PYTHON={sys.executable}",
            "WARN=-Wall",
            "FOREIGN=",
        ]
        args = ["make", "-s", "--no-print-directory", f"-j{os.cpu_count() or 1}", "-C", "csrc", *options, *targets]
        return Command(args, self.env)

    def build(self) -> Command:
        return self.make("cuda", "lowrank", *(["cuda-stand-in", "cuda-fake"] if self.rehearse else ["cuda-ladder"]))

    def libraries(self) -> Command:
        """Puts this tree's libraries beside the package, each as a whole: a process may have loaded the old one."""
        names = "libhivemind_cuda.so", "libhivemind_lowrank.so"
        to = "python/hivemind_c"
        lines = [
            f"cp csrc/{self.build_folder}/{name} {to}/{name}.new && mv {to}/{name}.new {to}/{name}" for name in names
        ]
        return Command(["sh", "-c", " && ".join(lines)], self.env)

    def paths(self, *more: str) -> Dict[str, str]:
        return {**self.env, "PYTHONPATH": os.pathsep.join([*more, str(ROOT / "python"), str(self.results / "site")])}

    def is_whole(self) -> bool:
        """True if the whole extension can be imported: built in place, installed, or from a wheel."""
        probe = [sys.executable, "-c", "import _hivemind_c; _hivemind_c.Node"]
        env = {**os.environ, **self.paths()}
        try:
            return subprocess.run(probe, env=env, capture_output=True, timeout=60).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def module(self) -> Command:
        """The whole extension if it is there or a wheel brings it, else the part that needs no network."""
        wheels = [self.wheel] if self.wheel else sorted((ROOT / "dist").glob("hivemind_c-*.whl"))
        tell = [sys.executable, "-c", "import _hivemind_c; print('the whole extension,', _hivemind_c.__version__)"]
        if self.rehearse or (not wheels and not self.is_whole()):
            return self.make("cuda-module")
        if not self.wheel and self.is_whole():
            return Command(tell, self.paths())
        site = self.results / "site"
        install = "-m pip install -q --no-index --no-deps --upgrade --target".split()
        # The Python of the tree is tested, so only the extension is taken of the wheel.
        script = '"$@" && rm -rf "$SITE/hivemind_c" && "$PYTHON" -c "import _hivemind_c" && echo "$TELL"'
        tell_it = {"TELL": f"the whole extension, of {wheels[-1].name}", "SITE": str(site), "PYTHON": sys.executable}
        line = ["sh", "-c", script, "sh", sys.executable, *install, str(site), str(wheels[-1])]
        return Command(line, {**self.paths(), **tell_it})

    # ---- what is run ----

    def program(self, name: str, *arguments: str) -> Union[Command, Missing]:
        if self.rehearse:
            return Missing("a GPU: this is a rehearsal")
        return Command([str(self.built / name), *arguments], self.env)

    def simulated(self) -> Union[Command, Missing]:
        """Rounds of the simulator. A program that another machine has built from the same tree will do, too."""
        program, arguments, env = self.built / "cuda_rounds", ["1", "300"], dict(self.env)
        if self.rehearse:
            env["LD_LIBRARY_PATH"] = os.pathsep.join([str(self.built / "fake"), env["LD_LIBRARY_PATH"]])
            arguments.append("libnvrtc-fa4e.so.12")
        if not shutil.which("protoc-c"):
            return Command([str(program), *arguments], env) if program.exists() else Missing(SIMULATOR)
        script = 'program="$1"; shift; from="$1"; shift; "$@" >&2 && exec "$program" $from'
        made = self.make("cuda-rounds").args
        return Command(["sh", "-c", script, "sh", str(program), " ".join(arguments), *made], env)

    def tests(
        self, *files: str, gpu: str, stand_in: str, network: bool = False, needs: Sequence[str] = ()
    ) -> Union[Command, Missing]:
        """pytest over files. gpu, stand_in: the choice of tests, with a GPU and in a rehearsal."""
        for name in ("torch", "pytest", *needs):
            if importlib.util.find_spec(name) is None:
                return Missing(name)
        choice = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", stand_in if self.rehearse else gpu, *files]
        if not self.rehearse and self.is_whole():
            return Command([sys.executable, *choice], self.paths(), is_pytest=True)
        if network:
            return Missing(WHOLE)
        small = self.paths(str(self.built), str(ROOT / "benchmarks/cuda_ladder"), str(ROOT / "tests/py"))
        return Command([sys.executable, *choice[:3], "--noconftest", "-p", "small", *choice[3:]], small, is_pytest=True)

    def ranks(self) -> Union[Command, Missing]:
        """Tests of peers with several GPUs. The ranks are on GPUs, and two in each peer."""
        if not self.rehearse and self.gpus < 2:
            return Missing(f"two GPUs: this machine has {self.gpus}")
        needs = ["lightning", "pytorch_lightning", "msgpack"]
        made = self.tests("tests/py/inside", gpu="not three", stand_in="none", network=True, needs=needs)
        if isinstance(made, Command):
            made = dataclasses.replace(made, env={**made.env, "RANKS_ON": "cuda"})
        return made

    def row(self, name: str) -> Union[Command, Missing]:
        if importlib.util.find_spec("torch") is None:
            return Missing("torch")
        command = ["hivemind_c.gpu_report.row", name]
        if not self.rehearse and self.is_whole():
            return Command([sys.executable, "-m", *command], self.paths())
        if name == "rounds":
            return Missing(WHOLE)
        return Command(
            [sys.executable, "-m", "small", *command], self.paths(str(self.built), str(ROOT / "benchmarks/cuda_ladder"))
        )

    def sanitizer(self, tool: str) -> Union[Command, Missing]:
        if self.rehearse:
            return Missing("a GPU: this is a rehearsal")
        program = compiler(
            "compute-sanitizer", "usr/local/cuda*/bin/compute-sanitizer", "opt/nvidia/*/compute-sanitizer"
        )
        return Command(
            [program, "--tool", tool, "--error-exitcode", "3", str(self.built / "cuda_check"), "quick"], self.env
        )


def parts(tree: Tree) -> Dict[str, List[Step]]:
    """The steps of each part. Those of one name are the same, and run once."""
    folder, strategy = "tests/py/compression/test_", "tests/py/strategy/test_strategy.py"
    rounds = f"{folder}cuda_rounds.py"
    build = Step("build", 100, tree.build)
    module = Step("module", 50, tree.module)
    libraries = Step("libraries", 10, tree.libraries, ("build", "module"))
    about = Step("machine", 20, lambda: Command([sys.executable, str(Path(machine.__file__))], tree.env))
    python = [about, build, module, libraries]

    def tests(name: str, limit: int, *files: str, **options: object) -> Step:
        return Step(name, limit, lambda: tree.tests(*files, **options), ("libraries",))

    networked = {"stand_in": "none", "network": True}
    here = " and (mixed or without_a_kernel)"
    return {
        "correct": [
            *python,
            Step("check", 60, lambda: tree.program("cuda_check"), ("build",)),
            Step("equal bytes", 60, lambda: tree.row("equal"), ("libraries",)),
            tests(
                "tests of the codecs", 90, f"{folder}cuda.py", gpu="gpu] or on_a_gpu", stand_in="stand-in and not lost"
            ),
            tests("tests of PowerSGD", 60, f"{folder}lowrank.py", gpu="on_a_gpu", stand_in="asks_for_a_number"),
        ],
        "rounds": [
            *python,
            tests("sums and copies", 60, rounds, gpu="gpu]" + here, stand_in="stand-in" + here, needs=["msgpack"]),
            tests("rounds over gRPC", 100, rounds, gpu="gpu] or [gpu", needs=["msgpack"], **networked),
            Step("simulated rounds", 60, tree.simulated, ("build",)),
            Step("rounds", 60, lambda: tree.row("rounds"), ("libraries",)),
            tests("trainings", 80, strategy, gpu="either_device and gpu", needs=["lightning"], **networked),
        ],
        "kernels": [
            about,
            build,
            Step("rows", 180, lambda: tree.program("cuda_rows", "512", "100", "25"), ("build",)),
            Step("ladder", 60, lambda: tree.program("cuda_ladder"), ("build",)),
        ],
        "training": [
            *python,
            *(Step(name, limit, lambda name=name: tree.row(name), ("libraries",)) for name, limit in ROWS.items()),
        ],
        "sanitizer": [
            about,
            build,
            *(Step(tool, 80, lambda tool=tool: tree.sanitizer(tool), ("build",)) for tool in TOOLS),
        ],
        "inside": [
            *(python if tree.gpus > 1 else [about]),  # for one GPU nothing is built
            Step("ranks", 360, tree.ranks, ("libraries",) if tree.gpus > 1 else ()),
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help=f"of: {' '.join(PARTS)}; all by default")
    parser.add_argument("--results", default="gpu-results", help="the folder of report.md, report.json and logs/")
    parser.add_argument("--wheel", help="a wheel of hivemind_c for rounds over gRPC; else the last one in dist/")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU, over stand-ins")
    options = parser.parse_args()
    try:
        wanted = chosen(PARTS, options.part)
    except ValueError as error:
        parser.error(str(error))
    if options.wheel and not Path(options.wheel).is_file():
        parser.error(f"there is no wheel at {options.wheel}; make wheel builds one into dist/")
    if not options.rehearse and not machine.capability():
        print("no GPU can be used: nvidia-smi names none; REHEARSE=1 runs the same over stand-ins", file=sys.stderr)
        return 1
    results = Path(options.results).resolve()
    report = Report(
        results,
        " ".join(["make gpu", *([f'PART="{" ".join(wanted)}"'] if options.part else [])]),
        REHEARSAL if options.rehearse else "",
    )
    runner = Runner(report, ROOT)
    end_on_sigterm()
    report.write()
    for name, steps in parts(Tree(results, options.rehearse, options.wheel)).items():
        if name in wanted:
            runner.part(name, steps)
    print(report.summary())
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
