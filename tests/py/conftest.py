"""Fixtures of the Python tests: nodes that are stopped at the end, and programs that run in processes of their own.

Each peer of a run records its events, in this process and in others, and each test ends with their replay. A folder
that HIVEMIND_RECORD names before is kept.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from hivemind_c import DHT, Node
from hivemind_c._record import VARIABLE
from support import HERE, PATIENT, Program, Replays

KEPT = os.environ.get(VARIABLE)
RECORDS = Path(KEPT or tempfile.mkdtemp(prefix="hivemind-records-"), os.environ.get("PYTEST_XDIST_WORKER", ""))
os.environ[VARIABLE] = str(RECORDS)  # before modules of tests copy the environment for their programs

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # started with & by a shell: programs of the tests would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure():
    if not KEPT:
        shutil.rmtree(RECORDS, ignore_errors=True)


replays = Replays(RECORDS)


@pytest.fixture(autouse=True)
def replayed():
    """Once all peers of a test have ended, their records give the same decisions again."""
    yield
    replays.check()


@pytest.fixture
def node():
    """node(...) starts one on loopback; all are stopped when the test ends."""
    started = []

    def start(listen=HERE, **options):
        started.append(Node(listen, **options))
        return started[-1]

    yield start
    for one in started:
        one.shutdown()


@pytest.fixture
def dht():
    """dht(...) starts one on loopback; all are stopped when the test ends."""
    started = []

    def start(initial_peers=None, **options):
        started.append(DHT(initial_peers, start=True, **{**PATIENT, **options}))
        return started[-1]

    yield start
    for one in started:
        one.shutdown()


@pytest.fixture(scope="module")
def dhts():
    """Four nodes that know each other."""
    made = [DHT(host_maddrs=[HERE], start=True, **PATIENT)]
    made += [DHT(made[0].get_visible_maddrs(), host_maddrs=[HERE], start=True, **PATIENT) for _ in range(3)]
    yield made
    for one in made:
        one.shutdown()


@pytest.fixture
def peer(dhts):
    """peer(index, ...) makes a trainer of tests/py/optim_support.py that says soon what state it has; all are shut down
    when the test ends."""
    from optim_support import SHARING, Peer, network  # torch: not for tests that need none

    made = []

    def start(index, model=None, **options):
        made.append(Peer(index, dhts[index], model or network(), **{**SHARING, **options}))
        return made[-1]

    yield start
    for one in made:
        one.optimizer.shutdown()


@pytest.fixture
def pair(node):
    """Two nodes that know each other."""
    first = node()
    second = node(initial_peers=first.addresses)
    first.wait_for_peers(1, timeout=60)
    second.wait_for_peers(1, timeout=60)
    return first, second


@pytest.fixture
def program():
    """program(source, *arguments) runs it; whatever still runs at the end of the test is killed."""
    running = []

    def run(source, *arguments, **options):
        running.append(Program(source, *arguments, **options))
        return running[-1]

    yield run
    for one in running:
        one.end()


BROWSERS = "chromium", "google-chrome", "chromium-browser"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """browser(url) gives the page's HTML as it stands after some seconds; picture: a file for what it looks like."""
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    assert program, "the page is tested in a browser: run scripts/setup.sh browser"
    profile = tmp_path_factory.mktemp("profile")

    def look(url, picture=None, seconds=3):
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            f"--virtual-time-budget={1000 * seconds}",
        ]
        what = [f"--screenshot={picture}", "--window-size=1200,900"] if picture else ["--dump-dom"]
        return subprocess.run([program, *flags, *what, url], capture_output=True, text=True, timeout=240).stdout

    return look
