"""A node behind a firewall, in a network namespace of its own: it asks and stores, and nobody counts on reaching it."""

import textwrap

from support import play_alone

# Three nodes, and a cable to another namespace; then what they see of the nodes there.
WORLD = """
    import json, subprocess, sys, time
    from hivemind_c import DHT, get_dht_time
    from support import eventually

    def ip(words):
        subprocess.run(["ip", *words.split()], check=True)

    ip("link set lo up")
    home = subprocess.Popen(["unshare", "--net", sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, bufsize=1)
    assert home.stdout.readline() == "here\\n"
    ip(f"link add world type veth peer name home netns {home.pid}")
    ip("addr add 10.77.0.1/24 dev world")
    ip("link set world up")
    first = DHT(start=True, host_maddrs="/ip4/10.77.0.1/tcp/0")
    others = [DHT(first.get_visible_maddrs(), start=True, wait_timeout=30, startup_timeout=90,
        host_maddrs="/ip4/10.77.0.1/tcp/0") for _ in range(2)]
    assert eventually(lambda: all(dht.state()["contacts"] == 2 for dht in (first, *others)))
    home.stdin.write(json.dumps(first.get_visible_maddrs()) + "\\n")
    assert home.stdout.readline() == "stored\\n"
    seen = {"by_client": first.get("by_client", latest=True), "by_walled": first.get("by_walled", latest=True)}
    assert first.store("from_outside", 3, get_dht_time() + 60)
    time.sleep(1)  # long enough for hellos both ways
    seen["contacts"] = [dht.state()["contacts"] for dht in (first, *others)]
    home.stdin.write("stored\\n")
    assert home.stdout.readline() == "got\\n"
    print(json.dumps(seen))
    for dht in (*others, first):
        dht.shutdown()
    home.stdin.close()
    sys.exit(home.wait())
"""

# Any packet from the cable is dropped, unless it answers something.
HOME = """
    import json, subprocess, sys
    from hivemind_c import DHT, get_dht_time

    def run(words):
        subprocess.run(words.split(), check=True)

    print("here", flush=True)
    peers = json.loads(sys.stdin.readline())
    run("ip link set lo up")
    run("ip addr add 10.77.0.2/24 dev home")
    run("ip link set home up")
    run("nft add table ip wall")
    run("nft add chain ip wall in { type filter hook input priority 0 ; }")
    run("nft add rule ip wall in iifname home tcp flags syn / syn,ack drop")
    client = DHT(peers, start=True, client_mode=True)
    walled = DHT(peers, start=True, host_maddrs="/ip4/10.77.0.2/tcp/0")  # believes that it can be reached
    assert client.store("by_client", 1, get_dht_time() + 60)
    assert walled.store("by_walled", 2, get_dht_time() + 60)
    assert client.state()["records"] == 0
    print("stored", flush=True)
    sys.stdin.readline()
    assert client.get("from_outside").value == 3 and walled.get("from_outside", latest=True).value == 3
    print("got", flush=True)
    sys.stdin.readline()
"""


def test_node_behind_a_firewall_asks_and_is_not_asked():
    seen = play_alone(WORLD, textwrap.dedent(HOME), timeout=280)
    assert seen["by_client"][0] == 1 and seen["by_walled"][0] == 2
    assert seen["contacts"] == [2, 2, 2]  # neither of the two in there
