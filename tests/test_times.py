"""The parts of `make test` take no longer than tests/times.txt says."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import times  # noqa: E402

WAS = {"C": {"cpu_s": 100.0, "wall_s": 60.0, "unit_ms": 8.0}}


def seen(**changes):
    return {"C": {**WAS["C"], **changes}}


def test_table_has_each_part():
    assert list(times.table_of(times.TABLE.read_text())) == times.parts()


def test_newest_run_is_within_the_table():
    """A clean clone has none; a run is judged by the one after it."""
    if times.NEWEST.exists():
        told = json.loads(times.NEWEST.read_text())
        grown = times.grown(times.table_of(times.TABLE.read_text()), told["parts"], told["others"])
        assert not grown, "\n".join([*grown, "make it shorter, or commit what `make times` writes and say why"])


@pytest.mark.parametrize(
    "now, others, is_grown",
    [
        (dict(cpu_s=119.0), 0.0, False),
        (dict(cpu_s=121.0), 0.0, True),
        (dict(cpu_s=121.0), 0.9, True),
        (dict(cpu_s=200.0, unit_ms=16.0), 0.0, False),  # on a machine half as fast
        (dict(cpu_s=100.0, unit_ms=4.0), 0.0, True),  # on one that is twice as fast
        (dict(wall_s=80.0), 0.0, True),  # it waits
        (dict(wall_s=80.0), 0.5, False),  # or others have had its processors
    ],
)
def test_part_that_grew_by_a_fifth_is_told(now, others, is_grown):
    assert bool(times.grown(WAS, seen(**now), others)) == is_grown


def test_few_seconds_more_are_no_growth():
    small = {"dht": {"cpu_s": 4.0, "wall_s": 9.0, "unit_ms": 8.0}}
    assert not times.grown(small, {"dht": {"cpu_s": 8.0, "wall_s": 18.0, "unit_ms": 8.0}}, 0.0)


def test_unknown_part_is_told():
    assert times.grown({}, seen(), 0.0) == ["C is not in the table"]


def test_command_is_a_part_with_its_exit_code(tmp_path, monkeypatch):
    begun, newest = tmp_path / "begun.json", tmp_path / "newest.json"
    monkeypatch.setattr(times, "BEGUN", begun)
    code = times.run("C", [sys.executable, "-c", "import sys\nfor _ in range(10**6): pass\nsys.exit(3)"])
    assert code == 3
    parts = times.complete({"dht": times.as_part(1.0, 2.0, [0.01])}, begun, newest)
    assert parts["C"]["cpu_s"] >= 0 and parts["dht"] == {"cpu_s": 1.0, "wall_s": 2.0, "unit_ms": 10.0}
    assert times.table_of(times.as_table(parts)) == parts == json.loads(newest.read_text())["parts"]
    assert times.complete({}, begun, newest) is None
