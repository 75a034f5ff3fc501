"""Tensors that rounds know as copies on the host only, as on a GPU without kernels: the copies and the tensors are
brought together under the lock."""

import threading

import pytest
import torch

from hivemind_c import DecentralizedAverager, HivemindError
from hivemind_c.averaging.tensors import LentTensors
from support import PATIENCE

N = 50_000


class Elsewhere(LentTensors):
    """Tensors on the host in the place of a device's: what is lent is a copy."""

    staged = True
    back = threading.Event()  # set: averages may be copied back by whoever wants to

    def _lend(self, i, tensor):
        return torch.empty_like(tensor)

    def to_host(self):
        for lent, tensor in self._pairs():
            lent.copy_(tensor)

    def from_host(self):
        if threading.current_thread().name == "hivemind_c-step":
            assert self.back.wait(PATIENCE)
        for lent, tensor in self._pairs():
            tensor.copy_(lent)


@pytest.fixture
def pair(dhts, monkeypatch):
    """Two averagers of a tensor of zeros, and of one of ones. The thread that copies back comes late, until
    Elsewhere.back is set."""
    monkeypatch.setattr("hivemind_c.averaging.averager.LentTensors", Elsewhere)
    Elsewhere.back.clear()
    made = []

    def start(prefix, **options):
        for i, dht in enumerate(dhts[:2]):
            made.append(
                DecentralizedAverager(
                    [torch.full((N,), float(i))],
                    dht,
                    prefix=prefix,
                    start=True,
                    **{"min_matchmaking_time": 20, **options},
                )
            )
        return made

    yield start
    Elsewhere.back.set()
    for one in made:
        one.shutdown()


def value(averager):
    with averager.get_tensors() as (tensor,):
        assert (tensor == tensor[0]).all()
        return tensor[0].item()


def over(control):
    """Without a word to the control, which would settle it."""
    control._future.exception(PATIENCE)


def begin(averagers, **options):
    return [one.step(wait=False, timeout=60, expected=2, **options) for one in averagers]


def test_lock_holder_after_a_round_sees_the_averages(pair):
    """It may also change them."""
    Elsewhere.back.set()
    averagers = pair("after")
    first = averagers[0]
    for turn in range(5):
        for i, one in enumerate(averagers):
            with one.get_tensors() as (tensor,):
                tensor.fill_(i)
        controls, done = begin(averagers, epoch=turn), False
        while not done:
            with first.get_tensors() as (tensor,):
                if done := tensor[0].item() != 0 or controls[0]._future.done():
                    assert tensor[0] == 0.5
                    tensor.add_(10)
        [control.result(PATIENCE) for control in controls]
        assert value(first) == 10.5


def test_averages_are_seen_before_they_are_copied_back(pair, monkeypatch):
    averagers = pair("late")
    monkeypatch.setattr(
        "hivemind_c.averaging.control.StepControl.watch", lambda control: None
    )  # its thread has not come yet
    for control in begin(averagers):
        over(control)
    assert [value(one) for one in averagers] == [0.5, 0.5]
    controls = begin(averagers)  # from the averages: they are equal, and stay so
    with averagers[0].get_tensors() as (tensor,):
        tensor.fill_(2.5)  # before the round begins: it waits
    [control.result(PATIENCE) for control in controls]
    assert [value(one) for one in averagers] in ([1.5, 1.5], [2.5, 0.5])


def test_changes_before_the_round_are_averaged(pair):
    Elsewhere.back.set()
    averagers = pair("before")
    with averagers[0].get_tensors() as (tensor,):
        controls = begin(averagers)
        tensor.fill_(4)
    [control.result(PATIENCE) for control in controls]
    assert [value(one) for one in averagers] == [2.5, 2.5]


def test_a_second_step_is_refused_before_it_disturbs_the_first(pair, caplog):
    Elsewhere.back.set()
    averagers = pair("busy")
    first = averagers[0]
    waiting = first.step(wait=False, timeout=60, expected=2)
    first._tensors.tensors[0].fill_(
        100
    )  # the program writes without the lock, after its step has begun: the round does not know of it
    with pytest.raises(HivemindError, match="under way") as refused:
        first.step(wait=False)
    assert refused.value.status == "BUSY"
    assert first.step(timeout=1) is None and "under way" in caplog.text
    averagers[1].step(timeout=60, expected=2), waiting.result(PATIENCE)
    assert [value(one) for one in averagers] == [0.5, 0.5]
    assert waiting.done() and not waiting.cancel()
    one = first.step(wait=False, timeout=60)
    one.cancel()
    two = first.step(wait=False, timeout=60)  # who cancels may begin anew at once
    two.cancel()


def test_late_trigger_does_not_disturb_the_next_step(pair):
    """The trigger belongs to a step that was cancelled."""
    Elsewhere.back.set()
    averagers = pair("word")
    first = averagers[0]
    old = first.step(wait=False, timeout=60, require_trigger=True)
    old.cancel()
    over(old)
    waiting = first.step(wait=False, timeout=60, expected=2)
    first._tensors.tensors[0].fill_(100)
    old.allow_allreduce()
    averagers[1].step(timeout=60, expected=2), waiting.result(PATIENCE)
    assert value(first) == 0.5
