"""A home behind a gateway of the tests' own, in network namespaces: its port is opened, renewed and given back."""

import pathlib
import textwrap

import gateway as gateways
import pytest
from support import play_alone

GATEWAY = pathlib.Path(__file__).with_name("gateway.py")

# The world's peer, the gateway between, and the home behind it.
WORLD = """
    import json, subprocess, sys, threading, time
    from hivemind_c import Node

    def ip(words):
        subprocess.run(["ip", *words.split()], check=True)

    def start(*command):
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def inside(process, words):
        process.stdin.write(words + "\\n")  # each side carries out what it is told, in its own namespace
        assert process.stdout.readline() == "done\\n", words

    path, mode, home_source, wait = sys.argv[1:]
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
    home.stdin.write(json.dumps([node.addresses[0], wait]) + "\\n")
    seen = json.loads(home.stdout.readline())
    if seen["told"]:
        for _ in range(100):
            seen["dialled"] = [peer.address for peer in node.peers()]
            if any(seen["dialled"]):
                break
            time.sleep(0.1)
    time.sleep(4)  # longer than half of the gateway's lease
    home.stdin.write("end\\n")
    home.stdin.flush()
    seen["seconds_to_end"] = json.loads(home.stdout.readline())
    time.sleep(1)
    seen["requests"] = requests
    node.shutdown()
    print(json.dumps(seen))
"""

HOME = """
    import json, sys, time
    from hivemind_c import Node

    print("here", flush=True)
    peer, wait = json.loads(sys.stdin.readline())
    start = time.monotonic()
    node = Node("/ip4/0.0.0.0/tcp/4711", initial_peers=peer)
    node.wait_for_peers(1, 10)
    seen = {"seconds_to_meet": time.monotonic() - start}
    outer = lambda: [a for a in node.addresses if "/192.168.7." not in a]
    until = time.monotonic() + float(wait)
    while not outer() and time.monotonic() < until:
        time.sleep(0.05)
    print(json.dumps({**seen, "told": outer(), "port": node.port.text}), flush=True)
    sys.stdin.readline()
    start = time.monotonic()
    node.shutdown()
    print(json.dumps(time.monotonic() - start), flush=True)
"""


def play(mode, wait):
    seen = play_alone(WORLD, GATEWAY, mode, textwrap.dedent(HOME), wait, timeout=120)
    assert seen["seconds_to_meet"] < 5  # no gateway holds the start up
    assert seen["seconds_to_end"] < 2
    return seen


@pytest.mark.parametrize("mode, name", [("natpmp", "NAT-PMP"), ("upnp", "UPnP")])
def test_opened_port_is_announced_and_given_back(mode, name):
    seen = play(mode, 20)
    assert [address.split("/p2p/")[0] for address in seen["told"]] == ["/ip4/203.0.113.1/tcp/4711"], seen
    assert f"({name})" in seen["port"]
    assert seen["dialled"] == ["/ip4/203.0.113.1/tcp/4711"] or seen["dialled"] == seen["told"], seen
    words = [line.split()[0] for line in seen["requests"]]
    assert words[0] == "open" and words[-1] == "close" and words.count("close") == 1
    assert mode != "natpmp" or words.count("open") >= 2  # its lease is 4 s


@pytest.mark.parametrize("lie", gateways.LIES)
def test_lying_gateway_announces_nothing(lie):
    seen = play(lie, 8)
    assert seen["told"] == [], seen
    assert "opened" in seen["port"] or seen["port"] == "" and lie == "silent"
