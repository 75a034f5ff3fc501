"""An internet of network namespaces on one machine: machines with public addresses, homes behind NAT, and lines of so many Mbit/s.

The namespaces belong to one process and end with it, also if it is killed.
They need Linux with nft, iproute2 and util-linux, and root or the right to make user namespaces."""

import os
import pathlib
import shutil
import subprocess
import sys

INSIDE = "HIVEMIND_INTERNET"  # set in the environment of a program that enter() has started again
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "unshare": "util-linux", "nsenter": "util-linux"}
ALONE = "unshare --map-root-user --mount --net --pid --fork --kill-child --mount-proc".split()

#: a home's router: it translates addresses, and lets in only what answers something from inside
NAT = """
table ip nat {
  chain out {
    type nat hook postrouting priority srcnat
    oifname "eth0" masquerade
  }
}
table ip wall {
  chain through {
    type filter hook forward priority filter
    iifname "eth0" ct state new,invalid drop
  }
  chain here {
    type filter hook input priority filter
    iifname "eth0" ct state new,invalid drop
  }
}
"""
#: a cloud's NAT: the machine has the outer address to itself
FORWARD = """
table ip nat {
  chain in {
    type nat hook prerouting priority dstnat
    iifname "eth0" dnat to 10.0.0.2
  }
  chain out {
    type nat hook postrouting priority srcnat
    oifname "eth0" masquerade
  }
}
"""
#: the line where the kernel has no queue with a rate: packets above the rate are dropped
POLICER = """
table ip line {{
  chain up {{
    type filter hook postrouting priority filter
    oifname "eth0" limit rate over {rate} kbytes/second burst 128 kbytes drop
  }}
  chain down {{
    type filter hook prerouting priority raw
    iifname "eth0" limit rate over {rate} kbytes/second burst 128 kbytes drop
  }}
}}
"""


class NoInternet(Exception):
    """Something that the namespaces need is missing; one sentence."""


def check():
    """Raises NoInternet if this machine cannot make the namespaces."""
    for program, package in PROGRAMS.items():
        if not shutil.which(program):
            raise NoInternet(f"cannot make network namespaces: {program} is not installed; run apt-get install {package}")
    tried = subprocess.run([*ALONE, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        raise NoInternet(f"cannot make network namespaces: {tried.stderr.strip() or 'unshare failed'}; run this as root")


def enter():
    """Starts this program again in namespaces of its own, where it returns."""
    if os.environ.get(INSIDE) != "1":
        check()
        os.environ[INSIDE] = "1"
        os.execvp(ALONE[0], [*ALONE, sys.executable, *sys.argv])
    run("mount", "-t", "tmpfs", "none", "/run")


def run(*words, text=None):
    """Runs a command that sets something up; NoInternet has its error.

    Args:
        words: The command.
        text: Its input.
    """
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        why = (done.stderr or done.stdout).strip().split("\n")[0]
        raise NoInternet(f"cannot set up the namespaces: {' '.join(words)}: {why}; use a kernel with nft, veth and bridges")


class Internet:
    """Machines joined by a bridge, all with addresses of 198.18.0.0/15.

    Args:
        mbit: The rate of each machine's line, up and down. None: as fast as the processor.
    """

    def __init__(self, mbit=None):
        self.mbit, self.machines = mbit, 0
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "link", "set", "bridge", "up")

    def public(self, name):
        """Adds a machine with an address that all others can dial, and returns the address.

        Args:
            name: Of its namespace.
        """
        self.machines += 1
        self._namespace(name)
        address = f"198.18.0.{self.machines}"
        port = f"port{self.machines}"
        run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", port, "master", "bridge", "up")
        run("ip", "-n", name, "addr", "add", f"{address}/15", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        if self.mbit:
            self._slow(name, port)
        return address

    def home(self, *names):
        """Adds machines behind one router with NAT, and returns the router's address. Homes have the same private addresses.

        Args:
            *names: Of the machines' namespaces.
        """
        return self._behind("192.168.1", names, NAT)

    def cloud(self, name):
        """Adds a machine with a private address, and returns the outer address that its cloud forwards to it.

        Args:
            name: Of the machine's namespace.
        """
        return self._behind("10.0.0", [name], FORWARD)

    def _behind(self, network, names, rules):
        """Adds a router with rules, and machines in a private network behind it."""
        router = f"{names[0]}-router"
        address = self.public(router)
        run("ip", "-n", router, "link", "add", "lan", "type", "bridge")
        run("ip", "-n", router, "addr", "add", f"{network}.1/24", "dev", "lan")
        run("ip", "-n", router, "link", "set", "lan", "up")
        for number, name in enumerate(names, 2):
            self._namespace(name)
            run("ip", "link", "add", f"lan{number}", "netns", router, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "-n", router, "link", "set", f"lan{number}", "master", "lan", "up")
            run("ip", "-n", name, "addr", "add", f"{network}.{number}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "route", "add", "default", "via", f"{network}.1")
        run(*self.inside(router), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        run(*self.inside(router), "nft", "-f", "-", text=rules)
        return address

    @staticmethod
    def inside(name):
        """The words before a command that runs on a machine.

        Args:
            name: The machine.
        """
        return "nsenter", f"--net=/run/netns/{name}"

    def _namespace(self, name):
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")

    def _slow(self, name, port):
        """Both ends of a line get a queue with its rate; where the kernel has none, the machine drops what is above the rate."""
        shape = "root", "tbf", "rate", f"{self.mbit}mbit", "burst", "32k", "latency", "100ms"
        try:
            run("tc", "qdisc", "add", "dev", port, *shape)
            run(*self.inside(name), "tc", "qdisc", "add", "dev", "eth0", *shape)
        except NoInternet:
            run(*self.inside(name), "nft", "-f", "-", text=POLICER.format(rate=self.mbit * 125))


def here():
    """The folder of this program."""
    return pathlib.Path(__file__).resolve().parent
