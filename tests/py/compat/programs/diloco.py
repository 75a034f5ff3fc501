"""Local steps, then an averaging of the difference that they made, and an outer optimizer: a loop over
DecentralizedAverager as in OpenDiLoCo."""

import threading

import torch

import hivemind
from hivemind.averaging.averager import DecentralizedAverager
from hivemind.averaging.control import AveragingStage, StepControl
from hivemind.averaging.group_info import GroupInfo
from hivemind.compression import NoCompression
from hivemind.optim.optimizer import logger
from hivemind.optim.progress_tracker import ProgressTracker
from hivemind.p2p import PeerID

first = hivemind.DHT(start=True)
dhts = [first, hivemind.DHT(first.get_visible_maddrs(), start=True)]
target = torch.tensor([[1.0, -2.0, 0.5]])
ends = {}


class GradAverager(DecentralizedAverager):
    """Averages what local steps have changed in the offloaded parameters."""

    def __init__(self, main, offloaded, *, dht, prefix):
        self.main, self.offloaded = main, offloaded
        super().__init__(
            averaged_tensors=tuple(torch.zeros_like(p) for p in offloaded),
            dht=dht,
            prefix=prefix,
            target_group_size=2,
            min_matchmaking_time=15.0,
            compression=NoCompression(),
            allow_state_sharing=False,
            start=True,
        )

    def step(self, control: StepControl) -> GroupInfo:
        assert (
            control.stage == AveragingStage.AWAITING_TRIGGER and control.allow_retries and not control.began_allreduce
        )
        with self.get_tensors() as averaged, torch.no_grad():
            for offloaded, main, difference in zip(self.offloaded, self.main, averaged):
                difference.copy_(offloaded - main)
        control.allow_allreduce()
        control.result(60)
        with self.get_tensors() as averaged:
            for offloaded, difference in zip(self.offloaded, averaged):
                offloaded.grad = difference.clone()
        return control.group


def train(dht, number):
    torch.manual_seed(number)
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    inner = torch.optim.AdamW(model.parameters(), lr=0.05)
    offloaded = [p.detach().clone().requires_grad_() for p in model.parameters()]
    outer = torch.optim.SGD(offloaded, lr=0.7, momentum=0.5, nesterov=True)
    averager = GradAverager(list(model.parameters()), offloaded, dht=dht, prefix="diloco_grad_averager")
    state = DecentralizedAverager(
        [p.detach().clone() for p in offloaded], dht, prefix="diloco_state_averager", start=True
    )
    with ProgressTracker(dht, "diloco", target_batch_size=80, start=True) as tracker:
        for epoch in range(4):
            control = DecentralizedAverager.step(
                averager, wait=False, require_trigger=True, timeout=60, gather={"epoch": epoch}
            )
            for step in range(10):
                loss = (model.weight - target - 0.01 * torch.randn(1, 3)).square().sum()
                loss.backward()
                inner.step()
                inner.zero_grad()
                tracker.report_local_progress(epoch, 4 * step, update_global_samples=False)
            with tracker.pause_updates():
                group = averager.step(control)
            assert (
                group.group_size == 2
                and dht.peer_id in group
                and all(isinstance(peer, PeerID) for peer in group.peer_ids)
                and group.gathered == ({"epoch": epoch},) * 2
            )
            outer.step()
            with torch.no_grad():
                for p, q in zip(model.parameters(), offloaded):
                    p.copy_(q)
            tracker.update_epoch(epoch + 1)
            logger.debug(
                "epoch %d of %d at %.1f samples per second", epoch, number, tracker.performance_ema.samples_per_second
            )
    with state.get_tensors() as tensors:
        for tensor, q in zip(tensors, offloaded):
            tensor.copy_(q.detach())
    ends[number] = (state, offloaded[0].detach().clone(), averager)


threads = [threading.Thread(target=train, args=(dht, number)) for number, dht in enumerate(dhts)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(150)
assert torch.equal(ends[0][1], ends[1][1]) and torch.allclose(ends[0][1], target, atol=0.7), ends
metadata, (loaded,) = ends[0][0].load_state_from_peers(timeout=60)  # nobody has called share_state()
assert torch.equal(loaded, ends[1][1])
for state, _, averager in ends.values():
    state.shutdown(), averager.shutdown()
for dht in dhts:
    dht.shutdown()
