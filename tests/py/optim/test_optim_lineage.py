"""Replicas that drifted apart notice it when they meet, and one of them is kept; the rule alone, and in peers."""

import functools
import itertools
import logging
import re
import threading
import time

import pytest
import torch
from _hivemind_c import HivemindError

import hivemind_c as hivemind
from hivemind_c.averaging.marks import Member, view_of
from hivemind_c.dht.values import pack
from hivemind_c.optim.lineage import Lineage
from hivemind_c.p2p import to_base58
from optim_support import Peer, finds_no_group, flat, meet, network, settle, together, train_together, train_until
from support import PATIENCE

RUNS = itertools.count()
SIZE, WRONG, REACHABLE = 16, -1, 1 << 48  # docs/design/lineage.md


def peer_id(number):
    return to_base58(b"\0$\x08\x01\x12 " + number.to_bytes(2, "big") * 16)


def a_lineage(*values):
    return Lineage(lambda: [torch.tensor(values or (1.0, 2.0))])


def test_equal_beginnings_with_equal_deeds_stay_equal():
    one, two = a_lineage(), a_lineage()
    assert one.mark == two.mark and len(one.mark) == SIZE
    for lineage in (one, two):
        lineage.stepped([17], [], 64)
        lineage.averaged(4)
    assert one.mark == two.mark


def test_other_beginnings_deeds_and_orders_differ():
    marks = [a_lineage().mark, a_lineage(1.0, 2.5).mark]
    for deeds in (
        [("stepped", [1], [], 64)],
        [("stepped", [2], [], 64)],
        [("stepped", [1], [2], 64)],
        [("averaged", 1)],
        [("set_up", b"1")],
        [("stepped_alone", peer_id(1), 1, 5, 64)],
        [("stepped_alone", peer_id(2), 1, 5, 64)],
        [("stepped_alone", peer_id(1), 1, 6, 64)],
        [("stepped", [1], [], 64), ("averaged", 1)],
        [("averaged", 1), ("stepped", [1], [], 64)],
    ):
        lineage = a_lineage()
        for name, *what in deeds:
            getattr(lineage, name)(*what)
        marks.append(lineage.mark)
    assert len(set(marks)) == len(marks)


def test_restart_takes_a_given_mark_else_the_digest():
    """A loaded state continues under its mark; a restored one without a mark takes the digest of its tensors."""
    one, two = a_lineage(), a_lineage(5.0)
    one.stepped([3], [], 64)
    two.restart(one.mark)
    assert two.mark == one.mark
    for damaged in (None, "text", b"short", 7):
        two.restart(damaged)
        assert two.mark == a_lineage(5.0).mark


def in_a_checkpoint(values, more):
    lineage = Lineage(lambda: [values], lambda: ([values], more))
    lineage.stepped([3], [], 64)
    return lineage, lineage.saved()


def restored(saved, values, more):
    lineage = Lineage(lambda: [values], lambda: ([values], more))
    lineage.stepped([9], [], 64)
    lineage.restore(saved)
    return lineage


def test_restored_state_has_the_mark_it_was_saved_with():
    values, more = torch.tensor([1.0, 2.0]), {"groups": [{"lr": 0.1, "betas": (0.9, 0.99)}], "numbers": []}
    lineage, saved = in_a_checkpoint(values, more)
    through_a_file = {"numbers": [], "groups": [{"betas": [0.9, 0.99], "lr": 0.1}]}
    assert restored(saved, values.clone(), through_a_file).mark == lineage.mark
    lineage.is_rounded = True
    rounded = restored(lineage.saved(), values, more)
    assert rounded.mark == lineage.mark and rounded.is_rounded


def test_edited_checkpoint_begins_a_new_lineage():
    values, more = torch.tensor([1.0, 2.0]), {"lr": 0.1}
    lineage, saved = in_a_checkpoint(values, more)
    tensors = values + 1, values.reshape(1, 2), values.double()
    for other, also in [*((other, more) for other in tensors), (values, {"lr": 0.2})]:
        mark = restored(saved, other, also).mark
        assert mark == Lineage(lambda other=other: [other]).mark != lineage.mark


def test_damaged_mark_of_a_checkpoint_is_passed_over():
    values = torch.tensor([1.0, 2.0])
    _, saved = in_a_checkpoint(values, None)
    for damaged in (
        None,
        7,
        b"mark",
        [],
        {},
        {**saved, "mark": None},
        {**saved, "mark": b"\0" * SIZE},
        {**saved, "mark": "z" * 2 * SIZE},
        {**saved, "mark": "00"},
        {**saved, "mark": torch.zeros(3)},
        {**saved, "state": None},
        {**saved, "state": torch.zeros(3)},
        {**saved, "state": saved["state"].upper()},
        {"mark": saved["mark"]},
    ):
        lineage = restored(damaged, values, None)
        assert lineage.mark == a_lineage().mark and not lineage.is_rounded


def test_checkpoint_of_a_wrong_replica_has_no_mark():
    lineage, saved = in_a_checkpoint(torch.tensor([1.0]), None)
    assert saved
    lineage.is_left()
    assert lineage.saved() == {}
    assert in_a_checkpoint(torch.tensor([1.0, float("nan")]), None)[1] == {}


A, B, C = (bytes([letter]) * SIZE for letter in b"abc")


@pytest.mark.parametrize(
    "words, main",
    [
        ([(A, 0)], A),
        ([(A, 0), (B, 100), (A, 0)], A),  # who are more
        ([(A, 64), (B, 8192)], B),  # as many: the one with more behind it
        ([(A, 1), (C, 1), (B, 1)], C),
        ([(A, 1), (A, 2), (B, 9), (B, 1), (C, 99)], B),
    ],
)
def test_most_common_mark_is_the_swarms(words, main):
    for order in itertools.permutations(words):
        assert view_of(opens(*order)).swarms == main


def test_strangers_words_are_passed_over():
    lineage = a_lineage()
    strange = [
        None,
        7,
        "x",
        [],
        [lineage.mark],
        [b"", 1],
        [A, "many"],
        [A, 1.5],
        [A, True],
        [A, (1 << 64) - 1],
        {"a": 1},
        [lineage.mark, 1, 2],
        b"\0" * SIZE,
    ]

    def compare(*words):
        view = view_of(opens(*strange, *words))
        return lineage.judge(view.swarms), len(view.right) == len(view.marks)

    mine = lineage.word()
    assert compare() == (True, True)
    assert compare(mine, [A, 5], [A, 5]) == (False, False)
    assert compare(mine, mine, [A, 5]) == (True, False)


@pytest.mark.parametrize("bad", [[1], [("peer",)], [(1, False, False, b"")], [("no ID", False, False, b"")], 3])
def test_members_of_another_form_are_refused(bad):
    with pytest.raises((TypeError, ValueError)):
        view_of(bad)


def opens(*words, first=1, is_client=False):
    """A member for each word."""
    lists = [list(word) if isinstance(word, tuple) else word for word in words]
    return [Member(peer_id(first + i), is_client, False, pack(word)) for i, word in enumerate(lists)]


def swarms(members):
    return view_of(members).swarms


def giver(members):
    return view_of(members).giver


def clients(*words, first=100):
    return opens(*words, first=first, is_client=True)


HUB = Member(peer_id(999), False, True, pack(None))


def test_wrong_replica_is_never_the_swarms():
    """Those that failed to load the swarm's state are the more. They count only if nobody has it."""
    assert swarms([*clients([A, WRONG], [A, WRONG], [B, 7]), HUB]) == B
    assert swarms([*clients([A, WRONG], [A, WRONG], [B, WRONG]), HUB]) == A
    lineage = a_lineage()
    lineage.is_wrong = True
    assert lineage.word() == [lineage.mark, WRONG]


def test_replica_of_a_peer_that_can_be_dialled_wins_ties():
    one, two = a_lineage(1.0), a_lineage(2.0)
    two.is_reachable = False
    one.stepped([1], [], 64)
    two.stepped([1], [], 4096)
    made = (1 << 50) + (1 << 49)  # what each says of a replica that it made
    assert one.word()[1] == made + REACHABLE + 64 and two.word()[1] == made + 4096
    assert swarms([*opens(one.word()), *clients(two.word()), HUB]) == one.mark


def test_replica_that_nobody_can_download_is_not_the_swarms():
    """Without a hub, two clients of one replica cannot give it to the peer that can be dialled."""
    members = [*opens([A, 1]), *clients([B, 9], [B, 9])]
    assert swarms(members) == A
    assert swarms([*members, HUB]) == B
    assert swarms(clients([A, 1], [B, 2])) == B


def test_giver_is_one_client_with_the_swarms_replica():
    alike, differ = [*clients([A, 1], [A, 1]), HUB], [*clients([B, 1], [A, 1], [A, 2]), HUB]
    assert giver(alike) is None
    assert giver(differ) == giver(differ[::-1]) == peer_id(101)
    assert giver([*differ, *opens([A, 1])]) is None  # the others ask that one


# ---- peers ----


@pytest.fixture
def swarm(dhts):
    made = []

    def start(n, models=None, each=None, **options):
        run = {
            **dict(
                run_id=f"lineage {next(RUNS)}", target_batch_size=16 * n, optimizer="adamw", average_state_every=1000
            ),
            **options,
        }
        made.extend(
            Peer(i, dhts[i], models[i] if models else network(), **run, **(each[i] if each else {})) for i in range(n)
        )
        return made

    yield start
    for peer in made:
        peer.optimizer.shutdown()


def fails_once(peer, epoch):
    """Its gradients of that epoch are averaged by nobody."""
    averager = peer.optimizer.grad_averager
    inner = averager.average_loaded

    def average_loaded(*args, **kwargs):
        if peer.optimizer.local_epoch != epoch:
            return inner(*args, **kwargs)
        kwargs["control"].cancel()
        raise HivemindError("the network is down, says this test")

    averager.average_loaded = average_loaded


def goes_on_alone(peer, epoch):
    """It looks for no group at the end of that epoch."""
    finds_no_group(peer.optimizer.grad_averager, lambda: peer.optimizer.local_epoch == epoch)


def until_equal(peers, deadline_s=3 * PATIENCE):
    """All train until, after what went wrong, they ended an epoch equal to the bit."""
    deadline, stop = time.monotonic() + deadline_s, []

    def equal():
        common = set.intersection(*(set(peer.after) for peer in peers))
        return any(all(torch.equal(peer.after[e], peers[0].after[e]) for peer in peers) for e in common if e >= 4)

    def train(peer):
        while not stop:
            peer.batch()
            time.sleep(0.02)

    def watch():
        try:
            while not equal():
                assert time.monotonic() < deadline, [peer.optimizer.local_epoch for peer in peers]
                time.sleep(0.05)
        finally:
            stop.append(True)

    together(watch, *(functools.partial(train, peer) for peer in peers))
    for peer in peers:
        settle(peer.optimizer)


def test_lone_stepper_is_soon_equal_to_the_others_again(swarm):
    peers = swarm(3)
    fails_once(peers[-1], 2)
    train_together(peers, 3)
    assert not torch.equal(peers[-1].after[2], peers[0].after[2])
    until_equal(peers)


LEFT_BEHIND = {
    "at once": {},
    "gradients in place": dict(reuse_grad_buffers=True),
    "the step delayed": dict(offload_optimizer=True, delay_optimizer_step=True),
    "all delayed": dict(offload_optimizer=True, delay_grad_averaging=True),
}


@pytest.mark.parametrize("way", LEFT_BEHIND)
def test_peer_left_behind_loads_the_others_state(swarm, caplog, way):
    """One of two makes a step alone, so the other one waits for a group that nobody can join. It does not step
    alone."""
    first, second = peers = swarm(
        2, target_batch_size=640, **LEFT_BEHIND[way]
    )  # an epoch is longer than a download takes
    steps, inner = [], second.optimizer.state_averager.step_optimizer
    second.optimizer.state_averager.step_optimizer = lambda *args: (
        steps.append(second.optimizer.local_epoch),
        inner(*args),
    )
    goes_on_alone(first, 2)
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        train_until(peers, lambda: min(peer.optimizer.local_epoch for peer in peers) >= 6)
    left = [line for line in caplog.messages if "the others made this step without this peer" in line]
    assert left[0].startswith("swarm epoch 2")
    counted_first = second.optimizer.schedule.delay_optimizer_step
    assert 2 + counted_first not in steps, steps
    lost = second.optimizer.reporter.samples_lost
    assert lost >= 16 and lost % 16 == 0
    causes = first.optimizer.ledger.samples.figures()["lost_by"]
    # CUT: it held an epoch for the other one (docs/design/epoch.md, rule 22), and trained on
    assert sum(causes.values()) == causes["CUT"], causes
    told = [re.search(r"discarding (\d+) samples of this peer", line) for line in caplog.messages]
    assert 0 < sum(int(match[1]) for match in told if match) <= lost  # batches while it loads are lost without a word
    until_equal(peers)


def test_peer_that_misses_an_equal_average_is_still_equal(swarm, caplog):
    """As in a swarm that is killed at: some of those who have stepped together average their states, and others come
    late."""
    peers = swarm(4, average_state_every=1)
    finds_no_group(peers[0].optimizer.state_averager)
    rounds = []
    for peer in peers:
        inner = peer.optimizer.state_averager.average_loaded
        peer.optimizer.state_averager.average_loaded = lambda control, inner=inner: (
            rounds.append(len(members := inner(control))) or members
        )
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        train_together(peers, 4)
    assert rounds.count(3) >= 6, rounds  # a mean of two is exact anyway
    for epoch in range(1, 4):
        assert all(torch.equal(peer.after[epoch], peers[0].after[epoch]) for peer in peers), epoch
    assert len({peer.optimizer.state_averager.lineage.mark for peer in peers}) == 1
    assert not [line for line in caplog.messages if "not the swarm's" in line]


def lies_in_the_state(peer):
    """It averages another state under the numbers of its mark."""
    averager = peer.optimizer.state_averager
    inner = averager.load_state_into_averager_

    def load_state_into_averager_():
        is_there = inner()
        with torch.no_grad():
            averager.tensors_to_average[0].add_(1)
        return is_there

    averager.load_state_into_averager_ = load_state_into_averager_


@pytest.mark.parametrize("in_place", [False, True])
def test_state_of_a_liar_moves_the_mark_it_came_under(swarm, in_place):
    """One of three honest peers misses each average of the state, and holds what the others had before it."""
    options = dict(average_state_every=1, delay_state_averaging=False)
    peers = swarm(4, offload_optimizer=in_place, load_state_timeout=10, **options)  # the last one may find no state
    finds_no_group(peers[0].optimizer.state_averager)
    lies_in_the_state(peers[3])
    replicas, changed = {}, []
    for peer in peers[:3]:
        averager, batch = peer.optimizer.state_averager, peer.batch

        def batch_then_look(averager=averager, batch=batch, peer=peer):
            batch()
            replicas.setdefault(averager.lineage.mark, []).append(flat(peer.model))
            changed.append(averager.has_changed)

        peer.batch = batch_then_look
    meet(peers)
    train_until(peers, lambda: any(changed) and all(peer.optimizer.local_epoch for peer in peers))
    for mark, found in replicas.items():
        assert all(torch.equal(one, found[0]) for one in found), mark


def test_peers_with_different_weights_agree_on_one_of_them(swarm):
    peers = swarm(2, models=[network(seed=1), network(seed=2)])
    meet(peers)
    until_equal(peers)


def test_joiner_gets_a_state_after_all_peers_stepped_alone(swarm, dhts):
    """As seen in the demo: AdamW's moments stayed different in the two who were there, and a third never found a
    majority."""
    peers = swarm(2)
    for peer in peers:
        fails_once(peer, 1)
    train_together(peers, 3)
    late = Peer(
        2,
        dhts[2],
        network(seed=9),
        run_id=peers[0].optimizer.run_id,
        target_batch_size=32,
        optimizer="adamw",
        average_state_every=1000,
    )
    peers.append(late)
    until_equal(peers)
    state = [peer.optimizer.state_dict()["state"] for peer in peers]
    assert late.optimizer.local_epoch > 3 and state[2][0]["exp_avg"].shape == state[0][0]["exp_avg"].shape
    assert (flat(late.model) - flat(network(seed=9))).norm() > 0


POWER_SGD = functools.partial(hivemind.PowerSGDGradientAverager, averager_rank=2, min_compression_ratio=0.2)


@pytest.mark.parametrize("factory", [None, POWER_SGD], ids=["plainly", "PowerSGD"])
def test_a_group_of_one_is_no_average_that_others_have_too(swarm, factory):
    """Each of them is content with itself, and they never meet: their steps are their own."""
    apart = [dict(min_group_size=1, initial_group_bits=bits) for bits in "01"]
    peers = swarm(
        2, each=[dict(averager_opts=opts) for opts in apart], matchmaking_time=0.5, grad_averager_factory=factory
    )
    assert len({peer.optimizer.state_averager.lineage.mark for peer in peers}) == 1
    rounds, both = [], threading.Barrier(2)

    def average_alone(inner, *args, **kwargs):
        """Neither has stepped before both have averaged: the slower one would load the other's state."""
        rounds.append(len(members := inner(*args, **kwargs)))
        both.wait(PATIENCE)
        return members

    for peer in peers:
        averager = peer.optimizer.grad_averager
        averager.average_loaded = functools.partial(average_alone, averager.average_loaded)
    train_together(peers, 1)
    assert rounds == [1, 1]
    assert not torch.equal(peers[0].after[0], peers[1].after[0])
    assert len({peer.optimizer.state_averager.lineage.mark for peer in peers}) == 2


def test_a_state_averaged_alone_is_the_one_that_it_was(swarm):
    tensor = torch.arange(3.0)
    (peer,) = swarm(1, averager_opts=dict(min_group_size=1), extra_tensors=[tensor])
    averager = peer.optimizer.state_averager
    peer.train(1)
    mark, before = averager.lineage.mark, flat(peer.model)
    assert (
        averager.load_state_into_averager_()
        and len(averager.average_loaded(averager.schedule_step(timeout=PATIENCE))) == 1
    )
    averager.update_model()
    assert (
        averager.lineage.mark == mark
        and torch.equal(flat(peer.model), before)
        and torch.equal(tensor, torch.arange(3.0))
    )


def test_local_updates_digest_nothing(swarm):
    peers = swarm(2, use_local_updates=True, average_state_every=1)
    for peer in peers:
        peer.optimizer.state_averager.lineage._content = lambda: pytest.fail("the state was digested")
    train_together(peers, 3)
    assert all(peer.optimizer.state_averager.lineage.mark == b"" for peer in peers)
