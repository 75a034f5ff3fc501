"""TrainingAverager beside two training loops that know nothing of it."""

import threading

import torch

import hivemind
from hivemind.averaging.control import AveragingStage
from hivemind.optim.training_averager import dump_optimizer_state, initialize_optimizer_state
from hivemind.utils import PerformanceEMA, nested_flatten, nested_pack

first = hivemind.DHT(start=True)
dhts = [first, hivemind.DHT(first.get_visible_maddrs(), start=True)]
target = torch.tensor([[1.0, -2.0]])
averagers = []
for number, dht in enumerate(dhts):
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(model.weight, float(number))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    initialize_optimizer_state(optimizer)
    averagers.append(
        hivemind.TrainingAverager(
            optimizer,
            average_parameters=True,
            average_gradients=False,
            average_opt_statistics=["exp_avg_sq"],
            dht=dht,
            prefix="loop",
            target_group_size=2,
            min_matchmaking_time=10,
            start=True,
        )
    )
    assert len(list(averagers[-1].local_tensors())) == 2


def train(averager):
    speed = PerformanceEMA(alpha=0.1)
    (weight,) = averager.opt.param_groups[0]["params"]
    for step in range(60):
        (weight - target).square().sum().backward()
        averager.opt.step()
        averager.opt.zero_grad()
        speed.update(1)
        if step in (20, 40):
            assert averager.step(timeout=60) is not None
    assert speed.samples_per_second > 0


threads = [threading.Thread(target=train, args=(averager,)) for averager in averagers]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(120)
assert [averager.local_step for averager in averagers] == [2, 2]
weights = [averager.opt.param_groups[0]["params"][0] for averager in averagers]
assert torch.allclose(weights[0], target, atol=0.5) and torch.allclose(weights[1], target, atol=0.5), weights
flat, tensors = dump_optimizer_state(averagers[0].opt)
assert nested_pack(list(nested_flatten(flat)), flat) == flat and len(tensors) == 3
assert (
    AveragingStage.IDLE is not AveragingStage.LOOKING_FOR_GROUP
    and AveragingStage.RUNNING_ALLREDUCE is AveragingStage.RUNNING
)
for averager in averagers:
    averager.shutdown()
for dht in dhts:
    dht.shutdown()
