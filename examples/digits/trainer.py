"""One peer that trains a small network on scikit-learn's digits. Prints a line of JSON at the end of each epoch."""

import argparse
import hashlib
import json
import sys
import threading
import time

import torch
from sklearn.datasets import load_digits
from torch import nn

import hivemind_c as hivemind


def data():
    digits = load_digits()
    return torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)


def digest(model):
    whole = hashlib.sha256()
    for p in model.parameters():
        whole.update(p.detach().numpy().tobytes())
    return whole.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--initial_peers", nargs="+", required=True)
    parser.add_argument("--identity_path", default=None)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--target_batch_size", type=int, default=4096)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="of this peer's order of the data")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds after each batch, for machines that are shared")
    parser.add_argument("--stay", action="store_true", help="train on after the last epoch until the input ends")
    args = parser.parse_args()

    torch.set_num_threads(1)
    inputs, targets = data()
    torch.manual_seed(0)  # the same first parameters everywhere
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    order = torch.Generator().manual_seed(args.seed)

    dht = hivemind.DHT(args.initial_peers, host_maddrs=["/ip4/127.0.0.1/tcp/0"], identity_path=args.identity_path, wait_timeout=30, startup_timeout=90, start=True)
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="digits",
        target_batch_size=args.target_batch_size,
        batch_size_per_step=args.batch_size,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        delay_state_averaging=False,
        matchmaking_time=3.0,
        averaging_timeout=15.0,
        load_state_timeout=20.0,
        averager_opts=dict(sender_timeout=2.0, declare_state_period=1.0),
        tracker_opts=dict(min_refresh_period=0.2, default_refresh_period=0.5, max_refresh_period=1.0, metadata_expiration=6.0),
    )

    def tell(joined):
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(inputs), targets).item()
        print(json.dumps(dict(epoch=optimizer.local_epoch, digest=digest(model), loss=loss, joined=joined)), flush=True)

    is_let_go = threading.Event()
    if args.stay:
        threading.Thread(target=lambda: (sys.stdin.read(), is_let_go.set()), daemon=True).start()
    begun = optimizer.local_epoch
    if begun >= args.epochs:  # the others are done, and gave their state
        tell(joined=True)
    while not is_let_go.is_set() if args.stay else optimizer.local_epoch < args.epochs:
        epoch = optimizer.local_epoch
        batch = torch.randint(len(inputs), (args.batch_size,), generator=order)
        nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
        optimizer.step()
        optimizer.zero_grad()
        if optimizer.local_epoch != epoch:
            tell(joined=epoch == begun)
        time.sleep(args.pause)
    if not args.stay:
        time.sleep(3)  # others may still want this epoch's state
    optimizer.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main()
