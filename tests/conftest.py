"""Each run of the Python tests ends, and a run of `make test` tells the times of its parts."""

import collections
import faulthandler
import os
import resource
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import times  # noqa: E402

RUN_S = 3600  #: seconds that a run with workers has
#: seconds from the end of the main thread to the end of the process; xdist kills a worker after 10
EXIT_S, WORKER_EXIT_S = 60, 8
TIMED = "TEST_TIMES"  #: set by `make test`


def ends_within(seconds):
    """Past that, the stack of each thread is printed and the process ends with code 1, whatever its threads do."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)


class Clock:
    """In a worker: the times of its tests, by part."""

    def __init__(self):
        self.cpu, self.wall = collections.Counter(), collections.Counter()
        self.units, self.due = collections.defaultdict(list), 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        part = times.part_of(item.nodeid)
        if part not in self.units or time.monotonic() > self.due:
            self.units[part].append(times.unit())
            self.due = time.monotonic() + times.EACH_S
        cpu, wall = self._cpu(), time.monotonic()
        try:
            return (yield)
        finally:
            self.cpu[part] += self._cpu() - cpu
            self.wall[part] += time.monotonic() - wall

    def pytest_sessionfinish(self, session):
        seen = {part: (self.cpu[part], self.wall[part], units) for part, units in self.units.items()}
        session.config.workeroutput["times"] = seen

    @staticmethod
    def _cpu():
        return times.used(resource.RUSAGE_SELF) + times.used(resource.RUSAGE_CHILDREN)


class Table:
    """In the process of all workers: the times of the parts, printed at the end."""

    def __init__(self):
        self.seen = collections.defaultdict(lambda: [0.0, 0.0, []])

    def pytest_testnodedown(self, node):
        for part, (cpu, wall, units) in getattr(node, "workeroutput", {}).get("times", {}).items():
            self.seen[part][0] += cpu
            self.seen[part][1] += wall
            self.seen[part][2].extend(units)

    def pytest_terminal_summary(self, terminalreporter):
        parts = times.complete({part: times.as_part(*seen) for part, seen in sorted(self.seen.items())})
        if parts is not None:
            terminalreporter.section("seconds of each part")
            terminalreporter.write(times.as_table(parts))


def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")
    if not is_worker and config.getoption("numprocesses", None):  # it runs no test, so no limit of a test is its own
        ends_within(RUN_S)
        if os.environ.get(TIMED):
            config.pluginmanager.register(Table())
    elif is_worker and os.environ.get(TIMED):
        config.pluginmanager.register(Clock())


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """A thread that a failed test has left cannot keep the interpreter from its exit. A worker that has no test left
    waits for the others before that."""

    def limit(seconds=WORKER_EXIT_S if hasattr(config, "workerinput") else EXIT_S):
        threading.main_thread().join()
        ends_within(seconds)

    threading.Thread(target=limit, name="limit of the exit", daemon=True).start()
