"""The frame of the benchmarks: its arithmetic, its order, what it prints. Nothing is measured here."""

import json
import random
import signal
import subprocess
import sys
import time
import types
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks import package  # noqa: E402
from benchmarks.__main__ import all_rows, main  # noqa: E402
from benchmarks.frame import BenchmarkError, Run, as_json, as_table, column  # noqa: E402
from benchmarks.kept import Kept  # noqa: E402
from benchmarks.programs import last_json, run as run_program  # noqa: E402
from benchmarks.stats import paired_ratios, spread, turns  # noqa: E402


def fake_row(log=None, fail=None, goals=None):
    """A row that measures nothing: side b always gives 2, side a gives 3 more often than not."""
    log = [] if log is None else log
    values = {"a": iter([99.0, 3.0, 4.0, 3.0] * 9), "b": iter([99.0] + [2.0] * 36)}

    def turn(side):
        log.append(side)
        if fail:
            raise BenchmarkError(fail)
        return {"calls_per_s": next(values[side]), "cpu_s": 0.5}

    def measure(run):
        samples = run.interleave({side: lambda side=side: turn(side) for side in "ab"})
        run.ratio("a_to_b", column(samples["a"], "calls_per_s"), column(samples["b"], "calls_per_s"))
        run.figures_of(samples)

    return types.SimpleNamespace(
        __doc__="a row that measures nothing\n\nmore", GOALS=goals or {"a_to_b": 1.4}, ROUNDS=3, measure=measure
    )


def test_spread_is_the_median_between_the_quartiles():
    assert spread([5, 1, 4, 2, 3]) == (3, 2, 4, 5)
    assert spread([1, 2]) == (1.5, 1.25, 1.75, 2)
    assert spread([7]) == (7, 7, 7, 1)


def test_spread_lies_within_the_values_in_any_order():
    rng = random.Random(1)
    for _ in range(200):
        values = [rng.expovariate(1) for _ in range(rng.randint(1, 12))]
        of = spread(values)
        assert min(values) <= of.low <= of.median <= of.high <= max(values)
        rng.shuffle(values)
        assert spread(values) == of


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_spread_refuses_values_without_a_median(values):
    with pytest.raises(ValueError):
        spread(values)


def test_ratios_pair_values_of_the_same_round():
    assert paired_ratios([2, 6, 9], [1, 2, 3]) == [2, 3, 3]


@pytest.mark.parametrize("top, bottom", [([1, 2], [1]), ([1], [0]), ([-1], [1]), ([0], [1])])
def test_ratios_refuse_values_that_cannot_be_divided(top, bottom):
    with pytest.raises(ValueError):
        paired_ratios(top, bottom)


def test_turns_go_there_and_back():
    assert "".join(name for _, name in turns("ab", 4)) == "abbaabba"
    assert "".join(name for _, name in turns("abc", 2)) == "abccba"
    assert [number for number, _ in turns("ab", 3)] == [0, 0, 1, 1, 2, 2]


def test_turns_give_no_side_the_later_place():
    order = [name for _, name in turns("ab", 10)]
    assert sum(i for i, name in enumerate(order) if name == "a") == sum(
        i for i, name in enumerate(order) if name == "b"
    )


def test_the_first_round_warms_up_and_does_not_count():
    log = []
    row = fake_row(log)
    run = Run("fake", 3)
    row.measure(run)
    assert "".join(log) == "ab" + "abbaab"
    assert run.ratios["a_to_b"] == (1.5, 1.5, 1.75, 3)
    assert run.figures["a_calls_per_s"].median == 3


def test_json_is_one_object_on_the_last_line(capsys):
    assert main(["fake", "--json"], {"fake": fake_row()}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    outcome = json.loads(lines[0])
    assert outcome["row"] == "fake"
    assert outcome["ratios"] == {"a_to_b": 1.5}
    assert outcome["figures"]["b_calls_per_s"] == 2
    assert outcome["figures"]["b_cpu_s"] == 0.5
    assert outcome["spread"]["a_to_b"] == [1.5, 1.75, 3]
    assert outcome["goals"] == {"a_to_b": 1.4}


def test_a_table_comes_before_the_json(capsys):
    assert main(["fake", "--rounds", "5"], {"fake": fake_row()}) == 0
    out, err = capsys.readouterr()
    *table, last = out.splitlines()
    assert json.loads(last)["spread"]["a_to_b"][2] == 5
    assert any("a_to_b" in line and "goal >= 1.4: met" in line for line in table)
    assert "round 5 of 5" in err


def test_a_goal_that_is_missed_is_said_and_is_no_failure(capsys):
    assert main(["fake"], {"fake": fake_row(goals={"a_to_b": 10})}) == 0
    assert "goal >= 10: not met" in capsys.readouterr().out


def test_a_busy_machine_is_said():
    run = Run("fake", 1)
    run.ratio("r", [1], [1])
    run.figure("load_before", [3.0])
    assert "Others were using this machine" in as_table(run, {})
    run.figure("load_before", [0.1])
    assert "Others were using this machine" not in as_table(run, {})
    assert json.loads(as_json(run, {}))["figures"]["load_before"] == 0.1


def test_missing_program_is_one_sentence(capsys):
    assert main(["fake", "--json"], {"fake": fake_row(fail="the program is not there: build it")}) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "benchmarks: the program is not there: build it"


@pytest.mark.parametrize("arguments", [[], ["nonesuch"], ["fake", "--rounds", "0"], ["fake", "--rounds", "many"]])
def test_wrong_arguments_are_told(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments, {"fake": fake_row()})
    assert stopped.value.code == 2
    assert "fake" in capsys.readouterr().err or "--rounds" in str(arguments)


def test_list_names_every_row_and_its_goals():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    known = all_rows()
    assert {"rpc", "stream", "sim", "start"} <= set(known)
    assert [line.split()[0] for line in lines] == list(known)
    assert any(line.startswith("rpc ") and "tls >= 0.8" in line for line in lines)


def test_every_row_describes_itself():
    for name, row in all_rows().items():
        assert row.__doc__.strip(), name
        assert row.ROUNDS >= 1 and callable(row.measure), name
        assert all(goal > 0 for goal in row.GOALS.values()), name


def test_the_last_json_object_is_taken():
    assert last_json('noise\n{"a": 1}\n{"a": 2}\nbye\n') == {"a": 2}
    with pytest.raises(ValueError):
        last_json("nothing here")


def test_a_program_is_run_and_read():
    code = "import json; print(json.dumps({'calls_per_s': 5, 'mode': 'tls', 'right': True}))"
    sample = run_program([sys.executable, "-c", code], timeout_s=60)
    assert sample["calls_per_s"] == 5 and set(sample) == {"calls_per_s", "cpu_s"} and sample["cpu_s"] > 0


@pytest.mark.parametrize(
    "command, said",
    [
        (["/nonexistent/bench_x"], "make -C csrc bench"),
        ([sys.executable, "-c", "import sys; sys.exit('it broke')"], "it broke"),
        ([sys.executable, "-c", "print('no json')"], "no JSON object"),
        ([sys.executable, "-c", 'print(\'{"calls_per_s": 9, "failed": 3}\')'], "3 of its calls failed"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "did not end within"),
    ],
)
def test_a_program_that_fails_is_told(command, said):
    with pytest.raises(BenchmarkError, match=said):
        run_program(command, timeout_s=1 if "sleep" in command[-1] else 60)


#: a row whose turn starts a process in a session of its own, which starts another one
LEAVING = """
import subprocess, sys, types
from benchmarks.__main__ import main
from benchmarks.programs import run

CHILD = "import os, sys, time; print(*sys.argv[1:], os.getpid(), flush=True); time.sleep(600)"
INNER = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', %r, 'inner'], start_new_session=True).wait()"
def measure(of):
    subprocess.Popen([sys.executable, "-c", CHILD, "plain"], start_new_session=True)
    subprocess.Popen([sys.executable, "-c", INNER % CHILD], start_new_session=True)
    if sys.argv[1] == "waits":
        program = "import os, time; open(%r, 'w').write(str(os.getpid())); time.sleep(600)"
        run([sys.executable, "-c", program % sys.argv[2]])
    sys.stdin.readline()

sys.exit(main(["x"], known={"x": types.SimpleNamespace(__doc__="x", GOALS={}, ROUNDS=1, measure=measure)}))
"""


def is_alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] not in "ZX"


@pytest.mark.skipif(sys.platform != "linux", reason="processes without a parent are adopted on Linux")
@pytest.mark.parametrize("ends, code", [(None, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, None)])
def test_no_process_of_a_row_outlives_it(tmp_path, ends, code):
    ran = tmp_path / "ran"
    command = [sys.executable, "-c", LEAVING, "ends" if ends is None else "waits", ran]
    row = subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True)
    started = dict(row.stdout.readline().split() for _ in range(2))
    assert set(started) == {"plain", "inner"}
    while ends is not None and not (ran.exists() and ran.read_text()):
        time.sleep(0.02)
    pids = [*started.values(), *([ran.read_text()] if ends is not None else [])]
    assert all(map(is_alive, pids))
    row.communicate("\n", timeout=60) if ends is None else row.send_signal(ends)
    assert row.wait(60) == code if code is not None else row.wait(60) != 0
    assert not any(map(is_alive, pids))


def a_wheel(folder, *names):
    """A wheel whose files are empty."""
    path = folder / "hivemind_c-0.1.0-cp39-abi3-any.whl"
    with zipfile.ZipFile(path, "w") as files:
        for name in names:
            files.writestr(name, "")
    return path


def test_tree_is_set_against_a_wheel(tmp_path, capsys):
    """In turns, without plain PyTorch and hivemind, whose ratios are left out."""
    log = []

    def turn(side):
        where = package.path()
        log.append((side, where == str(ROOT / "python")))
        return {"calls_per_s": 3.0 if where == str(ROOT / "python") else 2.0, "stop_s": 0.0}

    def measure(run):
        sides = ("ours", "plain_one", "hivemind")
        samples = run.interleave({side: lambda side=side: turn(side) for side in sides})
        run.ratio("plain", column(samples["ours"], "calls_per_s"), column(samples["plain_one"], "calls_per_s"))
        run.figure("plain_per_s", column(samples["plain_one"], "calls_per_s"))
        run.figures_of(samples)

    row = types.SimpleNamespace(__doc__="a row", GOALS={"plain": 1.0}, ROUNDS=2, measure=measure)
    wheel = a_wheel(tmp_path, "hivemind_c/__init__.py")
    assert main(["fake", "--json", "--against", str(wheel)], {"fake": row}) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["ratios"] == {"ours_calls_per_s_of_wheel": 1.5}
    assert outcome["figures"]["ours_wheel_calls_per_s"] == 2.0 and "plain_per_s" not in outcome["figures"]
    assert log == [("ours", True), ("ours", False)] + [("ours", True), ("ours", False), ("ours", False), ("ours", True)]


@pytest.mark.parametrize("names", [None, ["other/__init__.py"]])
def test_file_that_is_no_wheel_of_ours_is_refused(tmp_path, names, capsys):
    wheel = tmp_path / "none.whl" if names is None else a_wheel(tmp_path, *names)
    assert main(["fake", "--against", str(wheel)], {"fake": fake_row()}) == 2
    assert "give a wheel of hivemind_c" in capsys.readouterr().err


# ---- runs that continue ----


def test_turn_that_was_kept_is_not_measured_again(tmp_path):
    """A line that a kill has cut counts for nothing."""
    measured = []

    def contestants(run):
        return {name: lambda name=name: measured.append((name, run.round)) or {"x": 1.0 + run.round} for name in "ab"}

    path = tmp_path / "turns"
    first = Run("row", 1, kept=Kept(path))
    first.interleave(contestants(first), warm_up=())
    assert measured == [("a", 0), ("b", 0)]
    with path.open("a") as file:
        file.write('{"row": "row", "contestant": "a", "rou')
    measured.clear()
    second = Run("row", 2, kept=Kept(path))
    samples = second.interleave(contestants(second), warm_up=())
    assert measured == [("b", 1), ("a", 1)]
    assert samples == {name: [{"x": 1.0}, {"x": 2.0}] for name in "ab"}
    other = Run("another", 1, kept=Kept(path))
    other.interleave(contestants(other), warm_up=())
    assert len(measured) == 4


def test_quick_run_takes_the_short_form_once(capsys):
    seen = []

    class Row:
        __doc__ = "a row"
        GOALS, ROUNDS = {}, 9

        @staticmethod
        def measure(run):
            seen.append((run.is_quick, run.rounds))

    assert main(["fake", "--quick"], {"fake": Row}) == 0
    assert main(["fake"], {"fake": Row}) == 0
    assert seen == [(True, 1), (False, 9)]
