"""Two machines whose only link is a tunnel as a VPN has it: a tun device, 100.64.0.0/10, 1,280 bytes a packet."""

import json
import os
import subprocess
import sys

import pytest

MACHINES = """
import ctypes, fcntl, json, os, struct, subprocess, sys, threading

libc, tunnels, peers = ctypes.CDLL(None, use_errno=True), {}, {}
PEER = sys.argv[1]

def machine(number, more=()):
    # a thread has a network of its own, and so has what it starts
    if libc.unshare(0x40000000):
        raise OSError(ctypes.get_errno(), "unshare")
    tunnels[number] = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tunnels[number], 0x400454CA, struct.pack("16sH", b"vpn0", 0x0001 | 0x1000))
    for words in (
        "link set lo up",
        f"addr add 100.64.0.{number}/32 dev vpn0",
        "link set vpn0 mtu 1280 up",
        "route add 100.64.0.0/10 dev vpn0",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    peers[number] = subprocess.Popen([sys.executable, "-c", PEER, *more], stdout=subprocess.PIPE, text=True)

def run(*given):
    thread = threading.Thread(target=machine, args=given)
    thread.start()
    thread.join()

def carry(source, target):
    while True:
        packet = os.read(source, 2048)
        assert len(packet) <= 1280
        os.write(target, packet)

run(1)
told = [peers[1].stdout.readline()]
run(2, json.loads(told[0]))
for source, target in ((1, 2), (2, 1)):
    threading.Thread(target=carry, args=(tunnels[source], tunnels[target]), daemon=True).start()
told += [peers[2].stdout.readline(), peers[1].stdout.readline(), peers[2].stdout.readline()]
print("".join(told), flush=True)
os._exit(0)
"""
PEER = """
import json, sys
import torch, hivemind_c
dht = hivemind_c.DHT(sys.argv[1:], start=True, host_maddrs="/ip4/0.0.0.0/tcp/31337")
print(json.dumps([str(address) for address in dht.get_visible_maddrs()]), flush=True)
tensor = torch.full((1 << 20,), 2.0 if sys.argv[1:] else 4.0)
options = dict(prefix="vpn", start=True, min_group_size=2, min_matchmaking_time=2)
averager = hivemind_c.DecentralizedAverager([tensor], dht, **options)
averager.step(timeout=120)
with averager.get_tensors() as (tensor,):
    print(json.dumps([tensor.min().item(), tensor.max().item()]), flush=True)
"""


def may_make_networks():
    command = ["unshare", "-rn", "ip", "tuntap", "add", "vpn0", "mode", "tun"]
    return os.path.exists("/dev/net/tun") and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not may_make_networks(), reason="this system lets its users make no network with a tunnel")
def test_peers_average_over_a_tunnel():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "INITIAL_PEERS": "", "OMP_NUM_THREADS": "1"}
    command = ["unshare", "-rn", sys.executable, "-c", MACHINES, PEER]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=200)
    assert done.returncode == 0, done.stderr
    first, second, *averages = map(json.loads, done.stdout.split("\n")[:4])
    assert [address.split("/p2p/")[0] for address in first + second if "127.0.0.1" not in address] == [
        "/ip4/100.64.0.1/tcp/31337",
        "/ip4/100.64.0.2/tcp/31337",
    ]
    assert averages == [[3.0, 3.0]] * 2
