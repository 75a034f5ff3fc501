"""HivemindError.cause: each code comes from the condition that it names, with the class and the status of that kind of
error."""

import http.server
import re
import select
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest

import _hivemind_c
from hivemind_c import HivemindConnectionError, HivemindError, HivemindTimeoutError, Node, _invitation
from support import HERE, PATIENCE, Program, free_port

ROOT = Path(__file__).resolve().parents[3]
OTHER_ID = "12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf"

#: Conditions that Python cannot bring about on every machine; the C test that does.
IN_C = {
    "clock": "tests/unit/net/test_certificate.c",
    "no_ipv6": "tests/unit/net/transport/test_listen.c",
    "denied": "tests/unit/net/transport/test_closed.c",
}


def dialled(address, timeout=PATIENCE, **options):
    """The error of a node with this single initial peer."""
    with Node(client_mode=True, initial_peers=[address], log_level=50, **options) as node:
        with pytest.raises(HivemindError) as raised:
            node.wait_for_peers(1, timeout=timeout)
    return raised.value


def started(*arguments, **options):
    """The error of a node that cannot start."""
    with pytest.raises(HivemindError) as raised:
        Node(*arguments, **options).shutdown()
    return raised.value


class Relay:
    """Forwards TCP connections to a port on loopback; `change` may alter what goes there, and stop() breaks all
    connections."""

    def __init__(self, port, change=lambda data: data):
        self.to, self.change, self.held, self.ends = port, change, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.to))
            self.ends += [near, far]
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near, far):
        try:
            while True:
                for end in select.select([near, far], [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    if not self.held:
                        (far if end is near else near).sendall(self.change(data) if end is near else data)
        except (OSError, ValueError):
            pass
        finally:
            near.close(), far.close()

    def stop(self):
        self.listener.close()
        for end in self.ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@pytest.fixture
def relay():
    made = []

    def start(*arguments):
        made.append(Relay(*arguments))
        return made[-1]

    yield start
    for one in made:
        one.stop()


@pytest.fixture
def tls(tmp_path):
    """tls(version) starts a TLS server that is no peer and speaks no newer version of TLS; its address."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            certificate,
            "-subj",
            "/CN=x",
        ],
        check=True,
        capture_output=True,
    )
    listeners = []

    def serve(listener, context):
        while True:
            try:
                with context.wrap_socket(listener.accept()[0], server_side=True) as end:
                    end.recv(100)
            except ssl.SSLError:
                pass
            except OSError:
                if listener.fileno() < 0:
                    return

    def start(version):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["h2"])
        context.options &= ~(ssl.OP_NO_TLSv1 | ssl.OP_NO_TLSv1_1)
        context.minimum_version, context.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED, version
        listeners.append(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=serve, args=(listeners[-1], context), daemon=True).start()
        return f"127.0.0.1:{listeners[-1].getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.close()


def port_of(node):
    return int(node.addresses[0].split("/")[4])


# ---- initial peers ----


def test_closed_port_is_refused():
    error = dialled(f"127.0.0.1:{free_port()}")
    assert (error.cause, type(error)) == ("refused", HivemindConnectionError)


def test_silent_port_is_timed_out():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = dialled(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.5)
    assert (error.cause, error.status, type(error)) == ("timed_out", "TIMEOUT", HivemindTimeoutError)


def test_multicast_address_is_no_route():
    assert dialled("224.0.0.1:9").cause == "no_route"  # TCP has no route to many at once, on every machine


def test_invalid_host_is_name_not_found():
    assert dialled("no-such-host.invalid:9").cause == "name_not_found"


def test_web_server_is_not_a_peer():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        server.RequestHandlerClass.log_message = lambda *words: None
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert dialled(f"127.0.0.1:{server.server_port}").cause == "not_a_peer"
        server.shutdown()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_tls_is_tls_version(tls):
    assert dialled(tls(ssl.TLSVersion.TLSv1_1)).cause == "tls_version"


def test_rsa_certificate_is_bad_certificate(tls):
    assert dialled(tls(ssl.TLSVersion.MAXIMUM_SUPPORTED)).cause == "bad_certificate"


def test_other_key_is_other_peer(node):
    error = dialled(f"/ip4/127.0.0.1/tcp/{port_of(node())}/p2p/{OTHER_ID}")
    assert error.cause == "other_peer" and OTHER_ID in str(error)


def test_other_version_is_protocol_version(node, relay):
    """A relay makes the caller's version 1 a 2: of its first message, whose size stands before it."""
    there = relay(
        port_of(node(insecure=True)), lambda data: re.sub(rb"(?<=\x00\x00\x00..\x08)\x01", b"\x02", data, flags=re.S)
    )
    assert dialled(f"127.0.0.1:{there.port}", insecure=True).cause == "protocol_version"


def test_initial_peers_share_a_cause_or_have_none():
    shared = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    assert dialled(shared).cause == "refused"
    assert dialled(f"{shared},224.0.0.1:9").cause == "other"


# ---- peers that were met ----


def test_broken_connection_is_connection_lost(node, relay):
    port = free_port()
    there = relay(port)
    host = node(f"/ip4/127.0.0.1/tcp/{port}", announce=f"/ip4/127.0.0.1/tcp/{there.port}", insecure=True)
    guest = node(None, client_mode=True, initial_peers=[f"127.0.0.1:{there.port}"], insecure=True)
    guest.wait_for_peers(1, timeout=PATIENCE)
    there.held = True
    echo = guest.echo(host.peer_id, b"x", timeout=PATIENCE, wait=False)
    time.sleep(0.2)  # the question is under way
    there.stop()
    error = echo.exception(PATIENCE)
    assert (error.cause, error.status) == ("connection_lost", "CLOSED")


def test_stranger_is_unknown_peer(node):
    with pytest.raises(HivemindError) as raised:
        node().echo(OTHER_ID, b"x")
    assert (raised.value.cause, raised.value.status) == ("unknown_peer", "NOT_FOUND")


def test_peer_that_cannot_be_dialled_is_client_mode(node):
    host = node()
    guest = node(None, client_mode=True, initial_peers=host.addresses)
    guest.wait_for_peers(1, timeout=PATIENCE)
    host.wait_for_peers(1, timeout=PATIENCE)
    with pytest.raises(HivemindError) as raised:
        host.echo(guest.peer_id, b"x")
    assert raised.value.cause == "client_mode"


def test_call_after_shutdown_is_closed(node):
    gone = node()
    gone.shutdown()
    with pytest.raises(HivemindError) as raised:
        gone.peers()
    assert (raised.value.cause, raised.value.status) == ("closed", "CLOSED")


# ---- starting a node ----


def test_taken_port_is_address_in_use(node):
    assert started(f"127.0.0.1:{port_of(node())}").cause == "address_in_use"


def test_foreign_address_is_not_own_address():
    assert started("192.0.2.77:4").cause == "not_own_address"


def test_low_port_is_port_not_allowed():
    program = Program(
        """
        import ctypes, os
        from hivemind_c import HivemindError, Node

        libc = ctypes.CDLL(None)
        if os.getuid() == 0:  # root may listen anywhere: as nobody, with no right but to read what is imported
            libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
            os.setgid(65534), os.setuid(65534)
            header = (ctypes.c_uint32 * 2)(0x20080522, 0)
            data = (ctypes.c_uint32 * 6)(1 << 2, 1 << 2)  # CAP_DAC_READ_SEARCH
            libc.capset(header, data)
        try:
            Node("127.0.0.1:1", log_level=50).shutdown()
            print("it listens")
        except HivemindError as error:
            print(error.cause)
        """
    )
    code, out, err = program.finish()
    assert (code, out.strip()) == (0, "port_not_allowed"), err


@pytest.mark.parametrize("address", ["my-machine", "/ip4/300.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWx"])
def test_unreadable_address_is_bad_address(address):
    assert started(HERE, initial_peers=[address]).cause == "bad_address"


def test_unreadable_peer_id_is_bad_address(node):
    with pytest.raises(HivemindError) as raised:
        node().echo("12D3KooWx", b"x")
    assert raised.value.cause == "bad_address"


def test_quic_address_is_other_transport():
    error = started(HERE, initial_peers=["/ip4/127.0.0.1/udp/3/quic"])
    assert (error.cause, error.status) == ("other_transport", "UNSUPPORTED")


def test_readable_key_is_key_exposed(tmp_path):
    path = tmp_path / "key"
    Node(HERE, identity_path=path).shutdown()
    path.chmod(0o644)
    error = started(HERE, identity_path=path)
    assert (error.cause, error.status) == ("key_exposed", "PERMISSION")


def test_file_without_a_key_is_bad_key(tmp_path):
    path = tmp_path / "key"
    path.write_text("not a key")
    path.chmod(0o600)
    assert started(HERE, identity_path=path).cause == "bad_key"


def test_closed_swarm_refuses_with_not_invited(tmp_path):
    _invitation.new_key(tmp_path / "swarm.key")
    with Node(HERE, swarm_key=tmp_path / "swarm.key", log_level=50) as member:
        error = dialled(member.addresses[0])
    assert (error.cause, error.status) == ("not_invited", "NOT_ADMITTED") and isinstance(error, PermissionError)


def test_old_invitation_is_invitation_ended():
    text, _ = _hivemind_c.invite_new(_hivemind_c.swarm_key_new(), int(time.time()) - 7200, "", None)
    error = started(HERE, invite=text)
    assert (error.cause, error.status) == ("invitation_ended", "NOT_ADMITTED")


def test_cut_invitation_is_bad_invitation():
    text, _ = _hivemind_c.invite_new(_hivemind_c.swarm_key_new(), int(time.time()) + 7200, "", None)
    error = started(HERE, invite=text[:-1])
    assert (error.cause, error.status) == ("bad_invitation", "MALFORMED")


def test_small_limit_is_memory():
    error = started(HERE, memory_limit=4096)
    assert error.cause == "memory" and isinstance(error, MemoryError)


def test_error_without_a_finer_cause_is_other():
    error = started(HERE, identity_path="/nowhere/key")
    assert (error.cause, error.status) == ("other", "IO")
    assert (HivemindError("x").cause, HivemindError("x").status) == ("other", "INTERNAL")


def test_error_that_python_raises_has_the_codes_of_its_class():
    assert (HivemindTimeoutError("x").cause, HivemindTimeoutError("x").status) == ("timed_out", "TIMEOUT")
    assert (HivemindConnectionError("x").cause, HivemindConnectionError("x").status) == ("other", "UNREACHABLE")


# ---- the list ----


def test_each_cause_has_its_test_and_its_row():
    here = Path(__file__).read_text()
    book = (ROOT / "docs/reference/error-causes.md").read_text()
    assert len(set(_hivemind_c.CAUSES)) == len(_hivemind_c.CAUSES)
    for cause in _hivemind_c.CAUSES:
        if cause in IN_C:
            assert f"HV_CAUSE_{cause.upper()}" in (ROOT / IN_C[cause]).read_text()
        else:
            assert f'"{cause}"' in here
        assert f"| `{cause}` |" in book, "a row of its own"
