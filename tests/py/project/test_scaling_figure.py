"""The figures of the row `scaling`: whole epochs of events, the table, and the chart of its JSON."""

import json
import re
import sys
import xml.etree.ElementTree

import pytest
from test_book import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks.plots import scaling as chart  # noqa: E402
from benchmarks.rows import scaling as row  # noqa: E402


def events_of(period, batches, until, begin=0.0):
    """Those of a trainer whose epochs end each `period` seconds, with so many batches in each."""
    out, step = [], period / batches
    for i in range(1, int(until / step) + 1):
        ends = i % batches == 0
        out.append({"what": "epoch", "loss": 5 - 0.01 * i} if ends else {"what": "batch"})
        out[-1]["t"] = begin + i * step
    return [{"what": "listens", "t": begin}, *out]


def test_whole_epochs_of_all_trainers_are_counted():
    events = [events_of(6.0, 24, 50.0), events_of(6.0, 12, 50.0, begin=1.0)]
    found = row.outcome_of(events, 16, 30)
    assert found["epochs"] == 4  # from 12 s, the first end after both had one, to the first 30 s after a batch
    assert found["samples_per_s"] == pytest.approx(row.BATCH * (24 + 12) / 6.0)
    assert found["loss_15_s"] == pytest.approx(5 - 0.48) and found["loss_30_s"] == pytest.approx(5 - 1.20)


def test_epochs_that_have_not_ended_give_no_figures():
    assert row.outcome_of([events_of(6.0, 24, 29.0)], 16, 30) is None
    assert row.outcome_of([events_of(6.0, 24, 50.0), events_of(60.0, 24, 50.0)], 16, 30) is None


def test_epochs_without_a_loss_in_time_have_none():
    found = row.outcome_of([events_of(20.0, 24, 90.0)], 16, 30)
    assert "loss_15_s" not in found and found["loss_30_s"] == pytest.approx(5 - 0.24)


def outcome(lines=(20, 100), numbers=(2, 4)):
    """The JSON of a run in which local steps are perfect, and each other mode makes half."""
    ratios, figures = {}, {"load_before": 0.1}
    for mode in chart.COLOURS:
        for mbit, peers in [(lines[0], 1), *((mbit, peers) for mbit in lines for peers in numbers)]:
            name = f"{mode}_{mbit}_{peers}"
            ratios[name] = 1.0 if mode == "local" or peers == 1 else 0.5
            figures[f"{name}_samples_per_s"] = 8.0 * peers * ratios[name]
            figures[f"{name}_loss_30_s"] = 3.0 if mode == "local" else 4.5
    return {"ratios": ratios, "figures": figures}


def test_table_has_each_mode_on_each_line():
    turns = chart.turns_of(outcome())
    lines = chart.table(turns).splitlines()
    assert len(lines) == 2 + 2 * 3
    assert lines[2] == "| 20 Mbit/s | 1 | 8.0 (1.00) | 8.0 (1.00) | 8.0 (1.00) | 4.50, 4.50, 3.00 |"
    assert lines[5].startswith("| 100 Mbit/s | 1 | 8.0 (1.00) |"), "one peer needs no line"
    assert lines[7] == "| 100 Mbit/s | 4 | 16.0 (0.50) | 16.0 (0.50) | 32.0 (1.00) | 4.50, 4.50, 3.00 |"


def test_turn_that_was_not_measured_is_marked():
    some = outcome()
    del some["ratios"]["exact_100_4"], some["figures"]["delayed_100_4_loss_30_s"]
    turns = chart.turns_of(some)
    last = chart.table(turns).splitlines()[-1]
    assert last == "| 100 Mbit/s | 4 | not measured | 16.0 (0.50) | 32.0 (1.00) | none, none, 3.00 |"
    assert chart.draw(turns) != chart.draw(chart.turns_of(outcome()))


def test_chart_has_a_curve_for_each_mode_and_line():
    drawn = chart.draw(chart.turns_of(outcome()))
    xml.etree.ElementTree.fromstring(drawn)
    assert len(re.findall(r'stroke-width="2"/>', drawn)) == 3 * 2 * 2 and drawn.count("dasharray") == 1 + 2
    assert drawn.count("<circle") == 3 * 3 * 2 * 2
    assert "exact, 16 bits" in drawn and "1,000 Mbit/s" not in drawn


def test_picture_is_drawn_of_the_file(tmp_path, monkeypatch, capsys):
    assert chart.PICTURE.exists() == chart.DATA.exists(), "python -m benchmarks.plots.scaling"
    if chart.DATA.exists():
        assert chart.PICTURE.read_text() == chart.draw(chart.read()), "python -m benchmarks.plots.scaling"
    monkeypatch.setattr(chart, "DATA", tmp_path / "scaling.json")
    monkeypatch.setattr(chart, "PICTURE", tmp_path / "scaling.svg")
    chart.DATA.write_text(json.dumps(outcome()) + "\n")
    chart.main()
    turns = chart.turns_of(outcome())
    assert chart.PICTURE.read_text() == chart.draw(turns) and capsys.readouterr().out == chart.table(turns) + "\n"
