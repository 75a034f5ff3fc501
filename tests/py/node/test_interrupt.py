"""Ctrl-C, and the end of a program."""

import pytest

WAITS = {
    "receive": "node.receive()",
    "wait_for_peers": "node.wait_for_peers(3)",
    "future": "node._node.receive().result(60)",
}

INTERRUPTED = """
    import os, signal, sys, threading, time
    from hivemind_c import Node

    node = Node("/ip4/127.0.0.1/tcp/0")
    times = []
    while len(times) < 5 or min(times) > 0.1 and len(times) < 200:  # a machine may be busy with others now and then
        sent = []
        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        timer = threading.Timer(0.2, interrupt)
        try:
            timer.start()
            WAIT
            print("it came back")
            break
        except KeyboardInterrupt:
            times.append(time.monotonic() - sent[0])
        timer.join()
    print(min(times))
    print(node.peers())
"""


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_interrupts_a_wait_within_100_ms(program, wait):
    code, out, err = program(INTERRUPTED.replace("WAIT", WAITS[wait])).finish()
    assert (code, err) == (0, "")
    fastest, peers = out.split("\n", 1)
    assert float(fastest) < 0.1
    assert peers.strip() == "[]"  # the node is as before


def test_ctrl_c_in_a_program_that_does_not_expect_it_ends_it(program):
    running = program(
        """
        from hivemind_c import Node
        node = Node("/ip4/127.0.0.1/tcp/0")
        print("waiting")
        node.receive()
        """
    )
    assert running.line() == "waiting"
    running.process.send_signal(2)
    code, out, err = running.finish()
    assert code == -2 or code == 130
    assert err.strip().endswith("KeyboardInterrupt")


ENDS = {
    "as it is": "",
    "by sys.exit": "import sys; sys.exit(0)",
    "with a future under way": "future = node._node.receive()",
    "with daemon threads that wait": """
for _ in range(3):
    threading.Thread(target=node.receive, daemon=True).start()
time.sleep(0.1)
""",
    "with a node in a cycle": "node.itself = node; node.future = node._node.receive(); del node",
    "with a node in a module": "import logging; logging.kept = node",
    "while a parcel is being sent": """
other = Node("/ip4/127.0.0.1/tcp/0", initial_peers=node.addresses)
other.wait_for_peers(1, 60)
kept = [other.send(node, bytearray(32 << 20), wait=False) for _ in range(4)]
""",
    "with a thread that goes on for a moment": """
def go_on():
    time.sleep(0.5)
    assert node.peers() == []
    print("went on")
threading.Thread(target=go_on).start()
""",
}


@pytest.mark.parametrize("how", ENDS)
def test_a_program_ends_without_a_word_though_its_node_runs(program, how):
    source = 'import threading, time\nfrom hivemind_c import Node\nnode = Node("/ip4/127.0.0.1/tcp/0")\n' + ENDS[how]
    code, out, err = program(source).finish()
    assert (code, err) == (0, "")
    assert out == ("went on\n" if "went on" in source else "")


def test_os_exit_ends_it_too(program):
    code, out, err = program(
        """
        import os
        from hivemind_c import Node
        node = Node("/ip4/127.0.0.1/tcp/0")
        os._exit(7)
        """
    ).finish()
    assert (code, out, err) == (7, "", "")


LOCKED = """
    import numpy, os, random, signal, threading, time
    from hivemind_c import DHT, DecentralizedAverager

    averager = DecentralizedAverager([numpy.zeros(3, numpy.float32)], DHT(start=True), prefix="locked", start=True)

    def is_free():
        entered = threading.Event()

        def enter():
            with averager.get_tensors():
                entered.set()

        threading.Thread(target=enter, daemon=True).start()
        return entered.wait(20)
"""
INTERRUPTED_AS_IT_IS_GIVEN = """
    for _ in range(5):
        held = threading.Event()

        def hold():
            with averager.get_tensors():
                held.set()
                time.sleep(0.12)
                os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=hold).start()
        held.wait()
        try:
            with averager.get_tensors():
                print("not interrupted")
        except KeyboardInterrupt:
            pass
        assert is_free()
"""
INTERRUPTED_ANYWHERE = """
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    until, times = time.monotonic() + 4, 0
    while time.monotonic() < until:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(20e-6, 120e-6))
            while True:
                with averager.get_tensors():
                    pass
        except KeyboardInterrupt:
            times += 1
        assert is_free(), f"after {times} times"
"""


@pytest.mark.parametrize("when", [INTERRUPTED_AS_IT_IS_GIVEN, INTERRUPTED_ANYWHERE], ids=["as it is given", "anywhere"])
def test_ctrl_c_leaves_no_lock_on_the_tensors_behind(program, when):
    code, out, err = program(LOCKED + when).finish()
    assert (code, out, err) == (0, "", "")
