"""A peer trains, waits or stops while no other one trains, as when_alone says."""

import time

import pytest

import hivemind_c as hivemind
from optim_support import Peer, network, together


def test_stopping_peer_raises_after_the_bootstrap_timeout(dhts, monkeypatch):
    """Each call of step() without company says so once, and the samples stay."""
    monkeypatch.setattr(type(dhts[1]), "bootstrap_timeout", property(lambda dht: 0.5))
    one = Peer(1, dhts[1], network(), run_id="stops", target_batch_size=32, when_alone="stop")
    try:
        with pytest.raises(hivemind.AloneError, match="no other peer trains in run 'stops' for 0.5 s"):
            while one.batches < 1000:
                one.batch()
                time.sleep(0.01)
        assert one.optimizer.local_epoch == 0 and one.optimizer.local_samples >= 32
    finally:
        one.optimizer.shutdown()


def test_waiting_trainer_keeps_its_samples_until_another_comes(dhts):
    """Two peers of one DHT: the second one waits with more than the target, and its first epoch is a common one."""
    options = dict(run_id="company", target_batch_size=64)
    one = Peer(1, dhts[1], network(), when_alone="wait", **options)
    other = Peer(0, dhts[0], network(), **options)
    try:
        for _ in range(6):
            one.batch()
        assert one.optimizer.local_epoch == 0 and one.optimizer.local_samples == 96 and one.optimizer.waits_for_company
        other.enter()
        other.wait_for(2)
        one.wait_for(2)
        together(lambda: one.train(2), lambda: other.train(2))
        last = one.optimizer.last_epoch
        assert (last.epoch, last.outcome) == (0, "averaged") and not one.optimizer.waits_for_company
    finally:
        one.optimizer.shutdown()
        other.optimizer.shutdown()


def test_unknown_choice_is_an_error(dhts):
    with pytest.raises(ValueError, match="when_alone must be one of 'train', 'wait', 'stop'"):
        Peer(0, dhts[0], network(), run_id="company", when_alone="never")
