"""Newcomers on the lines of homes, in network namespaces: judged by what the peers recorded (docs/design/log.md)."""

import pathlib
import sys

import pytest

from hivemind_c.doctor import records
from support import Replays

sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))

from benchmarks.home_scene import Scene  # noqa: E402
from benchmarks.programs import build_c  # noqa: E402
from benchmarks.rows.home_line import turn  # noqa: E402

AT_ONCE = dict(
    delay_grad_averaging=False, delay_optimizer_step=False, delay_state_averaging=False, offload_optimizer=False
)


def play(folder, monkeypatch, mbit, **differs):
    """Returns the figures of a scene, and the newcomer's records. The others lose no epoch beside it."""
    build_c()
    monkeypatch.setenv("HIVEMIND_RECORD", str(folder))
    figures = turn("open", mbit, first=1, alone_s=0.0, after_s=0.0, **differs)
    lines = records.read(str(folder))
    joins = [line for line in lines if line["what"] == "join"][-1]
    newcomer = joins["peer"]
    for line in lines:
        is_beside = line["time"] > joins["time"] and line["peer"] != newcomer
        assert not is_beside or line["what"] not in ("load", "left_out", "doubt"), line
    Replays(folder).check()
    return figures, [line for line in lines if line["peer"] == newcomer]


def is_in(mine):
    """The newcomer loaded one state, repeated the steps since, and averages with the others, whose replica it has."""
    said = [line["what"] for line in mine]
    assert said.count("loaded") == 1 and "repeat" in said and "doubt" not in said, said
    groups = [line["members"] for line in mine if line["what"] == "gradients"]
    assert groups and all(len(set(marks.values())) == 1 for marks in groups), groups


def test_newcomer_with_a_load_beyond_an_epoch_comes_in(tmp_path, monkeypatch):
    scene = dict(parameters=480_000, batches=12, with_s=60.0, meets=1, options=AT_ONCE)
    _, mine = play(tmp_path, monkeypatch, 10, **scene)
    is_in(mine)


@pytest.mark.long
@pytest.mark.parametrize("mbit, batches", [(100, 24), (20, 72)])
def test_newcomer_is_in_within_its_time(tmp_path, monkeypatch, mbit, batches):
    scene = Scene(batches=batches)
    goal_s = scene.goal_s(mbit)
    figures, mine = play(tmp_path, monkeypatch, mbit, batches=batches, with_s=1.5 * goal_s, meets=2)
    is_in(mine)
    assert figures["joiner_together_s"] < goal_s
