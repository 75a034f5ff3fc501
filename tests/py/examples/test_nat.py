"""Machines behind NAT, in network namespaces: the demo, and that its NATs and lines are those of the internet."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEMO = ROOT / "examples/demo"
ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(DEMO), *sys.path]),
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}

#: what the scenes below have
BEGIN = """
import subprocess, sys, time
import internet

internet.enter()
SERVE = "import socket; s = socket.create_server(('0.0.0.0', 4000)); print('up', flush=True)\\n"
SERVE += "while True:\\n c, who = s.accept(); c.sendall(who[0].encode() + bytes(SIZE)); c.close()"
ASK = "import socket, sys; s = socket.create_connection((sys.argv[1], 4000), 5)\\nn = 0\\n"
ASK += "text = s.recv(99)\\nprint(text.rstrip(bytes(1)).decode())\\nwhile s.recv(1 << 16): pass"

def serve(name, size=0):
    code = SERVE.replace("SIZE", str(size))
    one = subprocess.Popen([*net.inside(name), sys.executable, "-c", code], stdout=subprocess.PIPE)
    one.stdout.readline()

def ask(name, address):
    words = [*net.inside(name), sys.executable, "-c", ASK, address]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or "nothing"
"""


def scene(tmp_path, source, **env):
    """Runs a program in namespaces; returns its result."""
    program = tmp_path / "scene.py"
    program.write_text(BEGIN + textwrap.dedent(source))
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=120, env={**ENV, **env}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


REACH = """
net = internet.Internet()
hub, homes = net.public("hub"), {name: net.home(name) for name in ("amber", "blue")}
for name in ("hub", *homes):
    serve(name)
for name, router in homes.items():
    assert ask(name, hub) == router, "the hub sees the router's address"
    assert ask("hub", router) == "nothing", "nobody dials a home"
assert ask("amber", homes["blue"]) == "nothing"
print("done")
"""

RATE = """
net = internet.Internet(20)
hub, _ = net.public("hub"), net.home("amber")
serve("hub", 10_000_000)
begun = time.monotonic()
assert ask("amber", hub) != "nothing"
print(time.monotonic() - begun)
"""


def test_homes_dial_out_and_nobody_dials_in(tmp_path):
    assert scene(tmp_path, REACH) == "done\n"


def test_line_of_a_home_has_its_rate(tmp_path):
    # 10 MB over 20 Mbit/s are 4 s
    assert 3.8 < float(scene(tmp_path, RATE)) < 15


def test_line_without_a_queue_in_the_kernel_drops_above_its_rate(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "tc").write_text("#!/bin/sh\necho 'Error: Specified qdisc kind is unknown.' >&2\nexit 2\n")
    (tools / "tc").chmod(0o755)
    # nft lets the bytes of one second pass at once
    assert 2.8 < float(scene(tmp_path, RATE, PATH=f"{tools}:{os.environ['PATH']}")) < 30


@pytest.mark.parametrize("missing, said", [("nft", "nft is not installed"), ("unshare", "unshare is not installed")])
def test_demo_says_in_a_sentence_that_a_program_is_missing(tmp_path, missing, said):
    for path in map(pathlib.Path, os.environ["PATH"].split(":")):
        for tool in ("ip", "tc", "nft", "unshare", "nsenter"):
            if tool != missing and (path / tool).exists() and not (tmp_path / tool).exists():
                (tmp_path / tool).symlink_to(path / tool)
    done = subprocess.run(
        [sys.executable, DEMO / "nat.py"], capture_output=True, text=True, env={**ENV, "PATH": str(tmp_path)}
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and said in done.stderr


def test_demo_says_in_a_sentence_that_it_needs_root(tmp_path):
    text = "#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n"
    (tmp_path / "unshare").write_text(text)
    (tmp_path / "unshare").chmod(0o755)
    env = {**ENV, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, DEMO / "nat.py"], capture_output=True, text=True, env=env)
    assert done.returncode == 2 and done.stderr == (
        "cannot make network namespaces: unshare: unshare failed: Operation not permitted; run this as root\n"
    )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("homes", [4, 6])
def test_trainers_behind_nats_end_equal_through_a_hub(homes):
    done = subprocess.run(
        [sys.executable, DEMO / "nat.py", str(homes)], capture_output=True, text=True, timeout=800, env=ENV
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert re.search(rf"after swarm epoch \d+ the {homes - 1} survivors are equal to the bit", done.stdout)
