"""A laptop that changes its network, played by moving an interface's address in a network namespace."""

import textwrap

import pytest
from support import play_alone

# The peer that stays: it averages without end, and says when it does so with the laptop.
WORLD = """
    import json, signal, subprocess, sys, time
    import numpy as np
    from hivemind_c import DHT
    from hivemind_c.averaging import DecentralizedAverager

    def ip(words):
        subprocess.run(["ip", *words.split()], check=True)

    ip("link set lo up")
    home = subprocess.Popen(["unshare", "--net", sys.executable, "-c", sys.argv[1], sys.argv[2]], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, bufsize=1)
    assert home.stdout.readline() == "here\\n"
    ip(f"link add world type veth peer name home netns {home.pid}")
    for network in (77, 78):
        ip(f"addr add 10.{network}.0.1/24 dev world")
    ip("link set world up")
    dht = DHT(start=True, host_maddrs="/ip4/10.77.0.1/tcp/0")
    averager = DecentralizedAverager([np.zeros(1000, np.float32)], dht, prefix="roam", start=True, target_group_size=2,
        min_matchmaking_time=1.0)
    home.stdin.write(json.dumps([str(a) for a in dht.get_visible_maddrs()]) + "\\n")
    while home.poll() is None:
        try:
            averager.step(timeout=5)
        except Exception:
            pass
    print(home.stdout.read())
    averager.shutdown()
    dht.shutdown()
    sys.exit(home.wait())
"""

HOME = """
    import json, subprocess, sys, time
    import numpy as np
    from hivemind_c import DHT
    from hivemind_c.averaging import DecentralizedAverager
    from support import eventually

    def ip(words):
        subprocess.run(["ip", *words.split()], check=True)

    def meets():
        try:
            return len(averager.step(timeout=5) or ()) == 2
        except Exception:
            return False

    print("here", flush=True)
    peers = json.loads(sys.stdin.readline())
    ip("link set lo up")
    ip("addr add 10.77.0.2/24 dev home")
    ip("link set home up")
    how = {"client_mode": True} if sys.argv[1] == "client" else {"host_maddrs": "/ip4/0.0.0.0/tcp/0"}
    dht = DHT(peers, start=True, **how)
    averager = DecentralizedAverager([np.ones(1000, np.float32)], dht, prefix="roam", start=True, target_group_size=2,
        min_matchmaking_time=1.0)
    assert eventually(meets), "no group of two"
    who = str(dht.peer_id)
    ip("addr del 10.77.0.2/24 dev home")
    time.sleep(float(sys.argv[2]))
    ip("addr add 10.78.0.2/24 dev home")
    ip("route add default via 10.78.0.1")
    assert eventually(meets), "no group of two since it has moved"
    told = [str(a) for a in dht.get_visible_maddrs()]
    print(json.dumps({"same": str(dht.peer_id) == who, "told": told}))
    averager.shutdown()
    dht.shutdown()
"""


def play(kind, seconds_without):
    home = f"import sys; sys.argv[1:] = [{kind!r}, {str(seconds_without)!r}]\n" + textwrap.dedent(HOME)
    return play_alone(WORLD, home, kind, timeout=400)


@pytest.mark.parametrize("kind", ["listens", "client"])
def test_moved_peer_averages_again(kind):
    seen = play(kind, 3)
    assert seen["same"]
    assert all("10.77.0.2" not in address for address in seen["told"])
    assert kind == "client" or any("/10.78.0.2/" in address for address in seen["told"])
