"""Records of machines (HIVEMIND_RECORD): what the doctor says of their replay, and one of each kind of upset."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import _hivemind_c
from hivemind_c import _record
from hivemind_c.doctor.replays import replay, words
from support import Replays, module_of

RECORDS = Path(__file__).resolve().parents[2] / "records"
make = module_of(RECORDS / "make.py")


def doctor(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "hivemind_c.cli.doctor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)


@pytest.fixture
def changed(tmp_path):
    """A folder with a record, and another one in which the peer steps with other samples than the machine says."""
    shutil.copy(RECORDS / "restored.events", tmp_path / "as_it_was.events")
    text = (RECORDS / "restored.events").read_text()
    assert "do ACT action=STEP" in text
    (tmp_path / "changed.events").write_text(text.replace("do ACT action=STEP", "do ACT action=SUM", 1))
    return tmp_path


@pytest.mark.parametrize("kind", make.KINDS)
def test_record_of_an_upset_is_decided_alike(kind):
    path = RECORDS / f"{kind}.events"
    assert make.has(path.read_text(), make.KINDS[kind][1]), "the record has the upset"
    found = replay(path)
    assert found.is_alike and found.events > 3 and not found.note, words(found)


def test_each_record_is_of_a_known_kind():
    assert {path.stem for path in RECORDS.glob("*.events")} == set(make.KINDS)


def test_doctor_shows_the_first_difference(changed):
    shown = doctor("--replay", changed)
    assert shown.returncode == 1
    same, differs, event, recorded, made = shown.stdout.splitlines()
    assert same.startswith("as_it_was.events: ") and same.endswith(", each decided as recorded")
    assert differs.startswith("changed.events: ") and "of which 1 are decided otherwise; the first is" in differs
    assert event.strip().startswith("event ") and "(ROUND at " in event and "in ENDING" in event
    assert "recorded: do ACT action=SUM " in recorded and "made now: do ACT action=STEP " in made


def test_doctor_gives_replays_as_json(changed):
    shown = doctor("--replay", changed, "--json")
    same, differs = map(json.loads, shown.stdout.splitlines())
    assert shown.returncode == 1 and same["differing"] == 0 and differs["differing"] == 1


def test_folder_without_events_is_refused(tmp_path):
    shown = doctor("--replay", tmp_path)
    assert shown.returncode == 2 and "no events in" in shown.stderr


def test_bytes_that_are_no_record_are_a_fault(tmp_path):
    (tmp_path / "no.events").write_bytes(b"\x1b[2J no record\n")
    shown = doctor("--replay", tmp_path)
    assert shown.returncode == 1 and "no.events: cannot read line 1 of the record" in shown.stdout
    assert "\x1b" not in shown.stdout
    with pytest.raises(ValueError):
        _hivemind_c.replay(b"\xff\n")


def test_difference_fails_the_test_that_recorded_it(changed):
    with pytest.raises(AssertionError, match="decided otherwise"):
        Replays(changed).check()
    (changed / "changed.events").unlink()
    check = Replays(changed)
    assert len(check.check()) == 1 and not check.check()


def test_files_of_decisions_end_at_their_limit(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(_record.VARIABLE, str(tmp_path))
    monkeypatch.setattr(_record, "MOST", 300)
    record = _record.Recorder("12D3KooWabcdef", "run", "trainer")
    for epoch in range(9):
        record("load", epoch=epoch)
    assert "has reached its limit" in caplog.text and not record
    assert 0 < sum(path.stat().st_size for path in tmp_path.iterdir()) <= 300


def test_events_reach_a_machine_through_its_record():
    sources = [path for path in (RECORDS.parents[1] / "csrc").rglob("*.c") if "build" not in path.parts]
    assert {path.name for path in sources if "hv_epoch_on(" in path.read_text()} == {"epoch.c", "trace.c", "replay.c"}


def test_options_are_read_by_the_plan_alone():
    """Beside it a machine passes them on when it is set up, and a record names them."""
    core = RECORDS.parents[1] / "csrc" / "core" / "epoch"
    reads = re.compile(r"options(?:\.|->)\w+|\bo->(?:use|delay|average)_\w+")
    readers = {path.name: reads.findall(path.read_text()) for path in core.glob("*.c")}
    assert {name for name, found in readers.items() if found} == {"plan.c", "fields.c", "driver.c"}
    assert readers["driver.c"] == ["options.auxiliary"]  # set, for a peer without hands


def test_nothing_is_recorded_without_the_variable(monkeypatch):
    monkeypatch.delenv(_record.VARIABLE)
    assert _record.events_path("12D3KooWabcdef") == ""
