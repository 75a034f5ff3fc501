"""The parts of a row: contestants measured in turns, the ratios between them, and how the outcome is said.

A row is a module in benchmarks/rows/ with
    a docstring     whose first line says what is measured
    GOALS           {ratio: the least it should be}; may be empty
    ROUNDS          how many rounds, unless --rounds says otherwise
    measure(run)    calls run.interleave, run.ratio and run.figure
It asserts nothing: it measures, and says beside each ratio what was aimed at.
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, List, Mapping, Optional, Sequence

from benchmarks.kept import Kept
from benchmarks.stats import NOTHING, Spread, paired_ratios, spread, turns

OTHERS = "plain", "hivemind"  #: contestants so named do not import hivemind_c
Sample = Dict[str, float]  #: what one turn of one contestant gave: {"calls_per_s": ..., "cpu_s": ...}


class BenchmarkError(Exception):
    """Something a benchmark needs is missing or broken; one sentence with cause and remedy."""


class _Absent(Dict[str, float]):
    """The sample of a contestant that is not measured."""

    def __missing__(self, measure: str) -> float:
        return math.nan


class Run:
    """One run of one row: collects ratios and figures.

    within: enters the build of hivemind_c that each contestant is set against, in place of plain PyTorch and hivemind. None: none.
    kept: samples of earlier runs, which are not measured again. None: there are none.
    is_quick: a row with a short form takes it, to see that it works; its figures say nothing.
    """

    def __init__(
        self,
        name: str,
        rounds: int,
        say: Callable[[str], None] = lambda text: None,
        within: Optional[Callable[[], ContextManager[None]]] = None,
        kept: Optional[Kept] = None,
        is_quick: bool = False,
    ):
        self.name, self.rounds, self.say, self.within = name, rounds, say, within
        self.kept, self.is_quick = kept, is_quick
        self.round = 0  #: number of the round that is measured, for seeds
        self.ratios: Dict[str, Spread] = {}
        self.figures: Dict[str, Spread] = {}
        self.figure("load_before", [os.getloadavg()[0]])

    def interleave(
        self, contestants: Mapping[str, Callable[[], Sample]], rounds: Optional[int] = None, warm_up: Optional[Sequence[str]] = None
    ) -> Dict[str, List[Sample]]:
        """Runs each contestant once in every round, in turns (A B - B A - ...), after one round that does not count: of all, or of `warm_up`."""
        if self.within is not None:
            return self._against(contestants, rounds, warm_up, self.within)
        samples: Dict[str, List[Sample]] = {name: [] for name in contestants}
        rounds = rounds or self.rounds
        for name in contestants if warm_up is None else warm_up:
            self.say(f"{self.name}: warming up {name}")
            contestants[name]()
        for number, name in turns(list(contestants), rounds):
            self.say(f"{self.name}: round {number + 1} of {rounds}, {name}")
            self.round = number
            sample = None if self.kept is None else self.kept.sample(self.name, name, number)
            if sample is None:
                sample = contestants[name]()
                if self.kept is not None:
                    self.kept.keep(self.name, name, number, sample)
            samples[name].append(sample)
        return samples

    def _against(
        self,
        contestants: Mapping[str, Callable[[], Sample]],
        rounds: Optional[int],
        warm_up: Optional[Sequence[str]],
        within: Callable[[], ContextManager[None]],
    ) -> Dict[str, List[Sample]]:
        """The same of our contestants alone, each beside itself with the other build: ratios "CONTESTANT_MEASURE_of_wheel", this tree's by the wheel's."""

        def other(contestant: Callable[[], Sample]) -> Sample:
            with within():
                return contestant()

        ours = {name: one for name, one in contestants.items() if not name.startswith(OTHERS)}
        both = {f"{name}{side}": one if not side else functools.partial(other, one) for name, one in ours.items() for side in ("", "_wheel")}
        plain = Run(self.name, rounds or self.rounds, self.say)
        samples = plain.interleave(both, warm_up=None if warm_up is None else ())
        for name in ours:
            for measure in samples[name][0].keys() & samples[f"{name}_wheel"][0].keys():
                sides = [column(samples[one], measure) for one in (name, f"{name}_wheel")]
                if all(value > 0 for side in sides for value in side):
                    self.ratio(f"{name}_{measure}_of_wheel", *sides)
        return {**{name: [_Absent()] for name in contestants}, **samples}

    def ratio(self, name: str, top: Sequence[float], bottom: Sequence[float]) -> Spread:
        """The median of top / bottom, round by round. By custom more is better: rates as ours / theirs, times as theirs / ours."""
        if any(map(math.isnan, (*top, *bottom))):  # of a contestant that is not measured
            return NOTHING
        self.ratios[name] = spread(paired_ratios(top, bottom))
        return self.ratios[name]

    def figure(self, name: str, values: Sequence[float]) -> Spread:
        """A number with its unit last in its name: "ours_calls_per_s"."""
        if any(map(math.isnan, values)):  # as in ratio
            return NOTHING
        self.figures[name] = spread(values)
        return self.figures[name]

    def figures_of(self, samples: Mapping[str, Sequence[Sample]]) -> None:
        """Every measure of every contestant, as figures "CONTESTANT_MEASURE"."""
        for who, list_of in samples.items():
            for measure in list_of[0]:
                self.figure(f"{who}_{measure}", column(list_of, measure))


def column(samples: Sequence[Sample], measure: str) -> List[float]:
    """One measure of all samples."""
    return [sample[measure] for sample in samples]


def short(value: float) -> float:
    """Four digits that count; the rest is noise."""
    return float(f"{value:.4g}")


def vectors() -> str:
    """The widest vectors of this processor, which say more of a machine than its name: codecs choose their loops by them."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return next((name for name in ("avx512vbmi", "avx2") if name in flags), "other")


def as_json(run: Run, goals: Mapping[str, float]) -> str:
    """The outcome on one line. `ratios` and `figures` are medians; `spread` holds [lower quartile, upper quartile, rounds] of each."""
    both = {**run.ratios, **run.figures}
    outcome: Dict[str, Any] = {
        "row": run.name,
        "ratios": {name: short(of.median) for name, of in run.ratios.items()},
        "figures": {name: short(of.median) for name, of in run.figures.items()},
        "spread": {name: [short(of.low), short(of.high), of.count] for name, of in both.items() if of.count > 1},
        "goals": dict(goals),
        "machine": {
            "cpus": os.cpu_count(),
            "vectors": vectors(),
            "python": sys.version.split()[0],
            "load_after": short(os.getloadavg()[0]),
        },
    }
    return json.dumps(outcome)


def as_table(run: Run, goals: Mapping[str, float]) -> str:
    """The outcome for people: ratios first, then the figures they came from."""
    lines = [f"{run.name}: median (quartiles) of {run.rounds} rounds, measured in turns"]
    width = max(len(name) for name in (*run.ratios, *run.figures))
    for name, of in run.ratios.items():
        goal = f"   goal >= {goals[name]:g}: {'met' if of.median >= goals[name] else 'not met'}" if name in goals else ""
        lines.append(f"  {name:<{width}}  {of.median:>10.3g} x ({of.low:.3g} ... {of.high:.3g}){goal}")
    for name, of in run.figures.items():
        around = f" ({of.low:.4g} ... {of.high:.4g})" if of.count > 1 else ""
        lines.append(f"  {name:<{width}}  {of.median:>10.4g}{around}")
    if run.figures["load_before"].median > 0.5:
        lines.append("  Others were using this machine when it began: take nothing here as final.")
    return "\n".join(lines)
