"""The tables of docs/reference/options.md and python-api.md, made from docstrings and signatures by scripts/api.py.

Words and examples of the pages are written by hand; the tables stand between marks with the names of the classes, or
of the commands. Each class and each command has one table, on one page.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pathlib
import re
from typing import Any, Dict, List

import hivemind_c
from hivemind_c.compression import CompressionBase

REFERENCE = pathlib.Path(__file__).resolve().parent.parent / "docs/reference"
PAGES = [REFERENCE / name for name in ("options.md", "python-api.md")]
WEEK, DAY = "s, > 0, at most a week", "s, 0 to 86,400"

#: unit and range of a number, and choices or size of a text, by class and argument; "" is for all classes
RANGES: Dict[str, Dict[str, str]] = {
    "": {
        "allreduce_timeout": WEEK,
        "announce_maddrs": "multiaddrs",
        "average_state_every": "swarm epochs, 1 or more",
        "averager_rank": "1 to 256",
        "averaging_alpha": "finite, at most a million",
        "averaging_timeout": "s, > `matchmaking_time`",
        "backoff_rate": "0 to 1,000",
        "bandwidth": "bytes/s, 0 or more",
        "batch_size": "samples, 1 or more",
        "batch_size_lead": "samples, 0 or more",
        "batch_size_per_step": "samples, 1 or more",
        "blacklist_time": DAY,
        "bootstrap_timeout": "s; 0 or less: one try",
        "bucket_size": "nodes, 0 to 256",
        "cache_nearest": "nodes, up to 20",
        "cache_size": "records, 0 to 1,048,576",
        "checkpoints": '"own", "elected"',
        "config_mismatch": '"error", "warn"',
        "upload_mbit": "Mbit/s, 1 to 1,000,000",
        "when_alone": '"train", "wait", "stop"',
        "declare_state_period": WEEK,
        "default_refresh_period": "s, 0 or more",
        "expected_peers": "peers, 1 or more",
        "num_inner_steps": "batches, 1 or more",
        "expected_drift_peers": "peers; below 0: 3",
        "expected_drift_rate": "share of the peers; below 0: 0.2",
        "fast": "times, 1 or more",
        "host_maddrs": "multiaddrs, HOST:PORT",
        "identity_path": "path",
        "initial_group_bits": "at most 64 of 0 and 1",
        "initial_peers": "multiaddrs, HOST:PORT",
        "load_state_timeout": "s, > 0",
        "log_memory": "bytes, 0 or more",
        "matchmaking_time": "s, > 0",
        "max_grad_norm": "> 0",
        "max_refresh_period": "s, 0 to 3,600",
        "metadata_expiration": "s, 0 or more; at least 2 `max_refresh_period` applies",
        "min_compression_ratio": "0 to 1",
        "min_group_size": "peers, 0 or more",
        "min_matchmaking_time": WEEK,
        "min_refresh_period": "s, 0 to `max_refresh_period`",
        "min_vector_size": "values, 0 to 2^32 - 2",
        "next_chunk_timeout": WEEK,
        "norm_ratio_max": "1 to 1e9",
        "num_replicas": "nodes, 0 to 20",
        "parallel_rpc": "questions, 0 or more",
        "part_size_bytes": "bytes, 0 or more",
        "performance_ema_alpha": "0 to 1",
        "prefix": "1 to 256 bytes of text",
        "reducer_timeout": "s, > 0",
        "refresh_timeout": DAY,
        "request_timeout": WEEK,
        "run_id": '1 to 200 bytes of text, no "."',
        "sender_timeout": WEEK,
        "shutdown_timeout": "s; 0 or less: no wait",
        "startup_timeout": "s; 0 or less: no wait",
        "target_batch_size": "samples, 1 or more",
        "target_group_size": "peers, 0 or more",
        "threshold": "elements",
        "wait_timeout": DAY,
        "weight_max": "> 0, at most 2^64",
    },
    "HivemindStrategy": {"buffers": '"average", "local"'},
    "ProgressTracker": {
        "matchmaking_time": "s, 0 or more",
        "prefix": "1 to 512 bytes of text",
        "target_batch_size": "samples, 1 to 2^48",
    },
}
#: the class whose arguments a class takes as **options
TAKES = {
    "HivemindStrategy": "Optimizer",
    "DiLoCoOptimizer": "Optimizer",
    "GradientAverager": "DecentralizedAverager",
    "PowerSGDGradientAverager": "GradientAverager",
    "TrainingStateAverager": "DecentralizedAverager",
}


def arguments(kind: Any) -> Dict[str, str]:
    """{argument: meaning} from a docstring."""
    text = inspect.getdoc(kind) or ""
    lines = text.split("\nArgs:\n")[1].splitlines() if "\nArgs:\n" in text else []
    return dict(match.groups() for line in lines if (match := re.fullmatch(r"    (\*{0,2}\w+): (.*)", line)))


def type_of(parameter: inspect.Parameter) -> str:
    """An annotation as a reader wants it: without modules and without Optional."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)
    text = re.sub(r"^Optional\[(.*)\]$", r"\1", text)
    text = re.sub(r"^Union\[(.*)\]$", r"\1", text)
    return text.replace("None, ", "")


def default_of(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return "required"
    if isinstance(parameter.default, CompressionBase):
        return f"`{type(parameter.default).__name__}()`"
    return f"`{parameter.default!r}`"


def range_of(kind: str, name: str, shown: str) -> str:
    if shown == "bool":
        return "True, False"
    return RANGES.get(kind, {}).get(name) or RANGES[""].get(name, "")


def without_effect(meaning: str) -> bool:
    return meaning.startswith("Accepted")


def describer(kind: Any, name: str) -> Any:
    """The class whose docstring describes an argument: this one, or one whose arguments it takes."""
    while name not in arguments(kind):
        kind = kind_of(TAKES[kind.__name__])
    return kind


def rows(kind: Any) -> List[List[str]]:
    """A row for each argument of the docstring, then for each that is passed on with a default of its own."""
    known = inspect.signature(kind.__init__).parameters
    described = arguments(kind)
    out = []
    for name in [*described, *(name for name in known if name != "self" and name not in described)]:
        if name.startswith("*"):
            out.append([f"`{name}`", "", "", "", described[name]])
            continue
        by = describer(kind, name)
        if by is not kind and same_default(known[name], inspect.signature(by.__init__).parameters[name]):
            continue  # the table of that class has it
        shown = type_of(inspect.signature(by.__init__).parameters[name])
        meaning = arguments(by)[name]
        limits = "" if without_effect(meaning) else range_of(kind.__name__, name, shown)
        out.append([f"`{name}`", f"`{shown}`", limits, default_of(known[name]), meaning])
    return out


def same_default(one: inspect.Parameter, other: inspect.Parameter) -> bool:
    return default_of(one) == default_of(other)


def argparse_rows(parser: argparse.ArgumentParser) -> List[List[str]]:
    """A row for each option of a command that uses argparse."""
    words = parser._get_formatter()
    found = []
    for action in parser._actions:
        names = action.option_strings or [str(action.metavar)]
        value = "" if action.nargs == 0 or not action.option_strings else f" {action.metavar or action.dest.upper()}"
        found.append([", ".join(f"`{name}{value}`" for name in names), words._expand_help(action)])
    return found


def typer_rows(command: Any) -> List[List[str]]:
    """A row for each option of a function that typer makes a command of."""
    found = []
    for parameter in inspect.signature(command).parameters.values():
        option, kind = parameter.default, type_of(parameter)
        value = "" if kind == "bool" else f" {option.metavar or ('ADDRESS' if kind == 'List[str]' else 'VALUE')}"
        names = [f"`{name}{value}`" for one in option.param_decls for name in one.split("/")]
        shown = option.default if option.default is not ... and kind != "bool" else None
        told = f" (default: {shown})" if shown and not option.help.startswith("accepted") else ""
        found.append([", ".join(names), f"{option.help}{told}"])
    return found


def command_rows(name: str) -> List[List[str]]:
    """The options of hivemind-NAME; --help is one of each."""
    module = importlib.import_module(f"hivemind_c.cli.{name.removeprefix('hivemind-')}")
    if hasattr(module, "parser"):
        found = argparse_rows(module.parser())
    else:
        found = typer_rows(module.app.registered_commands[0].callback)
    return [row for row in found if "`--help`" not in row[0]]


def table(name: str) -> str:
    """The table of a class or of a command."""
    if name.startswith("hivemind-"):
        head, body = ["option", "meaning"], command_rows(name)
    else:
        head, body = ["argument", "type", "unit and range", "default", "meaning"], rows(kind_of(name))
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def kind_of(name: str) -> Any:
    return getattr(hivemind_c, name, None) or getattr(hivemind_c.compression, name)


def filled(page: str) -> str:
    """The page with its tables made anew."""
    return re.sub(
        r"(?s)<!-- ([\w-]+) -->\n.*?<!-- end -->",
        lambda found: f"<!-- {found[1]} -->\n\n{table(found[1])}\n\n<!-- end -->",
        page,
    )


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(filled(path.read_text()))
