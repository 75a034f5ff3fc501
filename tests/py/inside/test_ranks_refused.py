"""Each mistake with several ranks is one sentence on all of them."""

import pytest

from hivemind_c import HivemindStrategy
from trainers import lightning, trainer


def ended(running, sentence):
    for rank in running.ranks:
        assert rank.ended() != 0 and sentence in rank.text, rank.text


def test_several_machines_are_refused():
    misconfigured = lightning().utilities.exceptions.MisconfigurationException
    with pytest.raises(misconfigured, match="num_nodes=2.*INITIAL_PEERS"):
        trainer(HivemindStrategy(target_batch_size=64), devices=1, num_nodes=2)


def test_dht_of_another_rank_is_refused(peer):
    ended(peer(2, own_dht=True), "rank 1 has a running dht=, and all ranks are one peer with the DHT of rank 0")


def test_other_model_is_refused(peer):
    ended(
        peer(2, model_of_rank=True),
        "rank 1 has another model than rank 0 "
        "('net.line.weight' of [4, 9] float32 instead of 'net.line.weight' of [4, 8] float32)",
    )


def test_rank_without_data_is_refused(peer):
    ended(peer(2, loader="uneven", passes=5), "rank 1 has no more batches in this pass while rank 0 trains on a batch")


@pytest.mark.parametrize("hook, name", [("all_gather", "all_gather"), ("log", "log(sync_dist=True)")])
def test_collective_in_a_hook_of_rank_0_is_refused(peer, hook, name):
    ended(peer(2, hook=hook), f"{name} was called in a hook around the step of the optimizer")


def test_error_of_rank_0_while_it_joins_is_raised_on_all(peer):
    first = peer(1, batch=16, passes=1000, step_s=0.05)
    other = peer(2, peers=first.maddrs, optimizer="adam", strategy=dict(max_grad_norm=3.0))
    ended(other, "ConfigMismatchError")
    assert "PeerError: rank 0: ConfigMismatchError" in other.ranks[1].text


@pytest.mark.parametrize(
    "clipping, sentence",
    [
        (dict(gradient_clip_val=2.0), "gradient_clip_val is 2 by norm here and 0.5 by norm there"),
        ({}, "gradient_clip_val is absent here and 0.5 by norm there"),
        (dict(gradient_clip_val=0.5, gradient_clip_algorithm="value"), "is 0.5 by value here and 0.5 by norm there"),
    ],
)
def test_other_clipping_is_refused(peer, clipping, sentence):
    first = peer(1, batch=16, passes=1000, step_s=0.05, trainer=dict(gradient_clip_val=0.5))
    ended(peer(1, peers=first.maddrs, trainer=clipping), sentence)


def test_gloo_without_an_address_is_refused(peer):
    environment = {"GLOO_SOCKET_IFNAME": "none7"}
    running = peer(2, environment=environment)
    assert all(rank.ended() != 0 for rank in running.ranks)
    assert "none7" in running.ranks[0].text
