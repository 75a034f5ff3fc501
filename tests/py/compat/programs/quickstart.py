"""A model trained by two peers of one process, as in a quick start."""

import threading

import torch

import hivemind

first = hivemind.DHT(start=True)
torch.manual_seed(0)
x = torch.randn(512, 8)
y = x @ torch.randn(8, 1)
losses = {}


def train(dht, name):
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 1)
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="quickstart",
        batch_size_per_step=32,
        target_batch_size=128,
        params=model.parameters(),
        optimizer=lambda params: torch.optim.SGD(params, lr=0.1),
        use_local_updates=False,
        matchmaking_time=1.0,
        averaging_timeout=15.0,
        verbose=True,
    )
    optimizer.load_state_from_peers()
    while optimizer.local_epoch < 8:
        rows = torch.randint(0, len(x), (32,))
        loss = torch.nn.functional.mse_loss(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.setdefault(name, loss.item())
    losses[name + " at the end"] = loss.item()
    optimizer.shutdown()


second = hivemind.DHT(initial_peers=[str(address) for address in first.get_visible_maddrs()], start=True)
assert first.get_visible_maddrs()[0]["tcp"] and first.peer_id.to_base58() != second.peer_id.to_base58()
threads = [threading.Thread(target=train, args=(dht, name)) for name, dht in (("first", first), ("second", second))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(120)
assert losses["first at the end"] < losses["first"] / 2 and losses["second at the end"] < losses["second"] / 2, losses
first.shutdown(), second.shutdown()
