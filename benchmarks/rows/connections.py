"""10,000 connections that say nothing, from 10 networks: a peer holds them off, and serves a friend and a newcomer

As root, with addresses that count as public. 100 strangers open 100 connections each, hold them, and open them anew where the peer has closed them. The same
again with connections on which the strangers have shown a key and begun HTTP/2. friend: a second to the longest call of a friend that was alive before;
newcomer: a second to the time until a newcomer has met the peer. CONNECTIONS_SECONDS is the time of each (60).
"""

import os

from benchmarks import siege

GOALS = {"friend": 1.0, "newcomer": 1.0}
ROUNDS = 1
SECONDS = float(os.environ.get("CONNECTIONS_SECONDS", 60))


def measure(run):
    siege.build()
    outcomes = {"silent": [], "idle": []}
    with siege.public_networks(10) as networks:
        scene = siege.Scene(networks)
        for number in range(run.rounds):
            for kind, attack in (("silent", "silent-connections"), ("idle", "idle-http2")):
                run.say(f"connections: {number + 1} of {run.rounds}: {kind}")
                outcomes[kind].append(siege.besiege(scene, SECONDS, 100, 0, number + 1, attacks=attack))
        files = scene.node.ask("files")["files"]
        scene.close()
    every = [one for kind in outcomes.values() for one in kind]
    run.ratio("friend", [1.0] * len(every), [one["worst_call_s"] for one in every])
    run.ratio("newcomer", [1.0] * len(every), [one["newcomer_s"] for one in every])
    for kind, list_of in outcomes.items():
        for name in ("connections", "calls", "lost_calls", "worst_call_s", "newcomer_s", "growth_mb", "node_cores"):
            run.figure(f"{kind}_{name}", [one[name] for one in list_of])
    run.figure("files_at_the_end", [files])
