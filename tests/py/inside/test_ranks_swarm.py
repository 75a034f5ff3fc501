"""Ranks of one peer in a swarm with peers of one device."""

import time

import pytest

from test_ranks_exact import STRATEGIES

STEADY = dict(passes=1000, step_s=0.03, target=256)


def parameters(*peers):
    return {rank["parameters"] for one in peers for rank in one.results()}


def test_peer_with_ranks_joins_late_and_all_end_alike(peer):
    first = peer(1, batch=16, epochs=12, **STEADY)
    late = peer(2, peers=first.maddrs, epochs=12, **STEADY)
    assert len(parameters(first, late)) == 1
    assert late.ranks[0].said("end")["peers"] + first.ranks[0].said("end")["peers"] > 2


def test_peers_with_ranks_come_and_go_with_buffers(peer):
    first = peer(2, epochs=16, norm=True, noise=True, **STEADY)
    other = peer(1, batch=16, epochs=16, peers=first.maddrs, norm=True, noise=True, **STEADY)
    short = peer(2, exact_batches=40, peers=first.maddrs, norm=True, noise=True, **STEADY)
    left = short.results()
    assert left[0]["parameters"] == left[1]["parameters"]
    assert len(parameters(first, other)) == 1


def bytes_of_an_epoch(peer):
    """Bytes that a peer sends and receives in an epoch that two peers average."""
    records = peer.results()[0]["records"]
    met = [record for record in records if record["outcome"] == "averaged" and record["members"] == 2]
    assert len(met) > 3, records
    return sum(record["bytes_sent"] + record["bytes_received"] for record in met) / len(met)


def test_frozen_parameters_of_a_late_peer_are_those_of_the_swarm(peer):
    first = peer(1, batch=16, frozen=[1000, 3], **STEADY).training()
    time.sleep(2.0)  # some epochs
    late = peer(2, peers=first.maddrs, exact_batches=40, frozen=[1000, 5], **STEADY)
    assert [rank["base"] for rank in late.results()] == [[3.0, 3.0]] * 2


@pytest.mark.parametrize("optimizer", ["sgd", "chosen"])
def test_frozen_parameters_cross_the_line_only_in_the_optimizer(peer, optimizer):
    options = dict(batch=16, epochs=8, frozen=[100_000, 3], optimizer=optimizer, **STEADY)
    first = peer(1, **options)
    other = peer(1, peers=first.maddrs, **options)
    crossed = bytes_of_an_epoch(first)
    other.results()
    assert crossed > 400_000 if optimizer == "sgd" else crossed < 20_000, crossed
    warned = "100000 of the 100035 values in the optimizer do not require gradients" in first.ranks[0].text
    assert warned == (optimizer == "sgd")


def test_two_ranks_cross_the_line_as_one_peer(peer):
    """In swarms of two peers, a machine with two ranks has half of the traffic of two peers."""
    inside = peer(2, epochs=8, **STEADY)
    other = peer(1, batch=16, epochs=8, peers=inside.maddrs, **STEADY)
    together = bytes_of_an_epoch(inside)
    other.results()
    first = peer(1, epochs=8, **STEADY)
    second = peer(1, epochs=8, peers=first.maddrs, **STEADY)
    assert abs(together / (bytes_of_an_epoch(first) + bytes_of_an_epoch(second)) - 0.5) < 0.02 and together > 0


def test_other_peers_read_the_data_in_another_order(peer):
    first = peer(2, epochs=8, random=True, **STEADY)
    other = peer(2, epochs=8, peers=first.maddrs, random=True, **STEADY)
    seeds = [[rank.wait_for("training")["sampler"] for rank in one.ranks] for one in (first, other)]
    assert all(len(set(pair)) == 1 for pair in seeds) and seeds[0] != seeds[1]
    assert len(parameters(first, other)) == 1


@pytest.mark.parametrize("devices, workers", [(2, 0), (2, 1), (1, 1)])
def test_data_loaded_before_joining_has_the_order_of_the_peer(peer, devices, workers):
    options = dict(random=True, estimates=True, workers=workers, **STEADY)
    first = peer(devices, **options)
    other = peer(devices, peers=first.maddrs, **options)
    here, there = ({rank.wait_for("training")["first"] for rank in one.ranks} for one in (first, other))
    assert len(here) == len(there) == devices and not here & there


def test_ranks_of_a_peer_that_gives_way_have_one_seed(peer):
    first, second = (rank.wait_for("training") for rank in peer(2, random=True, loses=True).ranks)
    assert first["sampler"] == second["sampler"] != 0


def test_other_ranks_have_no_dht_and_the_same_estimate(peer):
    running = peer(2, passes=4)
    first, second = (rank.wait_for("training") for rank in running.ranks)
    assert first["dht"] is None and "rank 1 has no DHT" in second["dht"]
    assert first["steps"] == second["steps"] == 4, "64 samples of both ranks are a step"
    running.results()


@pytest.mark.parametrize("name", STRATEGIES)
def test_two_peers_with_ranks_train_together(peer, name):
    options = dict(strategy=STRATEGIES[name], optimizer="sgd", **STEADY)
    first = peer(2, epochs=12, **options)
    other = peer(2, epochs=12, peers=first.maddrs, **options)
    for ends in (first.results(), other.results()):
        assert len({rank["parameters"] for rank in ends}) == 1
        assert [rank["epoch"] for rank in ends] == [ends[0]["epoch"]] * 2 and ends[0]["epoch"] >= 12
    records = [record for one in (first, other) for record in one.ranks[0].said("end")["records"]]
    assert any(record["members"] == 2 for record in records), records


def test_delayed_steps_reach_all_ranks(peer):
    first = peer(1, batch=16, epochs=10, strategy=dict(delay_grad_averaging=True), **STEADY)
    other = peer(2, peers=first.maddrs, epochs=10, strategy=dict(delay_grad_averaging=True), **STEADY)
    ends = other.results()
    assert ends[0]["parameters"] == ends[1]["parameters"]
    first.results()


def test_resumed_peer_continues_as_one_that_was_not_stopped(peer, tmp_path):
    whole = peer(2, passes=4, optimizer="adam").results()
    path = str(tmp_path / "half.ckpt")
    peer(2, passes=2, optimizer="adam", save=path).results()
    rest = peer(2, passes=4, optimizer="adam", resume=path).results()
    assert rest[0]["parameters"] == rest[1]["parameters"] == whole[0]["parameters"]
    assert rest[1]["epoch"] == 4
