"""Averaging between real processes: together, and when some are killed, stopped, or interrupted half way."""

import json
import os
import signal
import time

import pytest

from hivemind_c import DHT
from support import at_best, eventually

#: Steps when told so by a line of JSON; says a line of JSON about each. With "die" it sends itself that signal as soon
#: as half of its values are averaged.
PEER = """
    import hashlib, json, os, sys, threading, time
    import numpy
    from hivemind_c import DHT, DecentralizedAverager
    from support import files, threads

    config = json.loads(sys.argv[1])
    tensor = numpy.zeros(config["values"], dtype=numpy.float32)
    dht = DHT(config["peers"], start=True, wait_timeout=30, startup_timeout=90, client_mode=config.get("client", False))
    averager = DecentralizedAverager(
        [tensor], dht, start=True, prefix="processes", min_matchmaking_time=60, part_size_bytes=1 << 17
    )

    def die_half_way(number):
        while (tensor[:: 1 << 12] != config["value"]).mean() < 0.5:
            time.sleep(0.0005)
        os.kill(os.getpid(), number)

    print(dht.peer_id, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if order.get("look"):
            print(json.dumps({"threads": threads(), "files": files()}), flush=True)
            continue
        tensor.fill(config["value"])
        if order.get("die"):
            threading.Thread(target=die_half_way, args=(order["die"],), daemon=True).start()
        start = time.monotonic()
        control = averager.step(gather=config["value"], weight=config.get("weight", 1), wait=False,
            timeout=order["timeout"], expected=order["expected"])
        error = control.exception()
        print(json.dumps({
            "error": None if error is None else f"{error.status}: {error}",
            "took": time.monotonic() - start,
            "members": None if error else sorted(control.result().values()),
            "digest": hashlib.sha256(tensor).hexdigest(),
            "values": sorted(set(tensor.tolist())),
        }), flush=True)
    averager.shutdown()
    dht.shutdown()
"""


@pytest.fixture
def peers(program):
    """peers(n, values) starts n processes, each with its number as all its values, that know each other."""
    first = DHT(start=True)

    def start(n, values, **options):
        running = [
            program(PEER, json.dumps({"values": values, "value": i, "peers": first.get_visible_maddrs(), **options}))
            for i in range(n)
        ]
        assert all(one.line().startswith("12D3") for one in running)
        assert eventually(lambda: first.state()["peers"] == n)
        return running

    yield start
    first.shutdown()


def tell(peers, timeout=120, expected=None, **more):
    for i, one in enumerate(peers):
        one.say(json.dumps({"timeout": timeout, "expected": expected or len(peers), "die": more.get("die", {}).get(i)}))


def heard(peers):
    return [json.loads(one.line()) for one in peers]


def looked(peers):
    for one in peers:
        one.say(json.dumps({"look": True}))
    return heard(peers)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_processes_hold_the_same_bits_round_after_round(peers, n):
    running = peers(n, 300_001)
    for _ in range(3):
        tell(running)
        said = heard(running)
        assert [one["error"] for one in said] == [None] * n
        assert all(one["members"] == list(range(n)) and one["digest"] == said[0]["digest"] for one in said)
        assert len(said[0]["values"]) == 1 and abs(said[0]["values"][0] - (n - 1) / 2) < 1e-5
    for one in running:
        one.process.stdin.close()
        assert one.process.wait(120) == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_others_finish_equal_if_a_quarter_is_killed_or_stopped(peers, how):
    running = peers(8, 2_000_000)
    tell(running, die={1: how, 4: how})
    said = heard([one for i, one in enumerate(running) if i not in (1, 4)])
    if how == signal.SIGSTOP:
        for i in (1, 4):
            os.kill(running[i].pid, signal.SIGKILL)
    assert [one["error"] for one in said] == [None] * 6, said
    assert all(one["digest"] == said[0]["digest"] for one in said)
    assert all(0 < value < 7 for value in said[0]["values"])  # means, everywhere; with the two or without


def test_survivors_of_many_rounds_leave_nothing_behind(peers):
    running = peers(4, 50_000)
    first = None
    for round_number in range(50):
        tell(running)
        said = heard(running)
        assert [one["error"] for one in said] == [None] * 4
        if round_number == 9:
            first = looked(running)
    assert eventually(
        lambda: all(
            one["threads"] <= then["threads"] and one["files"] <= then["files"]
            for one, then in zip(looked(running), first)
        )
    ), (first, looked(running))


INTERRUPTED = """
    import numpy
    from hivemind_c import DHT, DecentralizedAverager

    averager = DecentralizedAverager([numpy.zeros(10)], DHT(start=True), start=True, prefix="alone")
    try:
        print("ready", flush=True)
        averager.step(timeout=600)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    try:
        with averager.get_tensors():
            control = averager.step(wait=False)
            print("inside", flush=True)
            control.result()
    except KeyboardInterrupt:
        print("again", flush=True)
"""


def test_ctrl_c_interrupts_a_step_at_once(program):
    def attempt():
        running = program(INTERRUPTED)
        for waits, ends in (("ready", "interrupted"), ("inside", "again")):
            assert running.line() == waits
            time.sleep(0.5)
            start = time.monotonic()
            running.process.send_signal(signal.SIGINT)
            assert running.line() == ends
            took = time.monotonic() - start
        code, _, errors = running.finish()
        assert code == 0 and "Traceback" not in errors
        return took

    at_best(2, attempt)
