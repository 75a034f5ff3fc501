"""hivemind-monitor as people meet it: its page in headless Chromium, and the program among trainers that are killed and
come back."""

import dataclasses
import html
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from hivemind_c.cli._typer import expand
from hivemind_c.monitor import Failure, Point
from hivemind_c.monitor.gather import views
from hivemind_c.monitor.web import Server
from support import eventually, free_port, text_of
from test_monitor import SAID, snapshot

EVIL = '<img src=x onerror="document.title=1"><script>document.title=2</script>&amp;'

TRAINER = """
    import sys, time, torch
    import hivemind_c as hivemind
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    dht = hivemind.DHT(sys.argv[1], host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True, wait_timeout=30,
        startup_timeout=90)
    optimizer = hivemind.Optimizer(
        dht=dht, run_id="people", target_batch_size=256, batch_size_per_step=16,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01), matchmaking_time=1,
        averaging_timeout=6, tracker_opts=dict(min_refresh_period=0.1, default_refresh_period=0.1,
        max_refresh_period=0.5, metadata_expiration=3),
    )
    print(dht.peer_id, flush=True)
    while True:
        optimizer.step(lambda: (optimizer.zero_grad(), model(torch.ones(16, 8)).square().mean().backward(),
            torch.tensor(float(sys.argv[2])))[2])
        time.sleep(0.02)
"""


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=90) as answer:
        return answer.read().decode(), answer.headers


@pytest.fixture
def serve():
    started = []

    def start(now, points=(), host="127.0.0.1"):
        started.append(Server(lambda: now, lambda: list(points), "INITIAL_PEERS=/ip4/192.0.2.1/tcp/1", host, 0))
        return started[-1].address

    yield start
    for one in started:
        one.close()


# ---- the page alone ----


def test_the_page_shows_the_figures_and_strangers_texts_as_text(serve, browser):
    peers = views(
        [("12D3KooWamber", dataclasses.replace(SAID, name=EVIL, version=EVIL), 1.0), ("12D3KooWblue", SAID, 2.0)], 3
    )
    now = snapshot(
        epoch=1234,
        samples=32,
        speed=5678.4,
        loss=0.125,
        eta=75.0,
        peers=tuple(peers),
        failures=(Failure(time.time(), "12D3KooWamber", 1233, EVIL),),
        advice="averages move at 20 Mbit/s",
    )
    address = serve(now, [Point(now.time - 9 + i, 1, i, float(i), 1 / (1 + i), 2) for i in range(10)])
    for page in (browser(address), browser(address)):  # and after a reload
        assert [text_of(page, name) for name in ("epoch", "speed", "loss", "peers", "eta")] == [
            "1,234",
            "5,678",
            "0.1250",
            "2",
            "1 min 15 s",
        ]
        assert text_of(page, "samples") == "32 of 64 samples" and text_of(page, "state") == "live"
        assert page.count(html.escape(EVIL, quote=False)) == 3 and "<img" not in page and page.count("<script") == 1
        assert (
            re.search(r"<title>run: swarm epoch 1234</title>", page)
            and text_of(page, "join") == "INITIAL_PEERS=/ip4/192.0.2.1/tcp/1"
        )
        assert "6.0 s, 117% computing" in page and "wall_s 6, computing_s 7, " in page  # SAID counts up
        assert "<td>misses swarm epochs again and again</td>" in page
        assert text_of(page, "advice") == "averages move at 20 Mbit/s"
        assert 'id="loss-chart"' in page and page.count('data-points="10"') == 2


def test_page_is_for_this_machine_and_no_foreign_page(serve):
    """Only this machine sees the page, and no page of another site can read it."""
    address = serve(snapshot())
    port = int(address.split(":")[2].strip("/"))
    body, headers = get(address)
    assert "default-src 'none'" in headers["content-security-policy"] and headers["x-content-type-options"] == "nosniff"
    assert json.loads(get(address + "api/run")[0])["epoch"] == 3 and get(address + "metrics")[0].startswith(
        "# HELP hivemind_epoch"
    )
    with pytest.raises(urllib.error.HTTPError, match="400"):
        get(address, Host="evil.example")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        get(address + "api/history?after=x")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(address + "../gather.py")
    outward = [
        line
        for line in open("/proc/net/tcp").readlines()[1:]
        if f":{port:04X} " in line and not line.split()[1].startswith("0100007F")
    ]
    assert not outward
    with pytest.raises(OSError, match="choose another --web"):
        Server(lambda: None, list, "", "127.0.0.1", port)


def test_each_look_is_answered_as_it_is_and_no_earlier_one_again():
    looks = [snapshot(epoch=1), snapshot(epoch=2), snapshot(epoch=2)]
    server = Server(lambda: looks[0], list, "", "127.0.0.1", 0)
    try:
        for epoch in (1, 2, 2):
            assert [json.loads(get(server.address + "api/run")[0])["epoch"] for _ in range(2)] == [epoch, epoch]
            looks.pop(0) if len(looks) > 1 else None
    finally:
        server.close()


def test_age_of_a_look_is_by_the_monitors_clock(serve, browser):
    address = serve(snapshot(time=time.time() - 3600))
    assert 3600 <= json.loads(get(address + "api/run")[0])["look_age"] < 7200
    assert text_of(browser(address), "state").startswith("the monitor has not looked for 1 h ")
    ahead = browser(serve(snapshot(time=time.time() + 3600)))  # the clock was set back
    assert text_of(ahead, "state") == "live"
    assert "Date.now" not in get(address + "page.js")[0]


def test_page_waits_for_the_first_look(serve, browser):
    address = serve(None)
    assert json.loads(get(address + "api/run")[0])["waiting"] is True and get(address + "metrics")[0] == ""
    assert text_of(browser(address, seconds=2), "state") == "looking for the run"


def test_a_thousand_peers_make_no_large_answer(serve):
    peers = views(
        [(f"12D3KooW{i:04}", dataclasses.replace(SAID, name="x" * 200, errors=()), 1.0) for i in range(1000)], 3
    )
    body, _ = get(serve(snapshot(peers=tuple(peers))) + "api/run")
    assert len(json.loads(body)["peers"]) == 200 and json.loads(body)["more_peers"] == 800 and len(body) < 150_000


# ---- the program ----


class Monitor:
    def __init__(self, tmp_path, port, *more):
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XDG_STATE_HOME": str(tmp_path),
            "OMP_NUM_THREADS": "1",
        }
        command = [
            sys.executable,
            "-m",
            "hivemind_c.cli.monitor",
            "--experiment_prefix",
            "people",
            "--dht_listen_on",
            f"127.0.0.1:{port}",
            "--web",
            "0",
            "--refresh_period",
            "0.3",
            *more,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        self.line = self.process.stdout.readline().strip()
        self.web = self.process.stdout.readline().strip().removeprefix("WEB=")

    @property
    def peers(self):
        return self.line.removeprefix("INITIAL_PEERS=")

    def run(self):
        return json.loads(get(self.web + "api/run")[0])

    def history(self):
        return json.loads(get(self.web + "api/history")[0])

    def end(self, signal_=signal.SIGTERM):
        self.process.send_signal(signal_)
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, err


@pytest.fixture
def monitors(tmp_path):
    started = []

    def start(*more, port=0, folder="state"):
        started.append(Monitor(tmp_path / folder, port, *more))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def test_two_monitors_lose_nothing_over_churn_and_a_restart(monitors, program, browser):
    port = free_port()
    old = (
        "--bandwidth 100 --averaging_expiration 9 --target_group_size 64 --statistics_expiration 600 "
        "--matchmaking_time 3 --use_google_dns --store_checkpoints False --use_ipfs False"
    ).split()
    first = monitors(*old, port=port)
    assert first.line.startswith("INITIAL_PEERS=/ip4/127.0.0.1/tcp/"), first.end()
    trainers = [program(TRAINER, first.peers, loss) for loss in (1.0, 3.0)]
    names = [trainer.line() for trainer in trainers]

    def losses(monitor):
        return {peer["peer_id"]: peer["loss"] for peer in monitor.run().get("peers", [])}

    assert eventually(lambda: losses(first) == dict(zip(names, (1.0, 3.0)))), losses(first)
    assert eventually(
        lambda: (
            first.run()["epoch"] >= 2
            and first.run()["num_peers"] == 2
            and first.run()["loss"] == 2.0
            and first.run()["target"] == 256
        )
    ), first.run()
    second = monitors("--initial_peers", first.peers, folder="other")
    assert eventually(lambda: losses(second) == dict(zip(names, (1.0, 3.0)))), losses(second)
    assert eventually(
        lambda: (
            [text_of(page := browser(second.web), name) for name in ("run", "loss", "peers")]
            == ["people", "2.0000", "2"]
        ),
        240,
    )

    trainers[1].process.kill()
    assert eventually(lambda: list(losses(first)) == names[:1] and first.run()["num_peers"] == 1), first.run()
    assert eventually(lambda: len(first.history()) > 10)
    before, epoch = first.history(), first.run()["epoch"]
    first.process.kill()  # no time for a last word
    first.process.wait()
    again = monitors(port=port)
    assert again.line == first.line, "the same identity, the same address"
    after = again.history()
    assert after[: len(before) - 2] == before[:-2]
    assert eventually(lambda: list(losses(again)) == names[:1] and again.run()["epoch"] > epoch), again.run()
    for one in (second, again):
        code, err = one.end()
        assert code == 0 and "Traceback" not in err, err


def test_wrong_options_are_named_in_a_sentence(monitors, tmp_path):
    def told(*more):
        one = monitors(*more)
        return one.process.wait(120), one.process.stderr.read()

    code, err = told("--run_id", "a.b")
    assert code == 1 and 'run_id must not contain "."' in err and "Traceback" not in err
    code, err = told("--wandb_project", "x")
    assert code == 1 and "pip install wandb" in err and "Traceback" not in err
    assert told("--nothing")[0] == 2


def test_lists_are_taken_as_older_programs_have_them():
    several = "--initial_peers", "--host_maddrs"
    assert expand(["--initial_peers", "a", "b", "--web", "3", "--host_maddrs=c"], several) == [
        "--initial_peers",
        "a",
        "--initial_peers",
        "b",
        "--web",
        "3",
        "--host_maddrs=c",
    ]
    assert expand(["--initial_peers", "--web", "3"], several) == ["--web", "3"]
    assert expand(["--flag"], several) == ["--flag"]
    switches = "--client_mode", "--use_ipfs", "--store"
    words = [
        "--client_mode",
        "True",
        "--use_ipfs",
        "--store",
        "false",
        "--initial_peers",
        "a",
        "true",
        "--run_id",
        "true",
    ]
    assert expand(words, several, switches) == [
        "--client_mode",
        "--use_ipfs",
        "--no_store",
        "--initial_peers",
        "a",
        "--initial_peers",
        "true",
        "--run_id",
        "true",
    ]


def test_the_docs_show_the_page():
    picture = pathlib.Path(__file__).parents[3] / "docs/pictures/monitor.png"
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size < 300_000
    assert "pictures/monitor.png" in (picture.parents[1] / "howto/monitor.md").read_text()
