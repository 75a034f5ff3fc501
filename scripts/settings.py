"""The tables and strategies of docs/howto/choose-settings.md: scripts/settings.py writes them into the page.

Pure: bytes of a parameter in, tables out. tests/py/project/test_settings.py measures the same bytes of a small model.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import pathlib
import re
from typing import Any, Dict, List, NamedTuple, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/howto/choose-settings.md"
MODES_PAGE = PAGE.with_name("which-mode.md")
SIZES = {"0.1 billion": 1e8, "1 billion": 1e9, "7 billion": 7e9}
_spec = importlib.util.spec_from_file_location("ways", ROOT / "python/hivemind_c/optim/ways.py")  # without a build
ways = importlib.util.module_from_spec(_spec)  # type: ignore[arg-type]
_spec.loader.exec_module(ways)  # type: ignore[union-attr]
CODECS, STATE_EVERY, WAYS, sent = ways.CODECS, ways.STATE_EVERY, ways.WAYS, ways.sent
averaging_s, least_s, recommended = ways.averaging_s, ways.least_s, ways.recommended
LINES = (20, 100, 1000)  #: Mbit/s
FLOAT32 = 4.0
MOMENTS = 8.0  #: of AdamW
STATE = FLOAT32 + MOMENTS  #: of a joining peer's download


class Mode(NamedTuple):
    name: str
    options: str
    gpu: float  #: bytes a parameter on the device that computes gradients, activations left out
    host: float  #: bytes a parameter in the memory of the host, without the snapshot for joining peers
    snapshot: float = STATE  #: bytes a parameter that joining peers download


# The model and its gradients are 8 bytes. Sums take 4 more, unless they are kept in .grad. The buffer in which
# parameters are averaged takes 4, and the difference that averaging made takes 4.
MODES = [
    Mode("exact", "none", 8 + MOMENTS + 4, 4),
    Mode("exact, sums in `.grad`", "`reuse_grad_buffers=True`", 8 + MOMENTS, 4),
    Mode("offload", "`offload_optimizer=True`, `reuse_grad_buffers=True`", 8, 8 + MOMENTS),
    Mode("delayed", "`delay_grad_averaging=True`, `reuse_grad_buffers=True`", 8, 8 + MOMENTS),
    Mode("local updates", "`use_local_updates=True`", 8 + MOMENTS, 4, FLOAT32),
    Mode("local updates, delayed", "`use_local_updates=True`, `delay_state_averaging=True`", 8 + MOMENTS, 8, FLOAT32),
    # anchor, momentum and difference; joiners get the first two
    Mode("local steps", "`local_steps=True`", 8 + MOMENTS, 16, 2 * FLOAT32),
]


def number(value: float) -> str:
    """Two digits, or all digits before the point."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def memory() -> str:
    rows: List[List[str]] = []
    for mode in MODES:
        gpu, host = mode.gpu / 1e9, (mode.host + mode.snapshot) / 1e9
        sizes = [f"{number(gpu * n)} + {number(host * n)}" for n in SIZES.values()]
        rows.append([mode.name, mode.options, f"{mode.gpu:g}", f"{mode.host:g}", f"{mode.snapshot:g}", *sizes])
    head = ["mode", "options", "GPU", "main memory", "snapshot", *(f"{size}: GPU + main, GB" for size in SIZES)]
    return table(head, rows)


def line() -> str:
    rows = []
    for codec, value in CODECS.items():
        each = sent(value)
        rows.append([f"`{codec}`", number(each), *(number(each * n / 1e9) for n in SIZES.values())])
    return table(["codec", "bytes a parameter", *(f"{size}, GB" for size in SIZES)], rows)


def seconds() -> str:
    rows = []
    for size, n in SIZES.items():
        for codec in ("NoCompression", "Float16Compression", "Linear8BitQuantization"):
            bits = 8 * sent(CODECS[codec]) * n
            rows.append([size, f"`{codec}`", *(number(bits / (speed * 1e6)) for speed in LINES)])
    return table(["parameters", "codec", *(f"{speed:,} Mbit/s" for speed in LINES)], rows)


def joining() -> str:
    rows = []
    for what, each in (
        ("none", STATE),
        ("`Float16Compression`", 2 + MOMENTS),
        ("none, local steps", 2 * FLOAT32),
        ("none, local updates", FLOAT32),
    ):
        waits = [number(8 * each * 1e9 / (speed * 1e6)) for speed in LINES]
        rows.append([what, f"{each:g}", *(number(each * n / 1e9) for n in SIZES.values()), *waits])
    head = ["`load_state_compression`", "bytes a parameter", *(f"{size}, GB" for size in SIZES)]
    return table([*head, *(f"1 billion at {speed:,} Mbit/s, s" for speed in LINES)], rows)


USED = 0.84  #: part of a line that real rounds use (docs/explanation/performance.md)
CHOSEN = {"10 million": 1e7, "100 million": 1e8, "1 billion": 1e9}  #: parameters for which the page has a strategy
MATCHMAKING = 10
DEFAULT_TIMEOUT, DEFAULT_MATCHMAKING = 30, 5  #: of HivemindStrategy


def speed(mbit: float) -> float:
    """Bytes a second that rounds make of a line."""
    return mbit * 1e6 * USED / 8


def on_line(value_bytes: float, parameters: float, mbit: float) -> float:
    """Seconds of one average."""
    return sent(value_bytes) * parameters / speed(mbit)


LEAST_STEP_S = 30  #: that a step should take, whatever the line is
CATCHES_UP = 2  #: times an average that a hidden one leaves a step: half of the line is for joiners


class Settings(NamedTuple):
    """A strategy for one size and line."""

    mode: str
    options: Dict[str, str]
    gradients_s: float  #: seconds of an average; 0: gradients are not averaged
    state_s: float
    step_s: float  #: seconds that a step should take, at least


def choose(parameters: float, mbit: float) -> Settings:
    """The strategy of the recommended way."""
    mode = recommended(seconds_of(parameters, mbit))
    way = WAYS[mode]
    gradients_s = on_line(CODECS[way.codec], parameters, mbit)
    state_s = on_line(CODECS[way.state_codec], parameters, mbit) if way.state_codec else 0.0
    options = dict(way.options)
    options["matchmaking_time"] = str(MATCHMAKING)
    options["averaging_timeout"] = str(max(60, 10 * math.ceil((MATCHMAKING + 2 * (gradients_s + state_s)) / 10)))
    averaged = gradients_s + state_s / STATE_EVERY
    lasts = CATCHES_UP * averaged if way.hidden else averaged / (1 - ways.COMPUTED)
    return Settings(mode, options, gradients_s, state_s, max(LEAST_STEP_S, lasts))


def seconds_of(parameters: float, mbit: float) -> Dict[str, float]:
    """Seconds of a swarm epoch's averages in each way."""
    return {name: averaging_s(way, parameters, speed(mbit)) for name, way in WAYS.items()}


def all_chosen() -> "List[tuple]":
    return [(size, speed, choose(n, speed)) for size, n in CHOSEN.items() for speed in LINES]


def choices() -> str:
    rows = []
    for size, speed, it in all_chosen():
        both = f"{number(it.gradients_s)} + {number(it.state_s) if it.state_s else 'none'}"
        rows.append([size, f"{speed:,} Mbit/s", it.mode, both, number(it.step_s)])
    seconds_of = "an average of gradients + parameters, s", "a step should take, s, at least"
    return table(["parameters", "slowest line", "mode", *seconds_of], rows)


def program(it: Settings, target: str = "TARGET") -> str:
    options = {"target_batch_size": target, **it.options}
    words = "".join(f"    {name}={value},\n" for name, value in options.items())
    return f"strategy = hivemind_c.HivemindStrategy(\n{words})"


SHOWN = ("10 million", 100), ("10 million", 20), ("100 million", 20)  #: one strategy of each kind that the page shows


def strategies() -> str:
    parts = []
    for size, speed in SHOWN:
        made = program(choose(CHOSEN[size], speed))
        parts.append(f"### {size} parameters, {speed:,} Mbit/s\n\n```python\n{made}\n```")
    return "\n\n".join(parts)


def memory_of(it: Settings) -> Mode:
    """The row of the table of memory for these settings."""
    if "local_steps" in it.options:
        return MODES[6]
    return MODES[3] if "delay_grad_averaging" in it.options else MODES[0]


def answer(parameters: float, mbit: float, batch_s: float, batch: int) -> str:
    """The strategy for a model, its slowest line, and the time of a batch; with seconds, bytes and memory."""
    it, mode = choose(parameters, mbit), memory_of(choose(parameters, mbit))
    batches = math.ceil(it.step_s / batch_s)
    gb = [s * mbit * 1e6 * USED / 8 / 1e9 for s in (it.gradients_s, it.state_s)]
    what = "gradients" if it.state_s else "differences"
    state = f"{number(it.state_s)} s and {number(gb[1])} GB" if it.state_s else "none"
    return "\n".join(
        [
            program(it, str(batches * batch)),
            f"# mode: {it.mode}; an average of {what}: {number(it.gradients_s)} s and {number(gb[0])} GB; "
            f"of parameters: {state}",
            f"# a step should take {number(it.step_s)} s at least: {batches} batches of one peer; "
            "with N peers, N times that target",
            f"# memory of a peer: {number(mode.gpu * parameters / 1e9)} GB on the GPU, "
            f"{number((mode.host + mode.snapshot) * parameters / 1e9)} GB of main memory",
        ]
    )


def largest() -> str:
    """The largest models whose averages fit into the defaults, without compression and with 16 bits."""
    room = DEFAULT_TIMEOUT - DEFAULT_MATCHMAKING
    rows = []
    for speed in LINES:
        sizes = [room / (2 * on_line(value, 1e6, speed)) for value in (4.0, 2.0)]
        rows.append([f"{speed:,} Mbit/s", *(f"{number(size)} million" for size in sizes)])
    return table(["slowest line", "largest model without compression", "both averages with 16 bits"], rows)


def modes_of_lines() -> str:
    rows = []
    for size, n in CHOSEN.items():
        for mbit in LINES:
            seconds = seconds_of(n, mbit)
            least = [number(least_s(way, seconds[name])) for name, way in WAYS.items()]
            rows.append([size, f"{mbit:,} Mbit/s", *least, recommended(seconds)])
    return table(["parameters", "slowest line", *(f"{name}, s" for name in WAYS), "recommended"], rows)


def asked() -> str:
    """The output of the command on the page."""
    return f"```text\n{answer(1e8, 100, 0.4, 32)}\n```"


TABLES = {
    "answer": asked,
    "memory": memory,
    "line": line,
    "seconds": seconds,
    "joining": joining,
    "choices": choices,
    "strategies": strategies,
    "largest": largest,
}


MODE_TABLES = {"modes": modes_of_lines}  #: of MODES_PAGE


def filled(page: str, tables: Dict[str, Any] = TABLES) -> str:
    """The page with its tables made anew."""
    for name, make in tables.items():
        page, count = re.subn(
            rf"(?s)(<!-- {name} -->\n).*?(<!-- {name} -->)", lambda m: f"{m[1]}\n{make()}\n\n{m[2]}", page
        )
        assert count == 1, f"the page has no place for {name}"
    return page


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Prints the strategy for a model and a line. Without options: makes the tables of the page anew."
    )
    parser.add_argument("--parameters", type=float, help="of the model, such as 1e8")
    parser.add_argument("--mbit", type=float, help="the slowest line of the run, in its slower direction")
    parser.add_argument(
        "--batch_s", type=float, default=1.0, help="seconds of one batch of one peer (default: %(default)s)"
    )
    parser.add_argument("--batch", type=int, default=32, help="samples of a batch (default: %(default)s)")
    options = parser.parse_args()
    if options.parameters is None and options.mbit is None:
        PAGE.write_text(filled(PAGE.read_text()))
        MODES_PAGE.write_text(filled(MODES_PAGE.read_text(), MODE_TABLES))
    elif not all(n is not None and 0 < n < 1e15 for n in vars(options).values()):
        parser.error("give --parameters and --mbit, and numbers above 0")
    else:
        print(answer(options.parameters, options.mbit, options.batch_s, options.batch))


if __name__ == "__main__":
    main()
