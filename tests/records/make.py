"""Makes the records beside it: for each kind of upset, the shortest record of a real run that has it.

    .venv/bin/python tests/records/make.py killed hub
    .venv/bin/python tests/records/make.py --of FOLDER

Each comes from the test that is named with it, which runs with a folder of its own for records, or from a folder that
HIVEMIND_RECORD named in an earlier run of tests. tests/py/doctor/test_replays.py replays them all.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MOST = 48 << 10  #: bytes of a record that is kept
OPTIM, HUB = "tests/py/optim/test_optim_", "tests/py/hub/test_"
FAILED_LOAD = "test_failed_load_drops_the_sums_and_keeps_all_else"
LATE_CLIENT = "test_late_client_gets_the_state_of_clients_through_a_hub"

#: {kind: (the test, what the record has: regular expressions that stand in it in this order)}
KINDS = {
    "killed": (f"{HUB}killed_client.py", ["figures .*n_peers=3", "figures .*n_peers=2", "on ROUND"]),
    "stopped": (f"{HUB}sleeper.py", ["do TELL action=(LEFT_OUT|ASIDE)", "on LOADED .*ok=1", "do TELL action=ENTERS"]),
    "left_out": (
        f"{HUB}hub_rounds.py::{LATE_CLIENT}",
        ["on ROUND .*outcome=LEFT_OUT", "do LOAD", "on LOADED .*ok=1"],
    ),
    "failed_round": (f"{OPTIM}joining.py", ["on ROUND .*outcome=FAILED", "do TELL action=OWN_STEP"]),
    "failed_load": (f"{OPTIM}joining.py::{FAILED_LOAD}", ["do LOAD", "do TELL action=RESTS"]),
    "late_gradients": (
        f"{OPTIM}lineage.py::test_peer_left_behind_loads_the_others_state",
        ["config .*delay_grad_averaging=1", "do ACT lane=LATE action=STEP", "do ACT action=APPLY"],
    ),
    "late_state": (
        f"{OPTIM}joining.py",
        [r"config .*delay_state_averaging=1 .*=\d\b", "do TRIGGER which=STATE lane=LATE", "on ROUND .*which=STATE"],
    ),
    "local_updates": (
        f"{HUB}hub_rounds.py::test_clients_average_only_their_state_through_a_hub",
        ["config .*use_local_updates=1", "do ACT action=LOCAL_STEP", "on ROUND .*which=STATE"],
    ),
    "auxiliary": (
        f"{OPTIM}swarm.py::test_an_auxiliary_peer_helps_and_changes_nothing",
        ["config .*auxiliary=1", "on ROUND"],
    ),
    "restored": (f"{OPTIM}joining.py", ["on RESTORED", "on ROUND"]),
    "asked": (f"{OPTIM}joining.py", ["on ASKED", "on LOADED .*ok=1"]),
    "overflow": (f"{OPTIM}swarm.py::test_an_overflow_on_one_peer_is_not_the_swarms", ["on OVERFLOW", "on ROUND"]),
    "broke": (
        f"{OPTIM}alone.py::test_defect_10_delayed_error_is_raised_by_the_next_call",
        ["on BROKE", "lost.BROKEN="],
    ),
    "hub": (f"{HUB}hub_rounds.py::{LATE_CLIENT}", ["config .*auxiliary=1", "member .*is_client=1", "on ROUND"]),
    "joiner": (
        f"{OPTIM}joining.py",
        ["do LOAD", "on LOADED .*ok=1", "do TELL action=ENTERS"],
    ),
}


def has(record: str, patterns) -> bool:
    """True if all of the patterns stand in the record, in their order."""
    return re.search("^" + r"$[\s\S]*?^".join(f".*{one}.*" for one in patterns) + "$", record, re.M) is not None


def run(test: str, folder: Path) -> Path:
    """Runs a test, and returns the folder of its records."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "long or not long", test]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "HIVEMIND_RECORD": str(folder)})
    return folder


def pick(folder: Path, patterns):
    """The shortest record of a folder that has the patterns, or None."""
    paths = sorted(folder.rglob("*.events"), key=lambda path: path.stat().st_size)
    return next((path for path in paths if path.stat().st_size <= MOST and has(path.read_text(), patterns)), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"which; by default all: {' '.join(KINDS)}")
    parser.add_argument("--of", metavar="FOLDER", help="records of an earlier run; a kind that it lacks stays as it is")
    options = parser.parse_args()
    ran = {}
    with tempfile.TemporaryDirectory(prefix="records-") as place:
        for kind in options.kinds or KINDS:
            test, patterns = KINDS[kind]
            if not options.of and test not in ran:
                ran[test] = run(test, Path(place, str(len(ran))))
            found = pick(Path(options.of) if options.of else ran[test], patterns)
            if found is not None:
                shutil.copyfile(found, HERE / f"{kind}.events")
            print(kind, f"{found.stat().st_size} bytes" if found else "is in none of the records", flush=True)


if __name__ == "__main__":
    main()
