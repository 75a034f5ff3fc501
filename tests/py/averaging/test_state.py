"""The swarm's state through Python: tensors offered and loaded, refusals, and donors that die while they serve."""

import os
import signal
import socket
import threading

import pytest
import torch

from hivemind_c import (
    DHT,
    Float16Compression,
    HivemindConnectionError,
    HivemindError,
    HivemindLookupError,
    HivemindTimeoutError,
    HivemindValueError,
    NoCompression,
    SizeAdaptiveCompression,
    Uniform8BitQuantization,
)
from hivemind_c.averaging.state import StateSharing
from hivemind_c.dht.values import _pack
from support import eventually, free_port


def model(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(300, 700, generator=generator),
        torch.randn(5, generator=generator, dtype=torch.float64),
        torch.randn(7, 3, generator=generator).to(torch.bfloat16),
        torch.tensor(42),
        torch.empty(0, 4),
        torch.arange(1000, dtype=torch.int16),
        torch.tensor([True, False, True]),
        torch.randn(40, 30, generator=generator).t(),  # not contiguous
    ]


def same(ours, theirs):
    return len(ours) == len(theirs) and all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(-1), b.view(-1))
        for a, b in zip(ours, theirs)
    )


def test_a_state_comes_as_it_was_offered(pair):
    donor, joiner = pair
    metadata = {"lr": 0.1, "betas": (0.9, 0.999), "groups": [{"name": "a", "weight_decay": None}], "step": 1 << 40}
    digest = StateSharing(donor, "run").offer(12, model(), metadata)
    assert len(digest) == 32
    loaded = StateSharing(joiner, "run").load(timeout=30)
    assert loaded.epoch == 12 and loaded.metadata == metadata and loaded.donor == donor.peer_id
    assert isinstance(loaded.metadata["betas"], tuple)
    assert same(model(), loaded.tensors)
    loaded.tensors[0].add_(1)  # they are nobody else's


def test_refused_state_is_passed_over_for_another(pair, node):
    """The second donor is the joiner's initial peer, so its states are chosen first. They are of no use: one is full
    of NaN, and one is too large.
    """
    first, second = pair
    joiner = node(initial_peers=second.addresses)
    joiner.wait_for_peers(2, timeout=60)
    good, bad = [torch.ones(300)], [torch.full((300,), float("nan"))]
    StateSharing(first, "liars").offer(3, good)
    StateSharing(second, "liars").offer(4, bad)
    taken = []

    def finite(state):
        taken.append(state.epoch)
        if not all(tensor.isfinite().all() for tensor in state.tensors):
            raise ValueError("it is not finite")

    sharing = StateSharing(joiner, "liars")
    loaded = sharing.load(30, accept=finite, epoch_least=1)
    assert taken == [4, 3] and loaded.epoch == 3 and same(good, loaded.tensors)
    assert sharing.load(30, accept=finite, epoch_least=1).epoch == 3 and taken == [4, 3, 3], "it is not loaded again"
    with pytest.raises(ValueError, match="not finite"):
        StateSharing(joiner, "liars").load(30, accept=finite, epoch_least=4)
    StateSharing(second, "liars").offer(5, [torch.ones(3000)])
    assert sharing.load(30, size_max=2000, epoch_least=1).epoch == 3
    with pytest.raises(HivemindError, match="the limit is 2000") as caught:
        sharing.load(30, size_max=2000, epoch_least=5)
    assert caught.value.status == "TOO_LARGE"


def test_state_above_the_free_memory_is_refused(pair, monkeypatch):
    donor, joiner = pair
    StateSharing(donor, "vast").offer(1, [torch.zeros(3000)])
    assert StateSharing(joiner, "vast").load(30).epoch == 1
    monkeypatch.setattr("hivemind_c.averaging.state._free_memory", lambda: 2000)
    with pytest.raises(HivemindError, match="the limit is 2000") as caught:
        StateSharing(joiner, "vast").load(30)
    assert caught.value.status == "TOO_LARGE"


def test_look_names_the_epoch_that_load_would_give(pair):
    donor, joiner = pair
    with pytest.raises(HivemindLookupError):
        StateSharing(joiner, "looked").look(30)
    StateSharing(donor, "looked").offer(12, model())
    looker = StateSharing(joiner, "looked")
    assert looker.look(30) == looker.look(30, epoch_least=12) == 12
    with pytest.raises(HivemindLookupError, match="13 or later"):
        looker.look(30, epoch_least=13)


def test_look_passes_over_a_state_that_load_refused(pair):
    donor, joiner = pair
    StateSharing(donor, "refused").offer(12, model())
    looker = StateSharing(joiner, "refused")
    assert looker.look(30) == 12

    def refuse(state):
        raise ValueError("it is of another model")

    with pytest.raises(HivemindValueError, match="another model"):
        looker.load(30, accept=refuse)
    with pytest.raises(HivemindLookupError):
        looker.look(30)
    StateSharing(donor, "refused").offer(13, model())
    assert looker.look(30) == 13
    with pytest.raises(HivemindError):
        joiner.core.state_look(b"refused", 30, 0, b"no digest").result()


def test_empty_tensor_of_a_vast_shape_is_refused(pair):
    """torch cannot make it: the product of its sizes does not fit into 64 bits."""
    donor, joiner = pair
    said = {"version": 1, "tensors": [["float32", [0, 1 << 47, 1 << 47]]], "metadata": None}
    donor.core.state_offer(b"vast", 1, _pack(said, 0), ((b"", 0, 1, False),)).result()
    with pytest.raises(HivemindValueError, match="a shape that no tensor has"):
        StateSharing(joiner, "vast").load(30)


def test_equal_states_have_equal_digests_and_others_do_not(pair):
    first, second = (StateSharing(node, "run") for node in pair)
    digest = first.offer(3, model(), {"lr": 0.1})
    assert second.offer(3, model(), {"lr": 0.1}) == digest
    for other in (
        (4, model(), {"lr": 0.1}),
        (3, model(1), {"lr": 0.1}),
        (3, model(), {"lr": 0.2}),
        (3, model()[:-1], {"lr": 0.1}),
    ):
        assert second.offer(*other) != digest


def test_own_tensors_come_from_the_donor_and_are_in_no_digest(pair):
    first, second = (StateSharing(node, "run", compression=Float16Compression()) for node in pair)
    counts = [[torch.tensor(n), torch.full((3,), 0.1 * n)] for n in (7, 9)]
    digest = first.offer(3, model() + counts[0], n_own=2)
    assert second.offer(3, model() + counts[1], n_own=2) == digest
    assert second.offer(3, model() + counts[0]) != digest  # the same tensors as the swarm's
    second.withdraw()
    loaded = second.load(timeout=30)
    assert same(counts[0], loaded.tensors[-2:])  # to the bit: they are not compressed
    with pytest.raises(ValueError, match="n_own must be"):
        first.offer(3, model(), n_own=9)


@pytest.mark.parametrize(
    "compression", [Float16Compression(), SizeAdaptiveCompression(100, NoCompression(), Uniform8BitQuantization())]
)
def test_floats_travel_by_the_compression_of_the_run(pair, compression):
    donor, joiner = pair
    state = model()
    StateSharing(donor, "run", compression=compression).offer(1, state)
    loaded = StateSharing(joiner, "run").load(timeout=30, like=state)
    for ours, theirs in zip(state, loaded.tensors):
        if not ours.is_floating_point() or (ours.numel() < 100 and "Size" in type(compression).__name__):
            assert torch.equal(ours, theirs)
        else:
            assert torch.allclose(ours.float(), theirs.float(), atol=0.05) and (
                ours.numel() < 10 or not torch.equal(ours, theirs) or ours.dtype == torch.bfloat16
            )


def test_memory_that_changes_while_it_is_borrowed_reaches_nobody(pair):
    donor, joiner = pair
    sharing, tensor = StateSharing(donor, "run"), torch.zeros(1 << 18)
    sharing.offer(1, [tensor])
    tensor[5] = 7  # the program broke its word: what would be sent is not what was announced
    with pytest.raises(HivemindConnectionError):
        StateSharing(joiner, "run").load(timeout=60)
    sharing.offer(2, [tensor])
    assert StateSharing(joiner, "run").load(timeout=30).tensors[0][5] == 7


def test_memory_is_borrowed_until_a_newer_offer_replaces_it(pair):
    node = pair[0].core
    first, second = bytearray(100000), bytearray(5)

    def is_free(buffer):
        node.dht_look().result()
        node.take_log()
        try:
            buffer.append(1)
        except BufferError:
            return False
        return True

    node.state_offer(b"run", 1, b"", ((first, 0, 0), (second, 0, 0))).result()
    assert not is_free(first) and not is_free(second)
    node.state_offer(b"run", 2, b"", ((second, 0, 0),)).result()
    assert eventually(lambda: is_free(first))
    assert not is_free(second)
    node.state_withdraw(b"run").result()
    assert eventually(lambda: is_free(second))
    node.state_offer(b"run", 3, b"", ((first, 0, 0),)).result()
    pair[0].shutdown()
    first.append(1)


def test_load_without_a_donor_says_so(pair):
    with pytest.raises(HivemindLookupError, match="no peer offers a state"):
        StateSharing(pair[1], "run").load(timeout=30)


def test_state_that_does_not_fit_is_refused_by_difference(pair):
    donor, joiner = pair
    StateSharing(donor, "run").offer(1, [torch.zeros(3), torch.zeros(2, 2)])
    load = StateSharing(joiner, "run").load
    with pytest.raises(
        HivemindValueError, match=r"tensor 1 .*float32 of shape \(2, 2\), and this peer's float32 of shape \(4,\)"
    ):
        load(timeout=30, like=[torch.zeros(3), torch.zeros(4)])
    with pytest.raises(HivemindValueError, match="2 tensors, and this peer's 1"):
        load(timeout=30, like=[torch.zeros(3)])
    with pytest.raises(HivemindError, match="the limit is"):
        load(timeout=30, size_max=10)
    with pytest.raises(HivemindLookupError):
        load(timeout=30, epoch_least=2)


def test_invalid_offer_is_an_error_at_once(pair):
    sharing = StateSharing(pair[0], "run")
    for wrong in (
        lambda: sharing.offer(-1, []),
        lambda: sharing.offer(1.5, []),
        lambda: sharing.offer(1, [torch.zeros(2, dtype=torch.complex64)]),
        lambda: sharing.offer(1, [], b"x" * (1 << 21)),
        lambda: sharing.offer(1, [], infos=[None]),
        lambda: sharing.offer(1, [], lineage=b"short"),
        lambda: StateSharing(pair[0], "run", declare_period=0),
        lambda: StateSharing(pair[0], "p" * 600).offer(1, []),
        lambda: StateSharing(pair[0], "").offer(1, []),
        lambda: setattr(sharing, "priority", float("nan")),
    ):
        with pytest.raises((HivemindError, ValueError)):
            wrong()
    with pytest.raises(TypeError):
        sharing.offer(1, [], object())
    sharing.withdraw()  # nothing was offered: fine


def test_a_stranger_with_metadata_of_his_own_is_refused(pair):
    donor, joiner = pair
    node = donor.core
    for packed in (b"", b"\xc1", b"\x80", b"\x93\x01\x02\x03"):
        node.state_offer(b"run", 1, packed, ((b"abcd", 0, 0),)).result()
        with pytest.raises(HivemindValueError, match="not written by this version"):
            StateSharing(joiner, "run").load(timeout=30)


def test_a_dht_will_do_in_place_of_a_node():
    with_dht = DHT(start=True)
    other = DHT(initial_peers=with_dht.get_visible_maddrs(), start=True, wait_timeout=30, startup_timeout=90)
    try:
        StateSharing(with_dht, "run").offer(5, [torch.ones(3)])
        assert torch.equal(StateSharing(other, "run").load(timeout=30).tensors[0], torch.ones(3))
    finally:
        other.shutdown()
        with_dht.shutdown()


# ---- real processes ----

DONOR = """
    import sys
    import torch
    from hivemind_c import Node
    from hivemind_c.averaging.state import StateSharing

    listen, announce, megabytes = sys.argv[1:4]
    node = Node(listen, announce=announce, initial_peers=sys.argv[4:])
    state = [torch.randn(1 << 18, generator=torch.Generator().manual_seed(i)) for i in range(int(megabytes))]
    sharing = StateSharing(node, "run")
    sharing.offer(3, state, {"lr": 0.5})
    print(node.peer_id, flush=True)
    sys.stdin.read()
"""


class Gate:
    """A TCP relay before a donor: counts what the donor sends, and does something once when that passes a number of
    bytes."""

    def __init__(self, port, after=None, then=None):
        self.port, self.after, self.then, self.sent = port, after, then, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"/ip4/127.0.0.1/tcp/{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                return
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source, sink, counted):
        try:
            while data := source.recv(1 << 16):
                if counted:
                    self.sent += len(data)
                    if self.after is not None and self.sent > self.after:
                        self.after = None
                        self.then()
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, sink):
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self.listener.close()


@pytest.fixture
def gate():
    gates = []

    def make(port):
        gates.append(Gate(port))
        return gates[-1]

    yield make
    for one in gates:
        one.close()


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_dying_donor_is_replaced_by_the_other(node, program, gate, blow):
    megabytes = 48
    joiner = node()
    donors, gates = [], []
    for _ in range(2):
        port = free_port()
        gates.append(gate(port))
        donors.append(
            program(DONOR, f"/ip4/127.0.0.1/tcp/{port}", gates[-1].address, str(megabytes), joiner.addresses[0])
        )
    for donor in donors:
        donor.line()
    joiner.wait_for_peers(2, timeout=60)
    struck = threading.Event()

    def strike():
        os.kill(donors[0].pid, blow)
        struck.set()

    gates[0].after, gates[0].then = gates[0].sent + (5 << 20), strike  # in the middle of its share
    sharing = StateSharing(joiner, "run")
    loaded = sharing.load(timeout=120)
    while not struck.is_set():  # the other one was quicker and gave it all
        loaded = sharing.load(timeout=120)
    if blow == signal.SIGSTOP:
        os.kill(donors[0].pid, signal.SIGCONT)
    assert loaded.epoch == 3 and loaded.metadata == {"lr": 0.5}
    expected = [torch.randn(1 << 18, generator=torch.Generator().manual_seed(i)) for i in range(megabytes)]
    assert same(expected, loaded.tensors)


def test_a_load_that_takes_too_long_ends_and_leaves_nothing(node, program, gate):
    joiner = node()
    port = free_port()
    one = gate(port)
    donor = program(DONOR, f"/ip4/127.0.0.1/tcp/{port}", one.address, "8", joiner.addresses[0])
    donor.line()
    joiner.wait_for_peers(1, timeout=60)
    one.after, one.then = one.sent + (1 << 20), lambda: os.kill(donor.pid, signal.SIGSTOP)
    with pytest.raises(HivemindTimeoutError, match="nothing arrived for 10 s after .* of 32 chunks"):
        StateSharing(joiner, "run").load(timeout=10)
    os.kill(donor.pid, signal.SIGCONT)
    assert eventually(lambda: StateSharing(joiner, "run").load(timeout=60).epoch == 3)
