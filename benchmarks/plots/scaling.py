"""The table and the chart (docs/pictures/scaling.svg) of benchmarks/plots/scaling.json, which the row `scaling` measures.

    python -m benchmarks scaling --json --keep turns > benchmarks/plots/scaling.json
    python -m benchmarks.plots.scaling

It needs nothing but Python.
"""

from __future__ import annotations

import json
import math
import pathlib
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA, PICTURE = ROOT / "benchmarks/plots/scaling.json", ROOT / "docs/pictures/scaling.svg"
COLOURS = {"exact": "#64748b", "delayed": "#0284c7", "local": "#d97706"}
NAMES = {"exact": "exact, 16 bits", "delayed": "delayed, 8 bits", "local": "local steps, 8 bits"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 200, 150, 60, 70, 60  #: of a panel, in pixels


class Turn(NamedTuple):
    """The figures of one mode, line and number of peers."""

    speed: float  #: samples per second
    share: float  #: of the speed of as many machines without a network
    losses: Dict[int, float]  #: by seconds after the first batch


Turns = Dict[Tuple[str, int, int], Turn]  #: by mode, Mbit/s and peers
Curves = Dict[str, List[Optional[float]]]


def turns_of(outcome: dict) -> Turns:
    """{(mode, Mbit/s, peers): Turn} of the row's JSON. One peer was measured on one line, and is the same on all."""
    figures, found = outcome["figures"], {}
    for name, share in outcome["ratios"].items():
        mode, mbit, peers = name.split("_")
        losses = {int(key.split("_")[-2]): value for key, value in figures.items() if key.startswith(f"{name}_loss_")}
        found[mode, int(mbit), int(peers)] = Turn(figures[f"{name}_samples_per_s"], share, losses)
    lines = {mbit for _, mbit, _ in found}
    alone = {mode: turn for (mode, _, peers), turn in found.items() if peers == 1}
    return {**{(mode, mbit, 1): turn for mode, turn in alone.items() for mbit in lines}, **found}


def axes(turns: Turns) -> Tuple[List[str], List[int], List[int]]:
    """The modes, lines and numbers of peers that were measured, in order."""
    modes = [mode for mode in COLOURS if any(key[0] == mode for key in turns)]
    return modes, sorted({key[1] for key in turns}), sorted({key[2] for key in turns})


def table(turns: Turns) -> str:
    """The table, in Markdown."""
    modes, lines, numbers = axes(turns)
    seconds = sorted({after for turn in turns.values() for after in turn.losses})
    head = ["line", "peers", *(f"{NAMES[mode]}: samples/s" for mode in modes)]
    head += [f"loss after {after} s: {', '.join(modes)}" for after in seconds]
    rows = [head, ["---"] * len(head)]
    for mbit in lines:
        for peers in numbers:
            here = [turns.get((mode, mbit, peers)) for mode in modes]
            row = [f"{mbit:,} Mbit/s", str(peers)]
            row += ["not measured" if turn is None else f"{turn.speed:.1f} ({turn.share:.2f})" for turn in here]
            row += [", ".join(loss_of(turn, after) for turn in here) for after in seconds]
            rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def loss_of(turn: Optional[Turn], after: int) -> str:
    return "none" if turn is None or after not in turn.losses else f"{turn.losses[after]:.2f}"


def panel(at: Tuple[float, float], title: str, numbers: Sequence[int], most: float, curves: Curves) -> List[str]:
    """A panel: a curve for each mode over the number of peers; one of no mode is dashed."""
    left, top = at

    def x(peers: float) -> float:
        return left + WIDTH * (peers - numbers[0]) / max(1, numbers[-1] - numbers[0])

    def y(value: float) -> float:
        return top + HEIGHT * (1 - value / most)

    out = [f'<text x="{left}" y="{top - 12}" font-size="12">{title}</text>']
    for step in range(5):
        value = most * step / 4
        out.append(f'<path d="M{left} {y(value):.1f}h{WIDTH}" stroke="#e2e8f0"/>')
        out.append(f'<text x="{left - 8}" y="{y(value) + 4:.1f}" font-size="10" text-anchor="end">{value:.3g}</text>')
    below = f'y="{top + HEIGHT + 14}" font-size="10" text-anchor="middle"'
    out += [f'<text x="{x(peers):.1f}" {below}>{peers}</text>' for peers in numbers]
    for name, values in curves.items():
        points = [(x(peers), y(value)) for peers, value in zip(numbers, values) if value is not None]
        path = "".join(f"{'L' if i else 'M'}{px:.1f} {py:.1f}" for i, (px, py) in enumerate(points))
        colour, dashes = COLOURS.get(name, "#94a3b8"), "" if name in COLOURS else ' stroke-dasharray="4 4"'
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        if name in COLOURS:
            out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in points]
    return out


def draw(turns: Turns) -> str:
    """The picture, as SVG: samples a second above, and loss below, a column for each line."""
    modes, lines, numbers = axes(turns)
    after = max(after for turn in turns.values() for after in turn.losses)
    width, height = LEFT + len(lines) * (WIDTH + GAP), TOP + 2 * (HEIGHT + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for i, mode in enumerate(modes):
        out.append(f'<rect x="{LEFT + 170 * i}" y="14" width="12" height="9" fill="{COLOURS[mode]}"/>')
        out.append(f'<text x="{LEFT + 170 * i + 18}" y="22" font-size="11">{NAMES[mode]}</text>')
    dashed, named = LEFT + 170 * len(modes), "so many machines without a network"
    out.append(f'<path d="M{dashed} 18.5h20" stroke="#94a3b8" stroke-width="2" stroke-dasharray="4 4"/>')
    out.append(f'<text x="{dashed + 26}" y="22" font-size="11">{named}</text>')
    (_, _, peers), some = next(iter(turns.items()))
    alone = some.speed / some.share / peers  # one machine without a network
    worst = math.ceil(max(turn.losses[after] for turn in turns.values() if after in turn.losses))
    for i, mbit in enumerate(lines):
        left = LEFT + i * (WIDTH + GAP)
        here = {mode: [turns.get((mode, mbit, peers)) for peers in numbers] for mode in modes}
        speeds = {mode: [turn and turn.speed / alone for turn in found] for mode, found in here.items()}
        losses = {mode: [turn and turn.losses.get(after) for turn in found] for mode, found in here.items()}
        speeds["perfect"] = [float(peers) for peers in numbers]
        out += panel((left, TOP), f"{mbit:,} Mbit/s: speed, by peers", numbers, numbers[-1], speeds)
        out += panel((left, TOP + HEIGHT + GAP), f"loss after {after} s, by peers", numbers, worst, losses)
    return "\n".join([*out, "</svg>"]) + "\n"


def read() -> Turns:
    """The turns of the file."""
    return turns_of(json.loads(DATA.read_text().splitlines()[-1]))


def main() -> None:
    turns = read()
    print(table(turns))
    PICTURE.write_text(draw(turns))


if __name__ == "__main__":
    main()
