"""python -m benchmarks.plots.codec_error: draws the row codec-error into docs/pictures/codec_error.png"""

from __future__ import annotations

from typing import Dict

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

from benchmarks.peers import python as their_python, stands  # noqa: E402
from benchmarks.programs import ROOT, our_python  # noqa: E402
from benchmarks.rows.codec_error import DATA, OURS, THEIRS  # noqa: E402

TITLES = {"normal": "normal", "heavy": "heavy-tailed (Student's t, 3)", "gradient": "gradients of a small network"}
CODECS = ("float16", "scaled_float16", "bfloat16", "uniform8", "quantile8", "blockwise8", "linear8", "linear4")
COLOURS = dict(zip(CODECS, pyplot.get_cmap("tab10").colors))
#: points of 16 and 8 bits lie upon each other: they are spread a little to the sides
ASIDE = dict(float16=-0.5, scaled_float16=0.5, uniform8=-0.35, quantile8=-0.1, blockwise8=0.1, linear8=0.15)


def draw(axes, data: str, ours: Dict[str, float], theirs: Dict[str, float]) -> None:
    for codec in CODECS:
        bits, colour = ours[f"{data}_{codec}_bits"] + ASIDE.get(codec, 0), COLOURS[codec]
        axes.plot(bits, ours[f"{data}_{codec}_error"], "o", color=colour, markersize=8, label=codec)
        if f"{data}_{codec}_feedback_error" in ours:
            axes.plot(bits, ours[f"{data}_{codec}_feedback_error"], "*", color=colour, markersize=12, label=f"{codec}, sum of 20 rounds with feedback")
        if f"{data}_{codec}_error" in theirs:
            axes.plot(bits, theirs[f"{data}_{codec}_error"], "x", color=colour, markersize=9, markeredgewidth=2, label=f"{codec}, hivemind 1.1.12")
    axes.set(title=TITLES[data], xlabel="bits per element", yscale="log", ylim=(1e-4, 1), xlim=(3, 18), xticks=[4, 8, 16])
    axes.grid(True, which="major", alpha=0.3)


def main() -> None:
    ours = our_python(DATA + OURS)
    theirs = their_python(DATA + THEIRS) if stands() else {}
    figure, all_axes = pyplot.subplots(1, 3, figsize=(13, 5.2), sharey=True)
    for axes, data in zip(all_axes, TITLES):
        draw(axes, data, ours, theirs)
    all_axes[0].set_ylabel("relative error |x - v| / |x|")
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=5, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.14, 1, 1))
    figure.savefig(ROOT / "docs/pictures/codec_error.png", dpi=110)


if __name__ == "__main__":
    main()
