"""hivemind-doctor: scripted faults, each of which must be told with cause and remedy, and nothing else be called a
fault."""

import http.server
import importlib.util
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import _hivemind_c
from hivemind_c import HivemindError, Node, _grpc_holes, get_dht_time
from hivemind_c.cli.doctor import lines_of
from hivemind_c.dht import news
from hivemind_c.dht.values import unpack
from hivemind_c.doctor import FAULT, NOTE, OK, WARNING, Finding, Settings, diagnose, machine, network, swarm
from hivemind_c.doctor.troubles import TROUBLES
from support import HERE, free_port

ROOT = Path(__file__).resolve().parents[3]
QUIET = {"environment": {}}
PATIENCE = 60.0  # for what comes at once on a machine that has time: nothing waits for so long


def told(found, name):
    """The one finding of that name."""
    (finding,) = [finding for finding in found if finding.name == name]
    assert finding.text.count(". ") == 0, "one sentence"
    return finding


def faults(found):
    return [finding.name for finding in found if finding.level == FAULT]


def looked(**settings):
    return diagnose(Settings(**{"timeout": PATIENCE, "host_maddrs": [HERE], **QUIET, **settings}))


def port_of(node):
    return int(node.addresses[0].split("/")[4])


@pytest.fixture
def listener():
    """A socket that listens on loopback, and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


# ---- nothing is wrong ----


def test_a_peer_that_is_fine_is_told_so_and_dialled_back(node, tmp_path):
    found = looked(initial_peers=node().addresses, identity_path=str(tmp_path / "key"))
    assert not faults(found)
    assert told(found, "initial peer").level == told(found, "reachable").level == OK
    assert re.search(r"by 127\.0\.0\.1 port \d+$", told(found, "reachable").text)


# ---- initial peers ----


def test_fault_01_a_closed_port():
    port = free_port()
    found = looked(initial_peers=[f"/ip4/127.0.0.1/tcp/{port}"])
    assert faults(found) == ["initial peer", "swarm"]
    assert "refused" in told(found, "initial peer").text and f"{port}" in told(found, "initial peer").text


def test_fault_02_another_identity(node):
    there, other = node(), node()
    found = looked(initial_peers=[f"/ip4/127.0.0.1/tcp/{port_of(there)}/p2p/{other.peer_id}"])
    assert faults(found) == ["initial peer", "swarm"]
    text = told(found, "initial peer").text
    assert text.index(there.peer_id) < text.index(other.peer_id) and "new key" in text


def test_fault_03_a_port_behind_which_nobody_answers(listener):
    found = looked(initial_peers=[f"127.0.0.1:{listener.getsockname()[1]}"], timeout=1.0)
    assert faults(found) == ["initial peer", "swarm"]
    assert (
        "does not answer within 1 s" in told(found, "initial peer").text
        and "firewall" in told(found, "initial peer").text
    )


def test_fault_04_a_web_server_is_no_peer():
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = looked(initial_peers=[f"127.0.0.1:{server.server_port}"])
        server.shutdown()
    assert "another program than a peer" in told(found, "initial peer").text


def error_of(cause, text="the core's own sentence"):
    error = HivemindError(text)
    error.cause = cause
    return error


@pytest.mark.parametrize(
    ("cause", "address", "words"),
    [
        ("name_not_found", "x:3", "DNS"),
        ("no_route", "/ip4/192.0.2.1/tcp/3", "this machine's IPv4"),
        ("no_route", "[2001:db8::1]:3", "this machine's IPv6"),
        ("tls_version", "x:3", "old versions of TLS"),
        ("connection_lost", "x:3", "look into its log"),
        ("bad_certificate", "x:3", "cannot prove"),
    ],
)
def test_fault_05_names_routes_and_old_programs(cause, address, words):
    text = network.why(address, error_of(cause), 3.0)
    assert words in text and address in text


def test_cause_with_a_whole_sentence_is_shown_as_it_is():
    for cause in network.WHOLE:
        assert network.why("x:3", error_of(cause), 3.0) == "the core's own sentence"


def test_unknown_cause_of_a_newer_library_is_shown_plainly():
    assert network.why("x:3", error_of("wormhole"), 3.0) == "x:3 does not answer (wormhole): the core's own sentence"


def test_doctor_names_only_causes_that_exist():
    assert {*network.WORDS, *network.WHOLE} <= set(_hivemind_c.CAUSES)


def test_fault_06_an_address_for_udp():
    found = looked(initial_peers=["/ip4/127.0.0.1/udp/3/quic"])
    assert faults(found) == ["initial peers"] and "/tcp/" in told(found, "initial peers").text


def test_fault_07_initial_peers_that_cannot_be_read():
    found = looked(environment={"INITIAL_PEERS": "my-machine"})
    assert faults(found) == ["initial peers"]
    assert told(found, "initial peers").text.startswith("INITIAL_PEERS cannot be read: 'my-machine' is not an address")


def test_fault_08_two_variables_that_differ_and_a_proxy():
    found = looked(environment={"INITIAL_PEERS": "foo", "PL_INITIAL_PEERS": "bar", "https_proxy": "http://proxy:3128"})
    assert told(found, "environment").level == WARNING and "PL_INITIAL_PEERS" in told(found, "environment").text
    assert told(found, "proxy").level == NOTE


# ---- this peer ----


def test_fault_09_its_own_port_is_taken(node):
    found = looked(host_maddrs=[f"127.0.0.1:{port_of(node())}"])
    assert faults(found) == ["listening"] and "already" in told(found, "listening").text
    assert "no such address" in told(looked(host_maddrs=["192.0.2.77:4"]), "listening").text


def test_fault_10_others_may_read_the_key(tmp_path):
    path = tmp_path / "key"
    Node(HERE, identity_path=path).shutdown()
    assert told(looked(identity_path=str(path)), "identity").level == OK
    path.chmod(0o644)
    found = looked(identity_path=str(path))
    assert faults(found) == ["identity"] and f"chmod 600 {path}" in told(found, "identity").text


def test_fault_11_the_key_is_none_or_has_no_folder(tmp_path):
    path = tmp_path / "key"
    path.write_text("not a key")
    path.chmod(0o600)
    assert faults(looked(identity_path=str(path))) == ["identity"]
    found = looked(identity_path=str(tmp_path / "none" / "key"))
    assert faults(found) == ["identity"] and f"mkdir -p {tmp_path}/none" in told(found, "identity").text


def test_fault_12_the_announced_port_is_closed(node):
    port = free_port()
    settings = Settings(timeout=1.0, host_maddrs=[HERE], announce_maddrs=[f"/ip4/127.0.0.1/tcp/{port}"])
    found = list(network.check_reachable(settings, node().addresses))
    assert faults(found) == ["reachable"]
    assert (
        f"/ip4/127.0.0.1/tcp/{port}" in told(found, "reachable").text and "client_mode" in told(found, "reachable").text
    )
    found = looked(client_mode=True)
    assert told(found, "reachable").level == NOTE and "identity" not in [finding.name for finding in found]


def test_fault_13_loopback_is_nobody_elses():
    assert told(looked(), "addresses").level == WARNING and "host_maddrs" in told(looked(), "addresses").text


# ---- the machine ----


def test_fault_14_too_few_open_files():
    def limited():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    program = "from hivemind_c.doctor import machine; print(machine.files(machine._files_allowed()))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        preexec_fn=limited,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "256" in done.stdout and "ulimit -n 4096" in done.stdout and "'warning'" in done.stdout


def test_fault_15_no_network_and_no_ipv6():
    assert [f.level for f in machine.internet(None, None, False)] == [FAULT]
    assert [(f.name, f.level) for f in machine.internet("192.0.2.3", None, False)] == [("network", OK), ("IPv6", NOTE)]
    assert "switched off" in list(machine.internet("192.0.2.3", None, False))[1].text
    assert "no way to IPv6" in list(machine.internet("192.0.2.3", None, True))[1].text
    assert [f.level for f in machine.internet(None, "2001:db8::3", True)] == [WARNING, OK]


def test_fault_16_the_clock_stands_in_another_year():
    assert machine.clock(0.0, True).level == WARNING and "1970-01-01" in machine.clock(0.0, True).text
    assert machine.clock(2e9, False).level == NOTE
    assert machine.clock(2e9, True).level == machine.clock(2e9, None).level == OK


def test_fault_17_packages_are_missing_or_old():
    none, old, new = (lambda name: None), (lambda name: "1.13.1"), (lambda name: "2.10.0")
    assert machine.torch_there(none).level == WARNING and machine.torch_there(old).level == FAULT
    assert [f.level for f in machine.lightning_there(none)] == [NOTE]
    assert [f.level for f in machine.lightning_there(old)] == [FAULT, FAULT]
    assert machine.versions(old).level == FAULT and "old build" in machine.versions(old).text
    assert machine.low_rank("/nowhere", none).level == WARNING
    assert [machine.low_rank(__file__, of).level for of in (none, old, new)] == [OK, NOTE, OK]


def test_fault_18_the_gpu_is_there_and_unused():
    asked = []
    ready, broken = (lambda: None), (lambda: "no NVRTC can be used; run pip install nvidia-cuda-nvrtc-cu12")
    assert machine.gpu(False, lambda: (False, None), asked.append).level == NOTE
    assert machine.gpu(True, lambda: None, asked.append).level == WARNING
    assert "built without CUDA" in machine.gpu(True, lambda: (False, None), asked.append).text
    assert "driver" in machine.gpu(True, lambda: (False, "12.8"), asked.append).text and asked == []
    assert machine.gpu(True, lambda: (True, "12.8"), ready).level == OK
    finding = machine.gpu(True, lambda: (True, "12.8"), broken)
    assert finding.level == WARNING and finding.text.endswith(broken())


# ---- the run ----


def tell(dht, **changed):
    said = dict(
        version="0.1.0",
        name="x",
        role="trainer",
        time=get_dht_time(),
        lease=60.0,
        epoch=3,
        target=64,
        samples=1,
        speed=1.0,
        loss=None,
        rounds=9,
        failures=0,
        errors=(),
    )
    value = unpack(news.write_news(news.News(**{**said, **changed})))
    assert dht.store(news.key_of("run", dht.peer_id), value, get_dht_time() + 60, subkey=news.subkey_of(dht.peer_id))


def test_fault_19_the_clock_is_off_against_the_peers(dhts):
    for one in dhts[:3]:
        tell(one, time=get_dht_time() + 6000)
    found = looked(initial_peers=dhts[0].get_visible_maddrs(), run_id="run")
    assert not faults(found)
    clocks = told(found, "clocks")
    assert (
        clocks.level == WARNING
        and 5900 < int(re.search(r"(\d+) s behind", clocks.text)[1]) < 6002
        and "timedatectl" in clocks.text
    )
    assert swarm.apart([0.5, -2.0, 3.0]).level == OK and "ahead of" in swarm.apart([-99.0]).text


@pytest.mark.parametrize(
    "core, name, n_holes",
    [
        ("23.0.0", "gRPC (core 23.0.0)", 7),
        ("29.0.0", "gRPC 1.51 (core 29.0.0)", 7),
        ("30.0.0", "gRPC 1.52 (core 30.0.0)", 7),
        ("30.1.0", "gRPC 1.53 (core 30.1.0)", 5),
        ("31.0.0", "gRPC 1.54 (core 31.0.0)", 5),
        ("36.0.0", "gRPC 1.59 (core 36.0.0)", 3),
        ("39.0.0", "gRPC 1.62 (core 39.0.0)", 2),
        ("43.0.0", "gRPC 1.66 (core 43.0.0)", 1),
        ("44.0.0", "gRPC 1.67 (core 44.0.0)", 0),
        ("60.0.0", "gRPC (core 60.0.0)", 0),
    ],
)
def test_old_grpc_is_told_with_its_holes(core, name, n_holes):
    found = machine.grpc(core)
    assert len(_grpc_holes.open_holes(core)) == n_holes == len(found.details)
    assert found.level == (WARNING if n_holes else OK)
    assert found.text.startswith(f"{name} has") and "CVE-" not in found.text
    if n_holes:
        assert f" {n_holes} known hole" in found.text and "`make grpc`" in found.text and len(found.text) < 250


# The core has the same version in all patch releases of a branch, so the doctor names the patch release with the fix.
def test_fix_by_a_patch_release_is_named():
    names = [line.split(":")[0] for line in machine.grpc("33.0.0").details]
    assert {"CVE-2023-4785 before 1.56.2", "CVE-2023-44487 before 1.56.3", "CVE-2024-11407"} <= set(names)
    assert "CVE-2023-1428" not in names


def test_loaded_grpc_is_told_by_its_release_and_holes():
    core = _hivemind_c.GRPC_CORE_VERSION
    loaded = re.search(r"libgrpc[^/\n]*\.so\.(\d+)", Path("/proc/self/maps").read_text())
    assert loaded and int(loaded[1]) == _grpc_holes.numbers(core)[0]
    found = machine.grpc(core)
    release = _grpc_holes.branch(core)
    is_old = release < _grpc_holes.numbers(_grpc_holes.WITHOUT)
    assert f"gRPC {release[0]}.{release[1]} (core {core})" in found.text or release[1] >= 67
    assert (found.level, "CVE-2024-11407" in str(found.details)) == ((WARNING, True) if is_old else (OK, False))


def test_build_without_the_port_libraries_is_told():
    assert _hivemind_c.CAN_OPEN_PORTS is True and list(machine.ports(True)) == []
    (found,) = machine.ports(False)
    assert found.level == NOTE and "apt-get install libminiupnpc-dev libnatpmp-dev" in found.text


def test_table_of_holes_ends_where_it_says():
    last = max(max(map(_grpc_holes.numbers, hole.fixed)) for hole in _grpc_holes.TABLE)
    assert _grpc_holes.numbers(_grpc_holes.WITHOUT) == last


def test_fault_20_other_versions_and_failing_rounds(dhts):
    tell(dhts[0], version="0.0.7\x1b[2J", rounds=1, failures=9, errors=((2, "nobody came"),))
    found = looked(initial_peers=dhts[1].get_visible_maddrs(), run_id="run")
    assert told(found, "peers' versions").level == WARNING and "0.0.7?[2J" in told(found, "peers' versions").text
    assert "nobody came" in told(found, "rounds").text


def test_troubles_of_the_runs_peers_are_told(dhts):
    tell(dhts[0], troubles=("thin", "of a later version"))
    found = looked(initial_peers=dhts[1].get_visible_maddrs(), run_id="run")
    finding = told(found, "troubles")
    assert finding.level == WARNING and TROUBLES["thin"].remedy in finding.text
    assert dhts[0].peer_id[-8:] in finding.text and "(1 of " in finding.text


def test_page_names_each_trouble_as_the_peer_does():
    table = (ROOT / "docs" / "howto" / "troubleshoot.md").read_text().split("<!-- troubles -->")[1]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.M))
    assert rows == {code: about for code, (about, _) in TROUBLES.items()}


def test_fault_21_nobody_trains_in_that_run(dhts):
    found = looked(initial_peers=dhts[0].get_visible_maddrs(), run_id="another")
    assert told(found, "run").level == WARNING and "'another'" in told(found, "run").text


# ---- the program ----


def test_the_program_tells_and_its_exit_code_is_the_verdict(node):
    peer = node()
    command = [sys.executable, "-m", "hivemind_c.cli.doctor", "--timeout", str(PATIENCE), "--host_maddrs", HERE]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "INITIAL_PEERS": ""}
    fine = subprocess.run([*command, "--initial_peers", *peer.addresses], capture_output=True, text=True, env=env)
    assert fine.returncode == 0 and "answers within" in fine.stdout, fine.stderr
    wrong = subprocess.run(
        [*command, "--json", "--initial_peers", "foo", *peer.addresses], capture_output=True, text=True, env=env
    )
    found = [json.loads(line) for line in wrong.stdout.splitlines()]
    assert wrong.returncode == 1 and [f["text"][:14] for f in found if f["level"] == FAULT] == ["--initial_peer"]
    assert subprocess.run([*command, "--nothing"], capture_output=True, env=env).returncode == 2


def test_the_package_needs_neither_typer_nor_rich():
    program = (
        "import sys, hivemind_c, hivemind_c.dht, hivemind_c.doctor; print({'rich', 'typer', 'starlette', 'uvicorn'} "
        "& set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "set()"


def test_missing_library_of_the_monitor_is_named():
    code = "import sys; sys.modules['typer'] = None; import hivemind_c.cli.monitor"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (
        done.returncode == 1
        and done.stderr.strip()
        == "this program needs typer, which is not installed: install hivemind_c's wheel with [monitor]"
    )


@pytest.fixture
def bare(tmp_path):
    """bare(words, **env) runs Python with nothing but its library, the package, and the requirements of the wheel."""
    text = (ROOT / "pyproject.toml").read_text()
    for name in re.findall(r'"(\w+)', re.search(r"(?m)^dependencies = (.+)$", text)[1]):
        (tmp_path / name).symlink_to(os.path.dirname(importlib.util.find_spec(name).origin))
    path = os.pathsep.join([str(ROOT / "python"), str(tmp_path)])

    def run(*words, **env):
        env = {**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": str(tmp_path), "INITIAL_PEERS": "", **env}
        return subprocess.Popen([sys.executable, "-S", *words], stdout=-1, stderr=-1, text=True, env=env)

    return run


def test_wheels_requirements_suffice_for_doctor_and_hub(bare):
    words = "-c", "import importlib.util as i; print([n for n in ('torch', 'rich', 'typer') if i.find_spec(n)])"
    assert bare(*words).communicate()[0].strip() == "[]"
    hub = bare("-m", "hivemind_c.cli.hub", "--run_id", "bare", "--maddrs", HERE, "--no_open_port", "--history", "none")
    try:
        peers = hub.stdout.readline().strip().removeprefix("INITIAL_PEERS=")
        words = "--client_mode", "--timeout", str(PATIENCE)
        out, error = bare("-m", "hivemind_c.cli.doctor", *words, INITIAL_PEERS=peers).communicate()
        assert "answers within" in out and "torch is not installed" in out and not error, (out, error)
    finally:
        hub.terminate()
        hub.communicate()
    assert hub.returncode == 0
    for command in ("dht", "invite"):
        out, error = bare("-m", f"hivemind_c.cli.{command}", "--help").communicate()
        assert "usage" in out and not error


def test_finding_is_wrapped_beside_its_name():
    finding = Finding("gRPC", WARNING, "many words " * 9, ("CVE-1: no effect", "CVE-2: some"))
    plain = lines_of(finding, None, False, False)
    assert plain == "! gRPC" + 12 * " " + finding.text
    lines = lines_of(finding, 60, True, False).splitlines()
    assert all(len(line) <= 60 for line in lines) and all(line[:18] == 18 * " " for line in lines[1:])
    assert [line.strip() for line in lines[-2:]] == ["- CVE-1: no effect", "- CVE-2: some"]
    assert lines_of(finding, None, False, True).startswith("\033[33m! gRPC")


# ---- the NAT before this machine ----


def nat(*views):
    return told(list(network.check_nat([network.View(*view) for view in views])), "NAT")


def test_peer_at_its_own_address_has_no_nat(node):
    found = looked(initial_peers=node().addresses)
    assert told(found, "NAT").level == OK
    assert "(127.0.0.1): no NAT" in told(found, "NAT").text


def test_nat_is_told_with_the_outer_address_and_a_way_out():
    found = nat(("203.0.113.7", False, True))
    assert found.level == NOTE and "at 203.0.113.7, which is not its own address" in found.text
    assert "keeps port numbers" in found.text and "client_mode=True" in found.text


@pytest.mark.parametrize(
    "views, kind",
    [
        ([("203.0.113.7", False, True), ("203.0.113.7", False, False)], "which changes port numbers;"),
        ([("203.0.113.7", False, True), ("203.0.113.8", False, True)], "keeps port numbers, with several outer"),
        ([("10.0.0.2", True, True), ("203.0.113.8", False, False)], "peers see this machine at 203.0.113.8,"),
    ],
)
def test_views_of_two_peers_tell_the_kind_of_nat(views, kind):
    assert kind in nat(*views).text


def test_seen_address_is_that_of_the_connection(node):
    first = node()
    second = node(initial_peers=first.addresses)
    second.wait_for_peers(1, PATIENCE)
    host, port = second.seen_at.split("/")[2::2]
    assert first.seen_at == "" and host == "127.0.0.1" and int(port) not in (port_of(first), port_of(second))
