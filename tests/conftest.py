"""What holds for each run of the Python tests: it ends."""

import faulthandler
import sys

import pytest

RUN_S = 3600  #: seconds that a run with workers has
EXIT_S, WORKER_EXIT_S = 60, 8  #: seconds from the last test to the end of the process; xdist kills a worker after 10


def ends_within(seconds):
    """Past that, the stack of each thread is printed and the process ends with code 1, whatever its threads wait for."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)


def pytest_configure(config):
    if config.getoption("numprocesses", None):  # this process runs no test, so no limit of a test is its own
        ends_within(RUN_S)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """A thread that a failed test has left cannot keep the interpreter from its exit."""
    ends_within(WORKER_EXIT_S if hasattr(config, "workerinput") else EXIT_S)
