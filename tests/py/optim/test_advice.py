"""The advice on the mode for the line: tables of epochs, and one sentence of a real swarm."""

import copy
import logging
import re

import pytest
import torch

from epochs import epoch
from hivemind_c.monitor import Gatherer
from hivemind_c.optim import advice, local_steps, ways
from hivemind_c.optim.advice import AFTER, Advice, Measured, measured, middle
from hivemind_c.optim.setup import values_of
from optim_support import CLASSES, FEATURES, Peer, meet, train_until
from support import eventually

MILLION = 10**6


def epochs_on(mbit, parameters, computing_s, value_bytes, paused=True, members=4):
    """A record of a swarm that averages once in an epoch, over lines of this speed."""
    moved = ways.sent(value_bytes, members) * parameters
    seconds = 8e-6 * moved / mbit
    spent = dict(reducing_s=seconds) if paused else dict(reducing_s=0.0, background_reducing_s=seconds)
    return dict(computing_s=computing_s, bytes_sent=moved, bytes_received=0, members=members, **spent)


def said(parameters, target, n=AFTER, is_local=False, **changed):
    check = Advice(parameters, target, is_local)
    return [check.look(epoch(i, **changed)) for i in range(n)]


# columns: Mbit/s, million parameters, seconds of computing, bytes of a value now, its end
TABLE = {
    "the line is fast": (1000, 10, 60.0, 4.0, "recommended: the options as they are"),
    "16 bits fit": (
        100, 10, 60.0, 8.0,
        "recommended at all peers: exact, 16 bits: grad_compression=hivemind_c.Float16Compression(), "
        "average_state_every=50",
    ),
    "16 bits fit longer steps": (20, 2, 10.0, 8.0, "average_state_every=50, target_batch_size=2300 or more"),
    "delays hide it": (
        20, 40, 15.0, 4.0,
        "recommended at all peers: delayed, 8 bits: delay_grad_averaging=True, reuse_grad_buffers=True, "
        "grad_compression=hivemind_c.Linear8BitQuantization(), "
        "average_state_every=50, "
        "target_batch_size=1700 or more",
    ),
    "a step of the optimizer in two minutes is too rare": (
        20, 124, 60.0, 4.0,
        "recommended at all peers: local steps, 8 bits: local_steps=True, "
        "target_batch_size=",
    ),
    "local steps alone": (
        1, 124, 60.0, 4.0,
        "recommended at all peers: local steps, 4 bits: local_steps=True, "
        "target_batch_size=",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_way_for_the_line_is_said_once(case):
    mbit, millions, computing_s, value_bytes, end = TABLE[case]
    on_line = epochs_on(mbit, millions * MILLION, computing_s, value_bytes)
    first, second, *rest = said(millions * MILLION, 1000, 5, **on_line)
    assert first is None and end in second and rest == [None] * 3, second


def test_shares_are_those_of_the_table_of_ways():
    computing_s, parameters = 60.0, 124 * MILLION
    text = said(parameters, 1000, **epochs_on(20, parameters, computing_s, 4.0))[-1]
    assert text.startswith("averages move at 20 Mbit/s on this line: with 124 million parameters and 60 s of computing")
    shares = {name: float(part) for part, name in re.findall(r"([01]\.\d\d) \((\w[^)]*)\)", text)}
    assert list(shares) == list(ways.WAYS)
    for name, way in ways.WAYS.items():
        seconds = ways.averaging_s(way, parameters, 20e6 / 8, members=4)
        lasts = max(computing_s, seconds) if way.hidden else computing_s + seconds
        computes = 1 if way.is_local else computing_s / lasts  # its average is hidden, as an epoch lasts long enough
        assert shares[name] == pytest.approx(computes, abs=0.006), name


def test_exact_averages_that_a_line_of_20_mbit_allows_are_said():
    parameters = 124 * MILLION
    text = said(parameters, 1000, **epochs_on(20, parameters, 60.0, 4.0))[-1]
    found = re.findall(r"([\d.,]+) s \((exact, \d+ bits)\)", text)
    allowed = {name: float(seconds.replace(",", "")) for seconds, name in found}
    assert len(allowed) == 3
    for name, least in allowed.items():
        seconds = ways.averaging_s(ways.WAYS[name], parameters, 20e6 / 8, members=4)
        assert least / (least + seconds) == pytest.approx(ways.COMPUTED, abs=0.003)


def test_recommended_target_computes_nine_tenths():
    """A run that follows the advice gets the advice to stay as it is."""
    parameters = 2 * MILLION
    text = said(parameters, 1000, **epochs_on(20, parameters, 10.0, 8.0))[-1]
    target = int(re.search(r"target_batch_size=(\d+) or more", text)[1])
    way = ways.WAYS["exact, 16 bits"]
    after = epochs_on(20, parameters, 10.0 * target / 1000, way.value_bytes)
    assert "recommended: the options as they are" in said(parameters, target, **after)[-1]


# columns: Mbit/s for 10 million parameters and a minute of computing, bytes of a value now, what is recommended
LOCAL = {
    "8 bits fit in place of 32": (20, 4.0, "local steps, 8 bits: ", False),
    "8 bits fit": (20, 1.03, "the options as they are", False),
    "4 bits fit": (2, 1.03, "local steps, 4 bits: local_steps=True", False),
    "4 bits do not": (1, 1.03, "local steps, 4 bits: ", True),
}


@pytest.mark.parametrize("case", LOCAL)
def test_local_steps_get_fewer_bits_before_longer_epochs(case):
    mbit, value_bytes, words, is_longer = LOCAL[case]
    on_line = epochs_on(mbit, 10 * MILLION, 60.0, value_bytes, members=2)
    recommended = said(10 * MILLION, 1000, is_local=True, **on_line)[-1].split("; recommended")[1]
    assert words in recommended and ("target_batch_size=" in recommended) == is_longer, recommended


SILENT = {
    "rounds of latency alone": dict(reducing_s=0.01, background_reducing_s=0.0),
    "no group": dict(members=0),
    "alone": dict(outcome="alone"),
    "a failure": dict(outcome="failed"),
    "no bytes": dict(bytes_sent=0, bytes_received=0),
    "no computing": dict(computing_s=0.0, stepping_s=0.0),
}


@pytest.mark.parametrize("case", SILENT)
def test_epochs_that_measured_no_line_count_for_nothing(case):
    on_line = epochs_on(20, MILLION, 60.0, 4.0)
    check = Advice(MILLION, 1000, False)
    assert [check.look(epoch(i, **{**on_line, **SILENT[case]})) for i in range(5)] == [None] * 5
    assert check.look(epoch(5, **on_line)) is None
    assert check.look(epoch(6, **on_line))


def test_strangers_numbers_raise_nothing():
    for value in (-1e18, -1.0, 0.0, 5e-324, 1e18, None):
        for name in vars(epoch(0)):
            numbers = {**epoch(0, **epochs_on(20, MILLION, 60.0, 4.0)).numbers(), name: value}
            for parameters, target in ((1, 1), (10**15, 2**48)):
                found = measured(numbers, parameters, target, is_local=target == 1)
                assert found is None or len(advice.advice(found)) < 2000


def test_batches_of_an_epoch_are_the_default_of_local_steps():
    assert ways.LOCAL_BATCHES == local_steps.DEFAULTS["steps"]


def test_peer_in_the_middle_speaks_for_the_swarm():
    speeds = [Measured(60.0, 1.0, 1.0, speed, 4, MILLION, 1000, False) for speed in (9, 1, 5)]
    assert middle(speeds).bytes_moved == 5 and middle(speeds[:2]).bytes_moved == 1


def slow_swarm(dht):
    """Two peers with lines of 2 Mbit/s up, and a node that watches."""
    first = dht(upload_mbit=2.0)
    nodes = [first, *(dht(first.get_visible_maddrs(), upload_mbit=2.0) for _ in range(2))]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 4096), torch.nn.Tanh(), torch.nn.Linear(4096, CLASSES))
    peers = [
        Peer(i, nodes[i], copy.deepcopy(model), run_id="slow", target_batch_size=64, when_alone="wait") for i in (0, 1)
    ]
    return peers, Gatherer(nodes[2], "slow")


def said_in(caplog):
    return [record for record in list(caplog.records) if record.message.startswith("averages move at")]


def test_peers_and_the_monitor_give_advice_once(dht, caplog):
    peers, watcher = slow_swarm(dht)
    try:
        with caplog.at_level(logging.INFO, "hivemind_c.optim"):
            meet(peers)
            train_until(peers, lambda: len(said_in(caplog)) >= 2)
            epoch_now = peers[0].optimizer.local_epoch
            train_until(peers, lambda: peers[0].optimizer.local_epoch > epoch_now + 1)
        told = said_in(caplog)
        assert len(told) == 2 and {record.levelno for record in told} == {logging.INFO}  # once at each peer
        values = sum(p.numel() for p in peers[0].model.parameters())
        assert values_of(peers[0].optimizer.setups.own) == values
        assert eventually(lambda: watcher.look().advice)
        for text in (told[0].message, watcher.look().advice):
            mbit, millions = map(float, re.match(r"averages move at (\S+) Mbit/s .* with (\S+) million", text).groups())
            assert 0 < mbit < 4 and millions == pytest.approx(values / MILLION, rel=0.01), text
            assert "recommended at all peers: " in text
    finally:
        watcher.shutdown()
        for peer in peers:
            peer.optimizer.shutdown()
