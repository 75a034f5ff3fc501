"""A third of a swarm dies in each round and comes back: rounds end in their time, and nothing is left behind."""

import os

from churn_peers import churn
from hivemind_c import DHT
from support import eventually, files, threads

PEERS, ROUNDS, TIMEOUT = int(os.environ.get("CHURN_PEERS", 8)), int(os.environ.get("CHURN_ROUNDS", 4)), 90


def children():
    """The processes below this one that are not the server and the tracker which fork the peers."""
    listed = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    return len(listed)


def test_a_third_is_killed_in_each_round_and_started_anew():
    first = DHT(start=True)
    told, before = [], None
    try:
        for number, (said, look) in enumerate(churn(first, PEERS, ROUNDS, timeout=TIMEOUT, say=print)):
            told.append(said)
            assert None not in said.values(), "a peer died that was not killed"
            assert all(one["error"] is None and one["members"] == PEERS for one in said.values()), said
            assert len({one["digest"] for one in said.values()}) == 1, said
            assert all(0 < one["low"] and one["high"] < PEERS - 1 for one in said.values()), said  # means, everywhere
            if number == min(9, ROUNDS // 2):
                before = look(), children(), files(), threads()
            if number == ROUNDS - 1:  # peer 0 was in all of them
                assert eventually(lambda: look()["threads"] <= before[0]["threads"]), (before, look())
                assert eventually(lambda: look()["files"] < before[0]["files"] + PEERS), (
                    before,
                    look(),
                )  # two may have dialled each other at once
                assert look()["mb"] < before[0]["mb"] + 24, (before, look())
                print(before[0], look())
        assert eventually(lambda: children() <= before[1] and files() <= before[2] and threads() <= before[3]), (
            before,
            children(),
            files(),
            threads(),
        )
    finally:
        first.shutdown()
