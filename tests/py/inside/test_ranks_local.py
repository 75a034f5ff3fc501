"""Local steps with an outer optimizer in a peer of several ranks: one model on all ranks, one anchor in the swarm."""

import pytest
import torch
from rank_programs import whole_numbers
from test_ranks_exact import alone, assert_equal

LOCAL = dict(strategy=dict(local_steps=True), looks=True)
STEADY = dict(passes=1000, step_s=0.03, target=256)
UNLIKE = dict(noise=True, norm=True)  # batches of ranks and peers have other gradients, and other statistics


def assert_one_model(ranks):
    """After each batch all ranks have the same parameters and float buffers."""
    first, *others = (rank["models"] for rank in ranks)
    assert first and all(models == first for models in others)


def common_anchors(*peers):
    """Each epoch that several peers have ended, with the set of their anchors after it."""
    anchors = [peer[0]["anchors"] for peer in peers]
    common = set.intersection(*map(set, anchors)) - {"0"}
    return {int(epoch): {one[epoch] for one in anchors} for epoch in common}


def assert_equal_anchors(*peers):
    common = common_anchors(*peers)
    last = max(common)  # one peer may have ended it without the other
    assert len(common) > 3 and all(len(found) == 1 for epoch, found in common.items() if epoch < last), common


def test_ranks_make_the_local_steps_of_one_device(peer):
    """An epoch lasts over a pass, and each batch is clipped."""
    local = dict(LOCAL, strategy=dict(LOCAL["strategy"], max_grad_norm=0.01), optimizer="adam", target=96)
    one, two = alone(peer, **local), peer(2, **local).results()
    assert_equal(one, two)
    assert_one_model(two)
    assert one["anchors"] == two[0]["anchors"] and set(one["anchors"]) == {"0", "1", "2"}
    assert one["models"] == two[0]["models"] and len(set(one["models"])) > 6


def test_validation_of_ranks_has_the_anchor_and_changes_no_bit(peer):
    """It comes after each batch, and gradients depend on the parameters."""
    local = dict(LOCAL, optimizer="adam", target=96, random=True)
    plain = peer(2, **local).results()
    validates = peer(2, slow_validation=0.0, trainer=dict(val_check_interval=1), **local).results()
    assert_one_model(validates)
    assert validates[0]["models"] == plain[0]["models"] and len(set(plain[0]["models"])) > 6
    first, second = (list(dict.fromkeys(rank["validated"])) for rank in validates)
    assert first == second and len(first) == 3, "validation has the anchor alone"


def test_peer_with_ranks_and_another_have_equal_anchors(peer):
    inside = peer(2, epochs=10, **UNLIKE, **LOCAL, **STEADY)
    other = peer(1, batch=16, epochs=10, peers=inside.maddrs, **UNLIKE, **LOCAL, **STEADY)
    inside, other = inside.results(), other.results()
    assert_one_model(inside)
    assert_equal_anchors(inside, other)


def test_batch_behind_a_load_is_in_no_local_step(peer):
    """The first batch of a joiner is of the model before: between two outer steps the others alone step."""
    local = dict(LOCAL, **dict(STEADY, target=2048, epochs=3))
    first = peer(1, batch=16, **local)
    first.ranks[0].wait_for("first epoch")
    late = peer(2, peers=first.maddrs, **local).results()
    first.results()
    means = whole_numbers().view(4, 16, -1).mean(1)
    weights, stood = torch.tensor(late[0]["weights"]), late[0]["stood"]
    inside = [at for at in range(1, len(stood)) if stood[at] == stood[at - 1]]
    assert len(inside) > 20 and stood[1] > 0, stood
    for at in inside:
        assert torch.allclose(weights[at] - weights[at - 1], -0.5 * means[at % 4], atol=1e-3), at


def test_peer_with_ranks_resumes_local_steps_to_the_bit(peer, tmp_path):
    """The checkpoint is of the middle of an epoch."""
    path, local = str(tmp_path / "half.ckpt"), dict(LOCAL, optimizer="adam", target=96, random=True)
    whole = peer(2, passes=4, **local).results()
    peer(2, passes=2, save=path, **local).results()
    rest = peer(2, passes=4, resume=path, **local).results()
    assert_one_model(rest)
    assert rest[0]["models"] == whole[0]["models"][8:] and rest[0]["stood"][-1] == 2
    assert {rank["parameters"] for rank in (*rest, *whole)} == {whole[0]["parameters"]}


def test_peer_with_ranks_trains_beside_its_download(peer):
    """Its line needs seconds for the state. The steps of a model of its own are lost."""
    local = dict(LOCAL, **dict(STEADY, frozen=[150_000, 3], target=2048, epochs=6))
    first = peer(1, batch=16, **dict(local, strategy=dict(LOCAL["strategy"], upload_mbit=2.0)))
    first.ranks[0].wait_for("first epoch")
    late = peer(2, peers=first.maddrs, **local)
    first, late = first.results(), late.results()
    assert_one_model(late)
    assert_equal_anchors(first, late)
    aside, ledger = late[0]["stood"].count(0), late[0]["ledger"]
    assert aside > 20, late[0]["stood"]
    assert ledger["holds"] and ledger["lost"] == ledger["lost_by"]["REPLACED"] <= 16 * (1 + aside), ledger
