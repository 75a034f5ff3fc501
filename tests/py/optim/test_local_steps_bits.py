"""Local steps whose differences travel in 8 bits, or in 4 if the line of a member carries no 8."""

import pytest
import torch

import _hivemind_c
import hivemind_c as hivemind
from hivemind_c.averaging.layout import RunLayout, pack_layout, read_layout
from hivemind_c.compression.codecs import fitting
from hivemind_c.dht.values import pack
from optim_support import meet, together, train_together, train_until
from test_local_steps import normed_swarm, swarm  # noqa: F401
from test_local_steps_beside import PAUSE, trains_until

WIDE, NARROW = "Linear8BitQuantization", "Linear4BitQuantization"
BY_DEFAULT = dict(grad_compression=None)


def send_narrow(peer):
    """The rounds of this peer begin as if its line were slow."""
    averager = peer.optimizer.grad_averager
    begin = averager.average_loaded

    def narrow(weight, **options):
        options["control"].send_narrow()
        return begin(weight, **options)

    averager.average_loaded = narrow


def codecs_of(peers):
    """Returns for each peer a list that gets the codec of each epoch that averaged."""
    seen = [[] for _ in peers]
    for peer, codecs in zip(peers, seen):
        take = codecs.append
        peer.optimizer.on_epoch = lambda record, take=take: record.outcome == "averaged" and take(record.codec)
    return seen


@pytest.mark.parametrize("narrow", [0, 1, 2])
def test_one_peer_in_4_bits_makes_all_averages_so(swarm, narrow):  # noqa: F811
    peers = swarm(2, **BY_DEFAULT)
    for peer in peers[:narrow]:
        send_narrow(peer)
    seen = codecs_of(peers)
    train_together(peers, 4)
    one, other = (peer.after for peer in peers)
    common = set(one) & set(other)
    assert len(common) > 1 and all(torch.equal(one[epoch], other[epoch]) for epoch in common)
    for codecs in seen:
        assert codecs and set(codecs) == {NARROW if narrow else WIDE}


def test_given_compression_stays_as_it_is(swarm):  # noqa: F811
    peers = swarm(2, grad_compression=hivemind.Float16Compression())
    send_narrow(peers[0])
    seen = codecs_of(peers)
    train_together(peers, 3)
    assert set(seen[0]) == set(seen[1]) == {"Float16Compression"}


def test_late_peer_repeats_averages_of_both_widths(normed_swarm):  # noqa: F811
    """It misses some in 4 bits and some in 8, and has the anchors of the others."""
    peers = normed_swarm(3, width=32, log_memory=1 << 20, matchmaking_time=3.0, **BY_DEFAULT)
    meet(peers)
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in peers))
    *others, late = peers
    (seen, _) = codecs_of(others)
    begin = others[0].optimizer.grad_averager.average_loaded

    def by_turns(weight, **options):
        if others[0].optimizer.local_epoch % 2:
            options["control"].send_narrow()
        return begin(weight, **options)

    others[0].optimizer.grad_averager.average_loaded = by_turns
    goal = late.optimizer.local_epoch + 3
    trains_until(others, lambda: others[0].optimizer.local_epoch >= goal)
    assert {WIDE, NARROW} == set(seen)
    trains_until(peers, lambda: max(others[0].after) > goal and max(late.after, default=0) > goal)
    assert late.optimizer.driver.hands.repeated >= 3 and late.optimizer.driver.hands.adopted == 0
    common = set(late.after) & set(others[0].after)
    assert max(common) >= goal
    for epoch in common:
        assert torch.equal(late.after[epoch], others[0].after[epoch]), epoch


def test_slow_line_chooses_4_bits_by_itself(normed_swarm):  # noqa: F811
    """At 1 Mbit/s a round in 8 bits takes longer than half of such an epoch."""
    peers = normed_swarm(2, upload_mbit=1.0, width=12_000, matchmaking_time=1.0, log_memory=0, **BY_DEFAULT)
    seen = codecs_of(peers)
    meet(peers)
    train_until(peers, lambda: all(NARROW in codecs for codecs in seen))
    assert seen[0][0] == WIDE


def averager_of(node, value, compression):
    tensors = [torch.full((60_000,), value)]
    return hivemind.DecentralizedAverager(tensors, node, prefix=f"bits {value}", compression=compression, start=True)


def test_layout_has_both_codecs_and_old_hubs_refuse_it(dht):
    with averager_of(dht(), 0.0, fitting()) as averager:
        layout = RunLayout(5.0, 30.0, (averager.layout("gradients", 1),))
    assert read_layout(pack_layout(layout)) == layout
    ((_, codec, narrow, _, _),) = layout.averagers[0].tensors
    assert [_hivemind_c.CODECS[number] for number in (codec, narrow)] == ["linear8", "linear4"]


@pytest.mark.parametrize("narrow", [False, True])
def test_hub_answers_clients_in_the_fewest_bits(dht, narrow):
    hub = dht()
    nodes = [dht(hub.get_visible_maddrs(), client_mode=True) for _ in range(2)]
    tensors = [torch.randn(60_000) for _ in nodes]
    averagers = [
        hivemind.DecentralizedAverager([own], node, prefix="bits", compression=fitting(), start=True)
        for own, node in zip(tensors, nodes)
    ]
    one = averagers[0].layout("gradients", 1)
    settings = {**one.settings, "auxiliary": 1, "apart": 0}
    helper = _hivemind_c.Averager(hub.core, "bits", one.loans(), "", settings)
    mean = sum(tensors) / 2
    helping = helper.step(pack(None), b"", 0.0, 20.0, 40.0, 3, False, True)
    steps = [averager.step(timeout=40, wait=False, expected=3, require_trigger=True) for averager in averagers]
    if narrow:
        steps[1].send_narrow()
    for step in steps:
        step.allow_allreduce()
    assert len(helping.result(40)[0]) == 3 and all(len(step.result(40)) == 3 for step in steps)
    assert all(step.details()[-3] == narrow for step in steps)
    assert torch.equal(*tensors)
    error = float((tensors[0] - mean).norm() / mean.norm())
    assert 0.02 < error if narrow else error < 0.02
    for averager in averagers:
        averager.shutdown()
    helper.close()
