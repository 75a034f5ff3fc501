"""The DHT in real processes on this machine: killed, restarted, over IPv6, and as the program hivemind-dht."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest

from hivemind_c import HivemindConnectionError, HivemindValueError, get_dht_time
from support import HERE, PATIENCE, eventually, free_port, has_ip6

NODE = """
    import sys
    from hivemind_c import DHT

    dht = DHT(sys.argv[1:], start=True, wait_timeout=30, startup_timeout=90)
    print(dht.get_visible_maddrs()[0], flush=True)
    input()
    dht.shutdown()
"""

RESTARTED = """
    import sys
    from hivemind_c import DHT

    dht = DHT(start=True, host_maddrs=sys.argv[1], identity_path=sys.argv[2])
    print(dht.get_visible_maddrs()[0], flush=True)
    input()
"""


def soon(seconds=120):
    return get_dht_time() + seconds


def test_half_of_sixteen_are_killed_and_every_value_is_found(dht, program):
    first = dht(num_replicas=9)  # whichever eight die, one of nine lives
    others = [program(NODE, *first.get_visible_maddrs()) for _ in range(15)]
    assert all(other.line().startswith("/ip4/127.0.0.1/") for other in others)
    assert eventually(lambda: first.state()["contacts"] == 15)
    stored = [first.store(f"key{i}", {"number": i}, soon(), return_future=True) for i in range(200)]
    assert all(future.result(60) for future in stored)
    for other in others[:8]:
        os.kill(other.pid, signal.SIGKILL)
        other.process.wait()
    late = dht(first.get_visible_maddrs(), num_replicas=9)
    got = [late.get(f"key{i}", latest=True, return_future=True) for i in range(200)]
    found = [future.result(60) for future in got]
    assert [entry and entry.value["number"] for entry in found] == list(range(200))
    assert late.store("afterwards", 1, soon()) and first.get("afterwards", latest=True).value == 1
    for other in others[8:]:
        other.say()
        assert other.finish()[0] == 0


def test_a_node_that_comes_back_at_its_port_is_found_again(dht, program, tmp_path):
    first = program(RESTARTED, f"127.0.0.1:{free_port()}", tmp_path / "key")
    address = first.line()
    one = dht(address)
    assert one.store("key", 1, soon())
    first.end()
    again = program(RESTARTED, address.split("/p2p/")[0], tmp_path / "key")
    assert again.line() == address
    assert eventually(lambda: one.state()["peers"] == 1 and one.state()["contacts"] == 1)
    late = dht(address)
    assert eventually(lambda: late.state()["contacts"] == 2)
    assert late.get("key", latest=True).value == 1  # the other copy


def test_ip6_and_both_families_work_or_are_named_as_missing(dht, program):
    if not has_ip6():
        with pytest.raises(HivemindValueError, match=r"cannot listen on \[::1\]:0: this machine has no"):
            dht(host_maddrs=["127.0.0.1:0", "[::1]:0"])
        with pytest.raises(HivemindConnectionError, match=r"cannot connect to \[::1\]:31337"):
            dht("/ip6/::1/tcp/31337", bootstrap_timeout=3)
        return
    first = dht(host_maddrs=["[::1]:0", "127.0.0.1:0"])
    six, four = first.get_visible_maddrs()
    assert six.startswith("/ip6/::1/tcp/") and four.startswith("/ip4/127.0.0.1/tcp/")
    other = program(NODE, six)
    other.line()
    second = dht(four, host_maddrs="/ip6/::1/tcp/0")
    assert eventually(lambda: second.state()["contacts"] == 2)
    assert second.store("key", 6, soon()) and first.get("key", latest=True).value == 6


# ---- hivemind-dht ----


COMMANDS = {
    "dht": ["--host_maddrs", HERE],
    "hub": ["--run_id", "r", "--maddrs", HERE],
    "monitor": ["--run_id", "r", "--host_maddrs", HERE, "--history", "none"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_dial_the_peers_of_the_variable(dht, tmp_path, name):
    first = dht()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)}
    env["INITIAL_PEERS"] = first.get_visible_maddrs()[0]
    command = subprocess.Popen([sys.executable, "-m", f"hivemind_c.cli.{name}", *COMMANDS[name]], env=env)
    try:
        assert eventually(lambda: first.state()["peers"] == 1)
    finally:
        command.terminate()
        assert command.wait(PATIENCE) == 0


class Command:
    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hivemind_c.cli.dht", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def peers(self):
        """The line that it prints to be pasted."""
        option, *addresses = self.process.stdout.readline().split()
        assert option == "--initial_peers" and addresses
        return addresses

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


@pytest.fixture
def command():
    running = []

    def run(*arguments):
        running.append(Command(*arguments))
        return running[-1]

    yield run
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def test_command_prints_the_line_that_others_paste(command, dht, tmp_path):
    root = command(
        "--host_maddrs", f"127.0.0.1:{free_port()}", "--identity_path", tmp_path / "key", "--refresh_period", "0.1"
    )
    peers = root.peers()
    second = command("--initial_peers", *peers, "--host_maddrs", "127.0.0.1:0")
    one = dht(second.peers())
    assert one.store("key", 1, soon()) and dht(peers).get("key").value == 1
    assert eventually(lambda: one.state()["contacts"] >= 2)
    code, out, err = second.end()
    assert (code, out) == (0, "") and "Traceback" not in err
    port = peers[0].split("/")[4]
    code, out, err = root.end(signal.SIGINT)
    assert (code, out) == (0, "") and "Traceback" not in err and "peers, " in err and " records of " in err
    again = command("--host_maddrs", f"127.0.0.1:{port}", "--identity_path", tmp_path / "key")
    assert again.peers() == peers


@pytest.mark.parametrize(
    "words",
    [
        ["hivemind_c.cli.dht"],
        ["hivemind_c.cli.monitor", "--run_id", "run", "--history", "none", "--no-live", "--web", "0"],
    ],
    ids=["dht", "monitor"],
)
def test_printed_line_comes_in_one_piece_even_unbuffered(words, tmp_path):
    """A log on the same pipe must not come between a line and its end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # what is written at once is read at once
    about = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONUNBUFFERED": "1",
        "XDG_STATE_HOME": str(tmp_path),
    }
    with (
        ours,
        theirs,
        subprocess.Popen(
            [sys.executable, "-m", *words, "--host_maddrs", "/ip4/127.0.0.1/tcp/0"],
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            env=about,
        ) as running,
    ):
        try:
            ours.settimeout(PATIENCE)
            told = [ours.recv(1 << 16) for _ in range(1 + ("--web" in words))]
            assert all(re.fullmatch(rb"(--initial_peers |INITIAL_PEERS=|WEB=)\S+\n", line) for line in told), told
        finally:
            running.kill()


def test_command_survives_its_terminal_and_reports_in_json(command, dht):
    root = command("--host_maddrs", "127.0.0.1:0", "--json", "--refresh_period", "0.05")
    one = dht(root.peers())
    root.process.send_signal(signal.SIGHUP)
    assert one.store("key", 1, soon())
    lines = []

    def heard():
        lines.append(json.loads(root.process.stderr.readline()))
        return lines[-1].get("event") == "heartbeat" and lines[-1]["peers"] == 1 and lines[-1]["records"] == 1

    assert eventually(heard)
    assert {"time", "level", "logger", "event", "text"} <= lines[-1].keys()
    code, _, err = root.end()
    assert code == 0
    assert json.loads(err.strip().split("\n")[-1])["event"] == "ended"


def test_command_listens_everywhere_and_prints_no_loopback(command):
    addresses = command().peers()
    local = [address for address in addresses if address.startswith("/ip4/127.")]
    assert local == [] or local == addresses


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["--initial_peers", "127.0.0.1:1"], 1, "127.0.0.1:1"),
        (["--host_maddrs", "nonsense"], 1, "nonsense"),
        (["--refresh_period", "0"], 2, "refresh_period"),
        (["--no_such_option"], 2, "no_such_option"),
    ],
)
def test_wrong_arguments_are_named_in_a_line(command, arguments, code, words):
    process = command(*arguments).process
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (code, "") and words in err and "Traceback" not in err


# ---- for long ----


def test_busy_swarm_under_churn_does_not_grow():
    """A few seconds of what `make soak` does for minutes."""
    soak = pathlib.Path(__file__).resolve().parents[2] / "soak" / "soak_dht.py"
    command = [sys.executable, soak, "--minutes", "0.1", "--guests", "2", "--every", "0.3"]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and outcome["killed"] >= 3, (outcome, done.stderr)
