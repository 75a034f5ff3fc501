"""The warning that averaging_timeout is too short: tables of epochs, and real peers on slow lines."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from epochs import epoch
from hivemind_c.optim.timeout_check import TimeoutCheck

ROOT = pathlib.Path(__file__).resolve().parents[3]
RAN_OUT = ("averaging the state failed: the all-reduce took longer than the step's timeout: make the timeout longer",)
MOVED = dict(bytes_sent=240_000_000, bytes_received=120_000_000)
SAID = {
    "holds": (dict(reducing_s=12.0), None),
    "hardly holds": (
        dict(reducing_s=21.0, **MOVED),
        "needs 21 s, and matchmaking_time=5 comes before; give averaging_timeout=50 ",
    ),
    "in the background": (dict(reducing_s=1.0, background_reducing_s=20.0, **MOVED), "hardly holds"),
    "the second average ran out": (
        dict(reducing_s=24.0, why=RAN_OUT, **MOVED),
        "240 MB took 24.0 s (80 Mbit/s), a swarm epoch needs at least 48 s",
    ),
    "both ran out": (
        dict(reducing_s=0.0, members=0, outcome="failed", why=RAN_OUT),
        "no average was complete in time, a swarm epoch needs at least 30 s",
    ),
    "alone": (dict(reducing_s=0.0, members=0, outcome="alone"), None),
    "failed otherwise": (dict(reducing_s=1.0, why=("averaging gradients failed: nobody came",)), None),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_epoch_that_does_not_fit_is_said_with_the_option(case):
    changed, words = SAID[case]
    text = TimeoutCheck(30, 5).look(epoch(0, **changed))
    assert text is None if words is None else words in text, text


def test_sentence_is_repeated_only_if_it_is_worse():
    check = TimeoutCheck(30, 5)
    spent = 21.0, 22.0, 24.0, 40.0, 41.0
    assert [bool(check.look(epoch(i, reducing_s=s, **MOVED))) for i, s in enumerate(spent)] == [1, 0, 0, 1, 0]


def test_proposed_timeout_is_not_warned_about():
    text = TimeoutCheck(30, 5).look(epoch(0, reducing_s=24.0, why=RAN_OUT, **MOVED))
    proposed = int(re.search(r"give averaging_timeout=(\d+)", text)[1])
    assert TimeoutCheck(proposed, 5).look(epoch(1, reducing_s=48.0, **MOVED)) is None


def test_round_that_gets_more_time_is_no_case_for_the_option():
    """With local steps, and averaging_timeout at its default."""
    check = TimeoutCheck(30, 5, follows=True)
    assert check.look(epoch(0, reducing_s=24.0, **MOVED)) is None
    text = check.look(epoch(1, reducing_s=24.0, why=RAN_OUT, **MOVED))
    assert "the next one has more" in text and "averaging_timeout=" not in text


PEER = """
import logging, os, sys, time
import torch, hivemind_c

logging.basicConfig(level=logging.WARNING)
torch.set_num_threads(1)
torch.manual_seed(0)
place, initial, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = dict(client_mode=True) if initial else dict(host_maddrs="/ip4/0.0.0.0/tcp/31337")
dht = hivemind_c.DHT(initial.split(), start=True, wait_timeout=30, **options)
print(dht.get_visible_maddrs()[0] if not initial else "client", flush=True)
model = torch.nn.Linear(1000, size // 1000, bias=False)
optimizer = hivemind_c.Optimizer(
    dht=dht, run_id="slow", target_batch_size=200, batch_size_per_step=1,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.001),
    matchmaking_time=5, averaging_timeout=15, delay_state_averaging=False,
)
while not optimizer.last_epoch or optimizer.last_epoch.peers < 3:
    time.sleep(0.1)
    model.weight.grad = torch.full_like(model.weight, 1e-3)
    optimizer.step()
print(optimizer.last_epoch, flush=True)
os._exit(0)
"""
SCENE = """
import subprocess, sys
import internet

internet.enter()
net = internet.Internet(20)
net.public("open")
net.home("amber", "blue")

def start(name, initial):
    words = [*net.inside(name), sys.executable, "peer.py", name, initial, "3000000"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

peers = [start("open", "")]
address = peers[0].stdout.readline().strip()
peers += [start(name, address) for name in ("amber", "blue")]
for peer in peers:
    out, err = peer.communicate(timeout=250)
    print(out, err)
"""


@pytest.mark.long
@pytest.mark.timeout(400)
def test_peers_on_slow_lines_name_the_timeout(tmp_path):
    # 24 MB for each of two averages are 9.6 s of 20 Mbit/s, and 10 s are left after the search
    (tmp_path / "peer.py").write_text(PEER)
    (tmp_path / "scene.py").write_text(SCENE)
    path = os.pathsep.join([str(ROOT / "examples/demo"), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "scene.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=380
    )
    said = r"averaging_timeout=15 is too short for .* at least \d+ s, .* give averaging_timeout=\d+"
    assert re.search(said, done.stdout), done.stdout + done.stderr
