"""Programs that tests fork are like new interpreters."""

import os
import signal

import pytest

from forking import TORCH
from support import Program

TELLS = """
    import os, sys, threading
    print(sys.argv[1:], __name__, os.environ.get("FORKED"), os.getppid(), threading.current_thread().name)
    print("a word", file=sys.stderr)
    if sys.stdin.readline() == "fail\\n":
        raise RuntimeError("it fails")
    threading.Thread(target=lambda: print("late"), name="late").start()
"""


@pytest.fixture(params=[None, TORCH], ids=["new", "forked"])
def imports(request):
    return request.param


def test_program_has_arguments_variables_and_a_parent(program, imports, monkeypatch):
    monkeypatch.setenv("FORKED", "yes")
    one = program(TELLS, 1, "two", imports=imports)
    assert one.line() == f"['1', 'two'] __main__ yes {os.getpid()} MainThread"
    one.say()
    assert one.finish() == (0, "late\n", "a word\n")


def test_program_that_raises_has_an_exit_code_and_a_trace(program, imports):
    one = program(TELLS, imports=imports)
    one.line()
    one.say("fail")
    code, out, err = one.finish()
    assert (code, out) == (1, "") and err.endswith("RuntimeError: it fails\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_program_ends_by_a_signal(program, imports, number):
    one = program("print('here')\nimport time\ntime.sleep(100)", imports=imports)
    assert one.line() == "here"
    one.process.send_signal(number)
    assert one.finish()[0] == -number


def test_forked_program_shares_no_random_numbers():
    draws = "import numpy, random, os\nprint(numpy.random.random(), random.random())"
    seen = [Program(draws, imports=TORCH).finish()[1] for _ in range(2)]
    assert seen[0] != seen[1]
    assert not set(seen[0].split()) & set(seen[1].split())
