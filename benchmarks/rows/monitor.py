"""what hivemind-monitor takes of a core for 1,000 peers, in real processes

A process keeps the DHT: two nodes, and 1,000 more, one after the other, each of which has its own key, joins, stores its signed news as a peer of a run does, and goes; their
records live for ten minutes. The program hivemind-monitor joins, fetches and checks them (a fresh check of each signature each time, as in a run whose peers tell anew), judges
and keeps them, and serves its page to one reader who asks as the page does, twice a second. `share_of_core` is the monitor's processor time, all its threads, over time;
`page_s` is how long the page's two questions take, `look_age_s` how old its figures are then, the largest of a turn; `grown_mb` is what the monitor's memory has grown by
from the first turn on; `filled_s` is how long the monitor took from its start (imports and all) to a page that has all peers. Not included: the count of the swarm's
samples, which the core's nodes make among themselves (row `progress`)."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

from benchmarks.frame import BenchmarkError, column

PEERS = int(os.environ.get("MONITOR_PEERS", "1000"))
TURN_S = float(os.environ.get("MONITOR_TURN_S", "20"))
GOALS = {"goal_against_share": 1.0, "goal_against_page": 1.0}
ROUNDS = 5
LOOPBACK = "/ip4/127.0.0.1/tcp/0"

KEEPERS = """
import sys
from hivemind_c import DHT, Node
from hivemind_c.dht import get_dht_time, news
from hivemind_c.dht.values import pack

first = DHT(start=True)
second = DHT(first.get_visible_maddrs(), start=True)
peers = first.get_visible_maddrs() + second.get_visible_maddrs()
for i in range(int(sys.argv[1])):
    with Node(client_mode=True, initial_peers=peers, log_level=50) as node:
        node.wait_for_peers(1, timeout=60)
        errors = ((11, "no group of 2 formed within 3.5 s"), (12, "the others started without this peer"))
        said = news.News("0.1.0", f"machine {i}", "trainer", get_dht_time(), 600.0, 12, 65536, i, 50.0 + i % 7, 2 + i / 1000, 24, 2, errors)
        stored = node.core.dht_store(news.key_of("large", node.peer_id).encode(), pack(news.subkey_of(node.peer_id)), news.write_news(said), 600_000)
        assert stored.result(60) > 0
print(",".join(peers), flush=True)
sys.stdin.read()
"""


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as stat:
        words = stat.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid):
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def ask(web, path):
    with urllib.request.urlopen(web + path, timeout=30) as answer:
        return json.load(answer)


def shown(run):
    """Of how many peers the page tells."""
    return len(run.get("peers", [])) + run.get("more_peers", 0)


def turn(pid, web):
    """Reads the page for TURN_S seconds."""
    began, spent, took, old, after = time.monotonic(), cpu_s(pid), [], [], 0
    while time.monotonic() - began < TURN_S:
        asked = time.monotonic()
        run, points = ask(web, "api/run"), ask(web, f"api/history?after={after}")
        took.append(time.monotonic() - asked)
        old.append(time.time() - run["time"])
        after = points[-1][0] if points else after
        time.sleep(max(0.0, 0.5 - took[-1]))
    return {"share": (cpu_s(pid) - spent) / (time.monotonic() - began), "page_s": max(took), "look_age_s": max(old), "resident_mb": resident_mb(pid)}


def measure(run):
    running = []

    def start(*command, **more):
        running.append(subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **more))
        return running[-1]

    try:
        run.say(f"monitor: {PEERS} peers join, tell and go")
        peers = start("-c", KEEPERS, str(PEERS)).stdout.readline().strip()
        if not peers:
            raise BenchmarkError("the peers' records could not be stored: run the row again without other load")
        with tempfile.TemporaryDirectory() as folder:
            about = {**os.environ, "XDG_STATE_HOME": folder}
            began = time.monotonic()
            monitor = start("-m", "hivemind_c.cli.monitor", "--run_id", "large", "--initial_peers", *peers.split(","), "--host_maddrs", LOOPBACK, "--web", "0", "--no-live", env=about)
            web = [monitor.stdout.readline() for _ in range(2)][1].strip().removeprefix("WEB=")
            while (there := shown(ask(web, "api/run"))) < PEERS:
                if time.monotonic() > began + 120:
                    raise BenchmarkError(f"after two minutes the page has {there} of {PEERS} peers")
                time.sleep(0.1)
            filled = time.monotonic() - began
            seen = run.interleave({"monitor": lambda: turn(monitor.pid, web)})["monitor"]
            monitor.terminate()
            monitor.wait(60)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    for name, figure in (("share", "share_of_core"), ("page_s", "page_s"), ("look_age_s", "look_age_s"), ("resident_mb", "resident_mb")):
        run.figure(figure, column(seen, name))
    run.figure("filled_s", [filled])
    run.figure("grown_mb", [seen[-1]["resident_mb"] - seen[0]["resident_mb"]])
    run.ratio("goal_against_share", [0.05] * len(seen), column(seen, "share"))
    run.ratio("goal_against_page", [2.0] * len(seen), [sample["page_s"] + sample["look_age_s"] for sample in seen])
