"""Real processes: one trainer goes, another comes, and nobody stands still."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from benchmarks.rows import comings  # noqa: E402

PATIENT_S = 4.0  # a busy machine may stand still by itself; without the goodbye's rules it is 13 s
BACK_S = 8.0  # likewise; 20 to 60 s


FIRST_OF_TWO = pytest.param(1, True, marks=pytest.mark.long, id="the first of two leaves")


@pytest.mark.parametrize("how", ["polite", "killed"])
@pytest.mark.parametrize("stay, first_leaves", [pytest.param(1, False, id="one stays"), FIRST_OF_TWO, pytest.param(3, False, id="three stay")])
def test_peer_that_is_replaced_holds_up_nobody(how, stay, first_leaves):
    seen = comings.story(sys.executable, "hivemind_c", how, stay, 60, first_leaves)
    assert seen["wait_s"] < PATIENT_S and seen["back_s"] < BACK_S, seen
