"""python -m benchmarks.plots.performance: draws the table of docs/explanation/performance.md into docs/pictures.

It needs nothing but Python, and a test draws the picture again to compare.
"""

from __future__ import annotations

import html
import math
import pathlib
import re
from typing import List, NamedTuple, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, PICTURE = ROOT / "docs/explanation/performance.md", ROOT / "docs/pictures/performance.svg"
LABELS, BARS, ROW, TOP = 430, 300, 30, 40  #: widths and heights in pixels
LOW, HIGH = math.log10(0.2), math.log10(200)  #: the axis, logarithmic


class Row(NamedTuple):
    what: str
    path: Optional[float]  # None: not measured
    best: Optional[float]
    goal: str
    command: str


def number(cell: str) -> Optional[float]:
    found = re.match(r"[0-9.]+", cell)
    return float(found.group()) if found else None


def rows(page: str) -> List[Row]:
    table = page.split("<!-- figures -->")[1].strip().splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [Row(what, number(path), number(best), goal, command.strip("`")) for what, path, best, goal, command in cells]


def x_of(value: float) -> float:
    return LABELS + BARS * (math.log10(value) - LOW) / (HIGH - LOW)


def bar(value: Optional[float], y: float, colour: str) -> List[str]:
    if value is None:
        return []
    left, right = sorted((x_of(1), x_of(value)))
    return [
        f'<rect x="{left:.1f}" y="{y}" width="{max(right - left, 1):.1f}" height="9" fill="{colour}"/>',
        f'<text x="{right + 4:.1f}" y="{y + 8.5}" font-size="10">{value:g}</text>',
    ]


def draw(page: str) -> str:
    """The picture, as SVG."""
    found = rows(page)
    width, height = LABELS + BARS + 60, TOP + ROW * len(found) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<rect x="10" y="12" width="12" height="9" fill="#d97706"/><text x="27" y="20" font-size="11">program</text>',
        '<rect x="90" y="12" width="12" height="9" fill="#94a3b8"/><text x="107" y="20" font-size="11">best case</text>',
    ]
    for value in (1, 10, 100):
        out.append(f'<path d="M{x_of(value):.1f} {TOP - 8}V{height - 6}" stroke="#cbd5e1"/>')
        out.append(f'<text x="{x_of(value) - 6:.1f}" y="{TOP - 14}" font-size="11">{value} x</text>')
    for at, row in enumerate(found):
        y = TOP + at * ROW
        out.append(f'<text x="10" y="{y + 13}" font-size="11">{html.escape(row.what)}</text>')
        out += bar(row.path, y, "#d97706") + bar(row.best, y + 11, "#94a3b8")
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    PICTURE.write_text(draw(PAGE.read_text()))


if __name__ == "__main__":
    main()
