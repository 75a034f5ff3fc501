"""Where a DHT listens and whom it finds: every form of an address, and initial peers that are not what they should
be."""

import contextlib
import logging
import socket
import threading

import pytest

from hivemind_c import (
    DHT,
    HivemindConnectionError,
    HivemindTimeoutError,
    HivemindUnsupportedError,
    HivemindValueError,
    get_dht_time,
)
from hivemind_c._lightning import bootstrap
from hivemind_c.cli.dht import parser
from support import eventually, free_port, has_ip6


def soon():
    return get_dht_time() + 60


def port_of(one):
    return one.get_visible_maddrs()[0].split("/")[4]


def together(first, second):
    return first.store("key", 1, soon()) and second.get("key", latest=True).value == 1


@pytest.fixture
def rude():
    """rude(words) listens, and whatever comes is answered with these bytes; returns HOST:PORT."""
    ears = []

    def answer(ear, words):
        while True:
            try:
                caller = ear.accept()[0]
            except OSError:
                return
            with caller, contextlib.suppress(OSError):  # it may have heard enough
                caller.sendall(words)

    def start(words):
        ear = socket.create_server(("127.0.0.1", 0))
        ears.append((ear, threading.Thread(target=answer, args=(ear, words))))
        ears[-1][1].start()
        return f"127.0.0.1:{ear.getsockname()[1]}"

    yield start
    for ear, thread in ears:
        ear.shutdown(socket.SHUT_RDWR)
        ear.close()
        thread.join()


@pytest.mark.parametrize(
    "form",
    ["localhost:{}", "/dns4/localhost/tcp/{}", "/dns/localhost/tcp/{}", "/ip4/127.0.0.1/tcp/{}", " 127.0.0.1:{} , "],
)
def test_peer_is_found_by_every_form_of_its_address(dht, form):
    first = dht()
    assert together(first, dht(form.format(port_of(first))))


def test_identity_of_a_peer_given_without_one_is_logged(dht, caplog):
    caplog.set_level(logging.INFO, "hivemind_c")
    first = dht()
    dht(f"127.0.0.1:{port_of(first)}")
    assert eventually(lambda: f"the peer at 127.0.0.1:{port_of(first)} is {first.peer_id}" in caplog.text)


def test_short_forms_listen_on_every_interface(dht):
    forms = ["0.0.0.0:*", "[::]:*"] if has_ip6() else ["0.0.0.0:*"]
    one = dht(host_maddrs=forms)
    inside = [address for address in one.get_visible_maddrs() if address.startswith(("/ip4/127.0.0.1/", "/ip6/::1/"))]
    assert {address.split("/")[1] for address in inside or one.get_visible_maddrs()} == (
        {"ip4", "ip6"} if has_ip6() else {"ip4"}
    )
    for address in inside or one.get_visible_maddrs():
        assert together(one, dht(address))


def test_each_of_several_listening_addresses_can_be_dialled(dht):
    one = dht(host_maddrs="127.0.0.1:0, 127.0.0.2:0")
    first, second = one.get_visible_maddrs()
    assert first.startswith("/ip4/127.0.0.1/") and second.startswith("/ip4/127.0.0.2/")
    assert together(one, dht(first)) and together(one, dht(second))


NOISE = {
    "http": b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
    "nothing": b"",
    "noise": bytes(range(256)) * 64,
    "half a record": b"\x16\x03\x03\x40\0",
}


@pytest.mark.parametrize("words", NOISE.values(), ids=NOISE)
def test_bootstrap_of_another_protocol_is_named_and_harmless(dht, rude, words):
    address = rude(words)
    with pytest.raises((HivemindConnectionError, HivemindTimeoutError), match=address):
        DHT(address, start=True, bootstrap_timeout=0.3, startup_timeout=3)
    first = dht()
    assert together(first, dht([address, *first.get_visible_maddrs()]))


QUIC = "/ip4/127.0.0.1/udp/4001/quic"


def test_list_of_other_transports_alone_is_refused_at_once():
    with pytest.raises(HivemindUnsupportedError, match=f"{QUIC} .*not TCP.*/ip6/::1/udp/3/quic-v1 .*not TCP"):
        DHT([QUIC, "/ip6/::1/udp/3/quic-v1"], start=True)


def test_other_transport_is_skipped_beside_a_dialable_address(dht):
    first = dht()
    assert together(first, dht([QUIC, *first.get_visible_maddrs()]))


def test_other_transport_is_named_beside_silent_addresses():
    with pytest.raises(HivemindConnectionError) as caught:
        DHT([QUIC, "127.0.0.1:1"], start=True, bootstrap_timeout=0.3)
    assert " 127.0.0.1:1 (" in str(caught.value)
    assert f"{QUIC} (its transport is not TCP)" in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        "/ip4/1.2.3/tcp/1",
        "/ip4/1.2.3.4/tcp/99999",
        "1.2.3.4",
        "/ip4/1.2.3.4/tcp/1/p2p/Qm",
        ":::1",
        "[::1:5",
    ],
)
@pytest.mark.parametrize("argument", ["initial_peers", "host_maddrs", "announce_maddrs"])
def test_a_malformed_address_is_named_wherever_it_stands(argument, address):
    with pytest.raises(HivemindValueError) as caught:
        DHT(start=True, **{argument: address})
    assert any(word in str(caught.value) for word in (address, *address.split("/")[2:])), caught.value


def test_warning_of_a_failed_start_is_not_repeated(caplog):
    with caplog.at_level(logging.WARNING):
        alone = bootstrap.start([f"127.0.0.1:{free_port()}"], 0.2, host_maddrs=["/ip4/127.0.0.1/tcp/0"])
        try:
            alone._tell("nobody could be asked")
        finally:
            alone.shutdown()
    assert "training begins alone" in caplog.text and "nobody could be asked" not in caplog.text


def test_command_takes_an_option_of_addresses_again():
    words = ["--initial_peers", "a:1", "b:2", "--host_maddrs", "c:3", "--initial_peers", "d:4"]
    options = parser().parse_args(words)
    assert (options.initial_peers, options.host_maddrs) == (["a:1", "b:2", "d:4"], ["c:3"])
    assert parser().parse_args([]).initial_peers == []
