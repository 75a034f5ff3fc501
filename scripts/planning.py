"""The tables of docs/explanation/planning.md: scripts/planning.py writes them into the page.

Pure: bytes of a parameter in, tables out. tests/py/project/test_planning.py measures the same bytes of a small model.
"""

from __future__ import annotations

import pathlib
import re
from typing import Dict, List, NamedTuple, Sequence

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/explanation/planning.md"
SIZES = {"0.1 billion": 1e8, "1 billion": 1e9, "7 billion": 7e9}
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
]

#: bytes of a value under each codec, its tables included
CODECS: Dict[str, float] = {
    "NoCompression": 4,
    "Float16Compression": 2,
    "Uniform8BitQuantization": 1 + 1024 / 2**17,
    "BlockwiseQuantization": 1 + 4 / 4096,
    "Linear8BitQuantization": 1 + 2 / 64,
    "Linear4BitQuantization": 0.5 + 2 / 64,
}


def sent(value_bytes: float, members: float = float("inf")) -> float:
    """Bytes a parameter that each member of a group sends, and receives, for one average."""
    return 2 * value_bytes * (1 - 1 / members)


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
    head = ["mode", "options", "GPU", "host", "snapshot", *(f"{size}: GPU + host, GB" for size in SIZES)]
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
        for codec in ("NoCompression", "Float16Compression", "Uniform8BitQuantization"):
            bits = 8 * sent(CODECS[codec]) * n
            rows.append([size, f"`{codec}`", *(number(bits / (speed * 1e6)) for speed in LINES)])
    return table(["parameters", "codec", *(f"{speed:,} Mbit/s" for speed in LINES)], rows)


def joining() -> str:
    rows = []
    for what, each in (("none", STATE), ("`Float16Compression`", 2 + MOMENTS), ("none, local updates", FLOAT32)):
        waits = [number(8 * each * 1e9 / (speed * 1e6)) for speed in LINES]
        rows.append([what, f"{each:g}", *(number(each * n / 1e9) for n in SIZES.values()), *waits])
    head = ["`load_state_compression`", "bytes a parameter", *(f"{size}, GB" for size in SIZES)]
    return table([*head, *(f"1 billion at {speed:,} Mbit/s, s" for speed in LINES)], rows)


TABLES = {"memory": memory, "line": line, "seconds": seconds, "joining": joining}


def filled(page: str) -> str:
    """The page with its tables made anew."""
    for name, make in TABLES.items():
        page, count = re.subn(
            rf"(?s)(<!-- {name} -->\n).*?(<!-- {name} -->)", lambda m: f"{m[1]}\n{make()}\n\n{m[2]}", page
        )
        assert count == 1, f"the page has no place for {name}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
