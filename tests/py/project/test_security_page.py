"""The pages about defences have a row for each kind of message, and name tests that exist."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
STRANGERS = (ROOT / "docs/design/strangers.md").read_text()
PAGE = (ROOT / "docs/design/defences.md").read_text() + STRANGERS


def rows_of_messages():
    """The cells of each row of the table of messages."""
    table = STRANGERS.split("## Each kind of message")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if row[0].strip() != "message"]


def test_page_has_a_row_for_each_kind_of_message():
    kinds = re.findall(r"(?m)^  HV_MSG_(\w+),", (ROOT / "csrc/core/msg.h").read_text())
    named = [name.strip() for row in rows_of_messages() for name in row[0].split(",")]
    assert len(kinds) > 25 and len(named) == len(set(named))
    assert {name.upper() for name in named} == {kind.replace("_", "") for kind in kinds} - {"NONE", "KINDS"}


def test_each_row_of_messages_names_a_test():
    for row in rows_of_messages():
        assert len(row) == 5 and re.search(r"`test_\w+\.c`", row[4]), row


def test_page_names_tests_that_exist():
    there = {path.name for path in (ROOT / "tests").rglob("test_*")}
    named = re.findall(r"`(test_\w+\.(?:c|py))`", PAGE)
    assert len(named) > 30
    assert set(named) <= there
