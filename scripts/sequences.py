"""Draws the sequence pictures of docs/: messages between peers, from top to bottom.

    python scripts/sequences.py [folder]     docs/pictures by default"""

from __future__ import annotations

import pathlib
import sys
from html import escape
from typing import List, NamedTuple, Sequence, Union

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, TOP, STEP = 760, 84, 40  #: pixels: of a picture, above the first line, and from one line to the next
INK, GREY, BLUE, RED = "#1f2328", "#57606a", "#0969da", "#cf222e"


class Say(NamedTuple):
    """An arrow from one lane to another, with words on it."""

    source: str
    target: str
    words: str


class Do(NamedTuple):
    """An event at one lane."""

    lane: str
    words: str


class End(NamedTuple):
    """A lane that ends."""

    lane: str
    words: str


class Picture(NamedTuple):
    title: str
    lanes: Sequence[str]
    lines: Sequence[Union[Say, Do, End]]


A, B, C, HUB = "peer A", "peer B", "peer C", "hub"
PICTURES = {
    "sequence-start": Picture(
        "A start: two peers find each other, and average for the first time",
        [A, B],
        [
            Do(A, "starts, prints its address"),
            Do(A, "trains alone"),
            Do(B, "starts with that address"),
            Say(B, A, "who is in the run?"),
            Say(A, B, "the peers, and the newest state"),
            Do(B, "loads the state, trains"),
            Say(A, B, "samples so far"),
            Say(B, A, "samples so far"),
            Do(A, "together they reach the target"),
            Say(A, B, "its gradients for B's span"),
            Say(B, A, "its gradients for A's span"),
            Say(A, B, "the average of A's span"),
            Say(B, A, "the average of B's span"),
            Do(A, "both step: equal weights"),
        ],
    ),
    "sequence-join": Picture(
        "A join: a third peer comes while two train",
        [A, B, C],
        [
            Do(C, "starts with the address of A"),
            Say(C, A, "who is in the run, and who offers a state?"),
            Say(A, C, "A and B offer the state of epoch 30"),
            Say(A, C, "chunks of the state"),
            Say(B, C, "other chunks, at the same time"),
            Do(C, "checks each chunk, has the state"),
            Do(C, "trains from the next batch on"),
            Say(C, B, "samples so far"),
            Do(B, "all three reach the target"),
            Do(B, "one round of three, equal weights"),
        ],
    ),
    "sequence-kill": Picture(
        "A kill: a peer vanishes in the middle of a round",
        [A, B, C],
        [
            Do(B, "a round begins: each owns a span"),
            Say(A, B, "gradients for B's span"),
            Say(C, A, "gradients for A's span, half of them"),
            End(C, "is killed"),
            Do(A, "connection lost: C is out"),
            Say(A, B, "without C, and C's span is divided"),
            Say(B, A, "gradients for a part of C's span"),
            Say(A, B, "averages"),
            Say(B, A, "averages"),
            Do(A, "both step: equal weights"),
            Do(A, "others gather samples in C's place"),
        ],
    ),
    "sequence-hub": Picture(
        "A hub: two peers that nobody can dial",
        [A, HUB, B],
        [
            Do(HUB, "starts first, prints its address"),
            Say(A, HUB, "dials out, joins the run"),
            Say(B, HUB, "dials out, joins the run"),
            Say(HUB, B, "the newest state, once A offers it"),
            Say(A, HUB, "all of its gradients"),
            Say(B, HUB, "all of its gradients"),
            Say(HUB, A, "the averages"),
            Say(HUB, B, "the averages"),
            Do(A, "steps"),
            Do(B, "steps: equal weights"),
            Say(A, HUB, "the state after the step"),
            Do(HUB, "keeps it for the next peer"),
        ],
    ),
}


def text(x: float, y: float, words: str, colour: str = INK, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}">{escape(words)}</text>'


def drawn(name: str, picture: Picture) -> str:
    """The picture as SVG."""
    count, bottom = len(picture.lanes), TOP + STEP * len(picture.lines)
    height = bottom + 16
    at = {lane: WIDTH * (2 * i + 1) / (2 * count) for i, lane in enumerate(picture.lanes)}
    ends = {one.lane: TOP + STEP * i for i, one in enumerate(picture.lines) if isinstance(one, End)}
    out: List[str] = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="14">',
        f"<title>{escape(picture.title)}</title>",
        f'<defs><marker id="{name}-tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0 0L10 5L0 10z" fill="{BLUE}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff" stroke="#d0d7de"/>',
    ]
    for lane, x in at.items():
        out.append(f'<rect x="{x - 60:g}" y="14" width="120" height="30" rx="4" fill="#2da44e"/>')
        out.append(text(x, 34, lane, "#ffffff"))
        out.append(f'<path d="M{x:g} 44V{ends.get(lane, bottom):g}" stroke="#8c959f" stroke-dasharray="5 4"/>')
    for i, line in enumerate(picture.lines):
        y = TOP + STEP * i
        if isinstance(line, Say):
            source, target = at[line.source], at[line.target]
            middle = (source + target) / 2
            out.append(text(middle, y - 6, line.words))
            line_to = f'd="M{source:g} {y}H{target:g}" fill="none" stroke="{BLUE}" stroke-width="2"'
            out.append(f'<path {line_to} marker-end="url(#{name}-tip)"/>')
            continue
        x, wide = at[line.lane], 8.2 * len(line.words) + 16
        left = min(max(x - wide / 2, 6), WIDTH - wide - 6)
        colour = RED if isinstance(line, End) else GREY
        box = f'x="{left:g}" y="{y - 20}" width="{wide:g}" height="26"'
        out.append(f'<rect {box} rx="4" fill="#f6f8fa" stroke="{colour}"/>')
        out.append(text(left + wide / 2, y - 2, line.words, colour))
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/pictures")
    for name, picture in PICTURES.items():
        (folder / f"{name}.svg").write_text(drawn(name, picture))
