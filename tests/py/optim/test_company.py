"""A peer trains, waits or stops while no other one trains, as when_alone says."""

from types import SimpleNamespace

import pytest

import hivemind_c as hivemind
from hivemind_c.optim.company import Company
from optim_support import Peer, network, together


class Node:
    """A DHT that was given a peer."""

    initial_peers, bootstrap_timeout = ("/ip4/127.0.0.1/tcp/1/p2p/x",), 3.0

    def __init__(self, is_initial=False):
        self.is_initial = is_initial

    def state(self):
        return {"is_initial": self.is_initial}


def company(when_alone, **options):
    clock = SimpleNamespace(now=100.0)
    made = Company(Node(**options), "run", when_alone, lambda: clock.now)
    made.clock = clock
    return made


def test_waiting_peer_ends_no_epoch_and_warns_once(caplog):
    one = company("wait")
    for _ in range(5):
        assert not one.may_end_epoch(1) and one.waits
        one.clock.now += 1.0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "when_alone='wait'" in caplog.text
    assert one.may_end_epoch(2) and not one.waits
    assert "another trainer again" in caplog.text


def test_stopping_peer_raises_after_the_bootstrap_timeout():
    one = company("stop")
    assert not one.may_end_epoch(1)
    one.clock.now += 2.9
    assert not one.may_end_epoch(0)
    one.clock.now += 0.2
    with pytest.raises(hivemind.AloneError, match="no other peer trains in run 'run' for 3 s"):
        one.may_end_epoch(1)


def test_time_alone_begins_anew_after_company():
    one = company("stop")
    one.may_end_epoch(1)
    one.clock.now += 2.0
    assert one.may_end_epoch(2)
    one.clock.now += 2.0
    assert not one.may_end_epoch(1)
    one.clock.now += 2.0
    assert not one.may_end_epoch(1)


def test_peer_that_others_come_to_is_not_alone():
    assert company("train").may_end_epoch(1)
    assert company("stop", is_initial=True).may_end_epoch(1)
    first = company("wait")
    first._dht.initial_peers = ()
    assert first.may_end_epoch(1) and not first.waits


def test_waiting_trainer_keeps_its_samples_until_another_comes(dhts):
    """Two peers of one DHT: the second one waits with more than the target, and its first epoch is a common one."""
    options = dict(run_id="company", target_batch_size=64)
    one = Peer(1, dhts[1], network(), when_alone="wait", **options)
    other = Peer(0, dhts[0], network(), **options)
    try:
        for _ in range(6):
            one.batch()
        assert one.optimizer.local_epoch == 0 and one.optimizer.local_samples == 96 and one.optimizer.company.waits
        other.enter()
        other.wait_for(2)
        one.wait_for(2)
        together(lambda: one.train(2), lambda: other.train(2))
        last = one.optimizer.last_epoch
        assert (last.epoch, last.outcome) == (0, "averaged") and not one.optimizer.company.waits
    finally:
        one.optimizer.shutdown()
        other.optimizer.shutdown()


def test_unknown_choice_is_an_error(dhts):
    with pytest.raises(ValueError, match="when_alone must be one of 'train', 'wait', 'stop'"):
        Peer(0, dhts[0], network(), run_id="company", when_alone="never")
