"""8 peers that are ready form a group: from the call of the last one to the first byte, against hivemind

All are processes of this machine on loopback, with tensors of one element, and all step at once. Ours is the time of matchmaking alone, hivemind's its
whole step (it does not tell them apart), with the least matchmaking time that its users give (2 s).
"""

import json

from benchmarks import peers
from benchmarks.frame import column
from benchmarks.programs import our_python
from benchmarks.rows.allreduce import HIVEMIND, OURS, PARENT

PEERS, TIMES = 8, 5
GOALS = {"hivemind": 20}
ROUNDS = 3


def one_element(code):
    return code.replace('torch.randn(config["mb"] << 18)', "torch.randn(1)").replace("min_matchmaking_time=5", "min_matchmaking_time=2")


def config(one_by_one=False):
    return json.dumps({"peers": PEERS, "mb": 0, "times": TIMES, "insecure": False, "options": {}, "codec": "NoCompression", "one_by_one": one_by_one})


def measure(run):
    contestants = {"ours": lambda: our_python(PARENT, one_element(OURS), config())}
    if peers.stands():
        contestants["hivemind"] = lambda: peers.python(PARENT, one_element(HIVEMIND), config(one_by_one=True), timeout_s=600)
    samples = run.interleave(contestants)
    if peers.stands():
        run.ratio("hivemind", column(samples["hivemind"], "s"), column(samples["ours"], "match_s"))
    run.figures_of(samples)
