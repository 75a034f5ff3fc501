"""A home behind a gateway of the tests' own, in network namespaces: its port is opened, renewed and given back."""

import pathlib
import textwrap

import gateway as gateways
import pytest
from support import PATIENCE, play_alone

GATEWAY = pathlib.Path(__file__).with_name("gateway.py")

# The world's peer, the gateway between, and the home behind it.
WORLD = """
    import json, subprocess, sys, threading, time
    from hivemind_c import Node
    from support import eventually

    def ip(words):
        subprocess.run(["ip", *words.split()], check=True)

    def start(*command):
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def inside(process, words):
        process.stdin.write(words + "\\n")  # each side carries out what it is told, in its own namespace
        assert process.stdout.readline() == "done\\n", words

    path, mode, home_source = sys.argv[1:]
    ip("link set lo up")
    obey = 'while read -r words && [ "$words" != go ]; do $words >&2 && echo done; done; exec "$@"'
    router = start("unshare", "--net", "sh", "-c", obey, "sh", sys.executable, path, "192.168.7.1", "203.0.113.1", mode)
    home = start("unshare", "--net", "sh", "-c", obey, "sh", sys.executable, "-c", home_source)
    for process in (router, home):
        inside(process, "true")  # whoever answers has left this namespace
    ip(f"link add world type veth peer name outer netns {router.pid}")
    ip("addr add 203.0.113.2/24 dev world")
    ip("link set world up")
    inside(router, "ip addr add 203.0.113.1/24 dev outer")
    inside(router, "ip link set outer up")
    inside(router, f"ip link add inner type veth peer name home netns {home.pid}")
    inside(router, "ip addr add 192.168.7.1/24 dev inner")
    inside(router, "ip link set inner up")
    inside(router, "sysctl -w net.ipv4.ip_forward=1")
    for rule in ("add table ip gateway", "add chain ip gateway in { type nat hook prerouting priority -100 ; }",
            "add chain ip gateway out { type nat hook postrouting priority 100 ; }",
            "add rule ip gateway out oifname outer masquerade"):
        inside(router, "nft " + rule)
    inside(home, "ip link set lo up")
    inside(home, "ip addr add 192.168.7.2/24 dev home")
    inside(home, "ip link set home up")
    inside(home, "ip route add default via 192.168.7.1")
    home.stdin.write("go\\n")
    assert home.stdout.readline() == "here\\n"
    router.stdin.write("go\\n")
    assert router.stdout.readline() == "ready\\n"
    requests = []
    threading.Thread(target=lambda: requests.extend(iter(router.stdout.readline, "")), daemon=True).start()
    node = Node("/ip4/203.0.113.2/tcp/0")
    words = lambda: [line.split()[0] for line in requests]
    home.stdin.write(json.dumps([node.addresses[0], mode]) + "\\n")
    seen = json.loads(home.stdout.readline())
    if seen["told"]:
        assert eventually(lambda: any(peer.address for peer in node.peers()))
        seen["dialled"] = [peer.address for peer in node.peers()]
    if mode == "natpmp":
        assert eventually(lambda: words().count("open") >= 2)  # its lease is 4 s
    home.stdin.write("end\\n")
    home.stdin.flush()
    assert home.stdout.readline() == "ended\\n"
    assert not seen["told"] or eventually(lambda: "close" in words())
    home.stdin.write("exit\\n")
    home.stdin.flush()
    home.wait()
    seen["requests"] = words()
    node.shutdown()
    print(json.dumps(seen))
"""

HOME = """
    import json, sys, time
    from hivemind_c import Node
    from support import PATIENCE, eventually

    print("here", flush=True)
    peer, mode = json.loads(sys.stdin.readline())
    node = Node("/ip4/0.0.0.0/tcp/4711", initial_peers=peer)
    node.wait_for_peers(1, PATIENCE)
    seen = {"port_at_meeting": node.port.text}
    outer = lambda: [a for a in node.addresses if "/192.168.7." not in a]
    if mode in ("natpmp", "upnp"):
        eventually(outer, 3 * PATIENCE)  # a gateway whose answer is late is asked again after a minute
    else:
        assert mode == "silent" or eventually(lambda: node.port.text)
        time.sleep(4)  # for an address that no peer can dial, to be announced nevertheless
    print(json.dumps({**seen, "told": outer(), "port": node.port.text}), flush=True)
    sys.stdin.readline()
    node.shutdown()
    print("ended", flush=True)
    sys.stdin.readline()
"""


def play(mode):
    return play_alone(WORLD, GATEWAY, mode, textwrap.dedent(HOME), timeout=6 * PATIENCE)


@pytest.mark.parametrize("mode, name", [("natpmp", "NAT-PMP"), ("upnp", "UPnP")])
def test_opened_port_is_announced_and_given_back(mode, name):
    seen = play(mode)
    assert [address.split("/p2p/")[0] for address in seen["told"]] == ["/ip4/203.0.113.1/tcp/4711"], seen
    assert f"({name})" in seen["port"]
    assert seen["dialled"] == ["/ip4/203.0.113.1/tcp/4711"] or seen["dialled"] == seen["told"], seen
    words = seen["requests"]
    assert words[0] == "open" and words[-1] == "close" and words.count("close") == 1


@pytest.mark.parametrize("lie", [lie for lie in gateways.LIES if lie != "silent"])
def test_lying_gateway_announces_nothing(lie):
    seen = play(lie)
    assert seen["told"] == [] and "opened" in seen["port"], seen
    assert "opened" in seen["port"] or seen["port"] == "" and lie == "silent"


def test_silent_gateway_does_not_hold_up_the_start():
    """The peer has met another one while it still waits for the gateway's answer."""
    seen = play("silent")
    assert seen["port_at_meeting"] == "" and seen["told"] == []
