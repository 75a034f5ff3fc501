"""a peer under attack by 100 keys of 10 networks: memory, calls of a friend, newcomers, and rounds

As root, with addresses that count as public. Each key sends 1 Mbit/s, or all together what half a core sends (SIEGE_CORES), and plays another attack of tests/siege/attacker.c every 5 s, chosen by a seed.
Rounds of the peer and its friend (SIEGE_MB of float32, 16) are set against rounds while the same strangers send as much to a sink, which reads it.
growth: 256 MB to the growth of the peer's memory. newcomer: a second to the longest time until a newcomer has met the peer. `lost_calls` should be 0: calls
of a friend that was alive before. SIEGE_SECONDS (300), SIEGE_KEYS, SIEGE_NETWORKS, SIEGE_RATE (bytes a second, for each key) and SIEGE_SEED choose others.
"""

import os
import subprocess

from benchmarks import siege

GOALS = {"growth": 1.0, "newcomer": 1.0, "round": 0.77}
ROUNDS = 1
SECONDS, KEYS = float(os.environ.get("SIEGE_SECONDS", 300)), int(os.environ.get("SIEGE_KEYS", 100))
NETWORKS, RATE = int(os.environ.get("SIEGE_NETWORKS", 10)), float(os.environ.get("SIEGE_RATE", 125000))
SEED, MB = int(os.environ.get("SIEGE_SEED", 1)), int(os.environ.get("SIEGE_MB", 16))
SINK_PORT = 4711


def rounds_beside_a_sink(scene, seconds):
    """The median time of a round while the strangers attack a sink in the peer's own network."""
    address = scene.networks.node.replace("/tcp/0", f"/tcp/{SINK_PORT}")
    sink = subprocess.Popen([*scene.networks.within(scene.networks.inside), str(siege.ATTACKER), "--sink", address], stdout=subprocess.PIPE, text=True)
    try:
        sink.stdout.readline()
        attack = scene.strangers(seconds, KEYS, RATE, SEED, to=address)
        took = []
        while attack.poll() is None:
            took.append(scene.round_s())
        siege.outcome(attack)
        return sorted(took)[len(took) // 2]
    finally:
        sink.kill()
        sink.wait()


def measure(run):
    siege.build()
    with siege.public_networks(NETWORKS) as networks:
        scene = siege.Scene(networks, MB)
        scene.round_s()
        scene.calm_mb = scene.node.resident_mb()
        outcomes, calm = [], []
        for number in range(run.rounds):
            run.say(f"siege: {number + 1} of {run.rounds}: beside a sink")
            calm.append(rounds_beside_a_sink(scene, SECONDS / 3))
            run.say(f"siege: {number + 1} of {run.rounds}: under attack")
            outcomes.append(siege.besiege(scene, SECONDS, KEYS, RATE, SEED + number, newcomers=3, rounds=True))
        scene.close()
    run.ratio("growth", [256.0] * len(outcomes), [max(one["growth_mb"], 1.0) for one in outcomes])
    run.ratio("newcomer", [1.0] * len(outcomes), [one["newcomer_s"] for one in outcomes])
    run.ratio("round", calm, [one["round_s"] for one in outcomes])
    run.figure("sink_round_s", calm)
    for name in outcomes[0]:
        run.figure(name, [one[name] for one in outcomes])
