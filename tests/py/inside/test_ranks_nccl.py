"""Tensors between ranks by NCCL's rules, which tests/py/inside/nccl_rules.py plays: no machine here has two GPUs."""

import time
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from hivemind_c.inside import moving
from hivemind_c.inside.channel import Channel
from hivemind_c.inside.errors import PeerError
from hivemind_c.optim.gradient_sums import GradientSums
from nccl_rules import Communicator, Done, Work

LOST = "rank 1 (process 7) has died"


class Lonely:
    """A watch. It finds a rank lost after some seconds."""

    def __init__(self, lost_after=1e9):
        self._lost = time.monotonic() + lost_after

    def check(self, patience=0.0):
        if time.monotonic() + patience > self._lost:
            raise PeerError(LOST)


@pytest.fixture
def channel():
    """channel(watch) makes the channel of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield lambda watch=None: Channel(watch or Lonely(), None)
    dist.destroy_process_group()


@pytest.mark.parametrize("busy", [0.1, 0.3, 5.0])
def test_queued_collective_is_waited_for(channel, busy):
    communicator = Communicator(busy)
    began = time.monotonic()
    channel().finish(Work(communicator, Done()), "the reduction")
    assert busy <= time.monotonic() - began < busy + 0.5
    assert communicator.aborted is None


def test_lost_rank_ends_the_wait_for_a_queued_collective(channel):
    work, began = Work(Communicator(60.0), Done()), time.monotonic()
    with pytest.raises(PeerError, match="rank 1 .* has died"):
        channel(Lonely(lost_after=0.5)).finish(work, "the reduction")
    assert time.monotonic() - began < 1.5
    assert not work.waited, "this rank's stream would be behind a kernel that never ends"


def test_error_of_a_collective_is_raised(channel):
    with pytest.raises(PeerError, match="rank 0: the reduction failed: no route; start the program again"):
        channel().finish(Work(Communicator(0.0), Done("no route")), "the reduction")


def test_aborted_communicator_names_the_lost_rank(channel):
    communicator = Communicator(0.0)
    communicator.aborted = "NCCL communicator was aborted."
    with pytest.raises(PeerError, match="has died"):
        channel(Lonely(lost_after=1.0)).finish(Work(communicator, Done()), "the reduction")


@pytest.mark.parametrize("options", [{}, dict(strategy=dict(use_local_updates=True))], ids=["gradients", "local"])
def test_ranks_train_behind_queued_kernels(peer, options):
    two = peer(2, passes=1, queued_s=0.3, **options).results()
    assert [rank["epoch"] for rank in two] == [1, 1]
    assert {rank["parameters"] for rank in two} == {peer(1, batch=16, passes=1, **options).results()[0]["parameters"]}


def test_ranks_reduce_pieces_of_the_same_size(channel, monkeypatch):
    """A rank whose sums are on another device than rank 0's brings them in parts."""
    sizes = []
    monkeypatch.setattr(moving, "PART", 100)
    monkeypatch.setattr(moving.dist, "reduce", lambda tensor, *args, **kwargs: sizes.append(len(tensor)) or Done())
    reducer = SimpleNamespace(group=None, finish=lambda work, what: None)
    for on in ("cpu", "meta"):
        sums = GradientSums([torch.nn.Parameter(torch.ones(256))])
        moving.reduce_sums(reducer, sums, 1.0, on)
    here, crossing = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    assert here == crossing == [100, 100, 56, 1]
