"""The page of figures: few rows, goals in words, commands that exist, and a chart of just these figures."""

import re
import subprocess
import sys

from test_book import ENV, ROOT

sys.path.insert(0, str(ROOT))
from benchmarks.plots import performance  # noqa: E402

TEXT = performance.PAGE.read_text()


def test_page_has_at_most_twelve_figures_with_words():
    found = performance.rows(TEXT)
    assert 6 <= len(found) <= 12 and all(row.path or row.best for row in found)
    assert all(re.search(r": (met|missed)$", row.goal) for row in found)
    assert re.search(r"\*\*Machine:\*\* .*\n\*\*Date:\*\* ", TEXT)


def test_word_for_a_goal_agrees_with_its_figure():
    for row in performance.rows(TEXT):
        goal = performance.number(row.goal)
        measured = row.best if "without TLS" in row.goal or row.path is None else row.path
        assert ("missed" in row.goal) == (measured < goal), row


def test_rows_name_benchmarks_that_exist():
    listed = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"], cwd=ROOT, env=ENV, capture_output=True, text=True
    ).stdout
    for row in performance.rows(TEXT):
        assert re.search(rf"(?m)^\W*{row.command}\b", listed), row.command


def test_chart_shows_the_figures_of_the_table():
    assert performance.PICTURE.read_text() == performance.draw(TEXT), "run make pages"
    changed = TEXT.replace("| 6.6 |", "| 6.7 |")
    assert changed != TEXT and performance.draw(changed) != performance.draw(TEXT)
