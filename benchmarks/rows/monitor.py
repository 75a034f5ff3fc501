"""what it costs hivemind-monitor to watch 1,000 peers

The peers' records are read from their bytes, checked, judged and kept, as in each look of a monitor; what the DHT does to bring them, the check of signatures
among it, is not in it. `share_of_core` is what a look takes of the pause that the monitor makes after it (monitor/watch.py), `looks_every_s` that pause.
"""

import dataclasses
import time

from hivemind_c.dht import news
from hivemind_c.dht.values import ValueWithExpiration, get_dht_time, unpack
from hivemind_c.monitor.gather import Gatherer
from hivemind_c.monitor.history import History
from hivemind_c.monitor.watch import BUSY

PEERS = 1000
GOALS = {"goal_against_share": 1.0}
ROUNDS = 5
SAID = news.News("0.1.0", "machine", "trainer", 1e9, 30.0, 12, 65536, 4096, 123.4, 2.5, 24, 2, ((11, "no group of 2 came together in 3.5 s"), (12, "the others have begun")))


class Reply:
    def __init__(self, records):
        self.records = records

    def result(self, timeout=None):
        end = get_dht_time() + 25
        return ValueWithExpiration({news.subkey_of(peer): ValueWithExpiration(unpack(value), end) for peer, value in self.records}, end)


class Swarm:
    """A DHT that keeps the news of many peers."""

    def __init__(self, dht):
        self._node, self.client_mode, self.peer_id, self.kept = dht._node, False, dht.peer_id, {}
        for i in range(PEERS):
            peer = f"12D3KooW{i:044}"
            value = news.write_news(dataclasses.replace(SAID, samples=i, speed=50.0 + i % 7, loss=2 + i / 1000))
            self.kept.setdefault(news.key_of("run", peer), []).append((peer, value))

    def get(self, key, latest=False, return_future=False):
        return Reply(self.kept.get(key, ()))


def measure(run):
    from hivemind_c import DHT

    with DHT(start=True) as dht:
        gatherer, history = Gatherer(Swarm(dht), "run", 65536), History(None, "run")

        def look():
            began = time.process_time()
            history.add(gatherer.look())
            return {"cpu_s": time.process_time() - began}

        spent = [sample["cpu_s"] for sample in run.interleave({"look": look})["look"]]
        gatherer.shutdown()
        history.close()
    shares = [cpu / max(1.0, cpu / BUSY) for cpu in spent]
    run.figure("look_cpu_s", spent)
    run.figure("looks_every_s", [max(1.0, cpu / BUSY) for cpu in spent])
    run.figure("share_of_core", shares)
    run.ratio("goal_against_share", [0.05] * len(shares), shares)
