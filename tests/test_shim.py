"""Python is the hands: what decides by a clock is the core's. Each exception has its reason, and none is left over."""

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "python/hivemind_c"
FOLDERS = "optim", "averaging", "hub"
CLOCK = re.compile(
    r"\btime\.(?:sleep|monotonic|time)\b|\bTimer\(|\b(?:ended|_ended|event|_cond)\.wait\(|thread\.join\((?:\d|timeout)"
)
MAY = {
    "optim/background.py": "shutdown_timeout limits how long the end of a program waits",
    "optim/clock_check.py": "compares this machine's clock with those of others",
    "optim/epoch_clock.py": "measures what is told in records, and decides nothing",
    "optim/layout_report.py": "renews a record",
    "optim/reach_check.py": "warns",
    "optim/reporter.py": "renews a record",
    "optim/setup_watch.py": "waits for the setups of others before the first batch",
    "optim/speed.py": "measures what programs of hivemind ask for",
    "optim/state_offers.py": "offers the state of a program that has no Optimizer",
    "averaging/control.py": "the moment at which a search began, for reports",
    "averaging/layout_records.py": "the lease of a record",
    "averaging/on_demand.py": "a state that is made when somebody asks",
    "averaging/state.py": "the timeout of a load that tries several donors",
    "hub/keeper.py": "looks for states again and again",
    "hub/receiver.py": "tells the core where the trainers are",
    "hub/rounds.py": "looks up setup and layout of a run again and again",
    "hub/run.py": "writes checkpoints",
}


def users():
    """Files that read a clock or wait for a time, with the first such line."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).glob("*.py")):
            lines = [line.strip() for line in path.read_text().splitlines() if CLOCK.search(line)]
            if lines:
                found[f"{folder}/{path.name}"] = lines[0]
    return found


def test_no_other_file_reads_a_clock():
    found = users()
    assert {name: line for name, line in found.items() if name not in MAY} == {}
    assert sorted(set(MAY) - set(found)) == [], "an exception that nothing needs any more"


def test_pattern_finds_a_clock_and_a_timed_wait():
    for line in ("until = time.monotonic() + 3", "time.sleep(0.1)", "while not ended.wait(LOOK_S):", "Timer(1, f)"):
        assert CLOCK.search(line), line
