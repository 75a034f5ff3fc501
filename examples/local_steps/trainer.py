"""One peer that trains a small model of bytes by local steps. Prints a line of JSON at the end of each swarm epoch."""

import argparse
import hashlib
import json
import pathlib
import sys
import sysconfig
import threading
import time

import torch
from torch import nn

import hivemind_c as hivemind

CONTEXT, WIDTH, HELD_OUT = 16, 512, 4096  #: bytes that the next one is guessed from; bytes that are not trained on
MOST = 2_000_000  #: bytes of Python's library that are read


def data():
    """The first bytes of Python's library: (for training, for the loss that is printed)."""
    text = b""
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += path.read_bytes()
        if len(text) > MOST:
            break
    all_bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    return all_bytes[:-HELD_OUT], all_bytes[-HELD_OUT:]


def batch_of(text, starts):
    windows = text[starts[:, None] + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, -1]


def network():
    torch.manual_seed(0)  # the same first parameters everywhere
    return nn.Sequential(
        nn.Embedding(256, 32), nn.Flatten(), nn.Linear(32 * CONTEXT, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 256)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--initial_peers", nargs="*", default=[])
    parser.add_argument("--host_maddrs", default="/ip4/127.0.0.1/tcp/0")
    parser.add_argument("--target_batch_size", type=int, default=6400)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="of this peer's order of the data")
    parser.add_argument("--pause", type=float, default=0.04, help="seconds after each batch, as of a slower machine")
    args = parser.parse_args()

    torch.set_num_threads(1)
    text, held_out = data()
    model, order = network(), torch.Generator().manual_seed(args.seed)
    held = batch_of(held_out, torch.arange(HELD_OUT - CONTEXT))
    dht = hivemind.DHT(args.initial_peers, host_maddrs=[args.host_maddrs], start=True)
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="local_steps",
        target_batch_size=args.target_batch_size,
        batch_size_per_step=args.batch_size,
        optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3),
        local_steps=True,
        grad_compression=hivemind.Linear8BitQuantization(),
        matchmaking_time=3.0,
        averaging_timeout=30.0,
        averager_opts=dict(sender_timeout=3.0, declare_state_period=1.0),
        tracker_opts=dict(min_refresh_period=0.2, default_refresh_period=0.5, max_refresh_period=1.0),
    )

    def tell(what, **more):
        print(json.dumps(dict(what=what, at=time.time(), **more)), flush=True)

    def tell_of_epoch():
        with optimizer.use_anchor(), torch.no_grad():
            loss = nn.functional.cross_entropy(model(held[0]), held[1]).item()
        anchor = hashlib.sha256(b"".join(p.numpy().tobytes() for p in optimizer.anchor)).hexdigest()[:16]
        record = optimizer.last_epoch
        tell(
            "epoch",
            epoch=optimizer.local_epoch,
            anchor=anchor,
            loss=loss,
            outcome=record.outcome,
            members=record.members,
            computed_s=record.computing_s + record.stepping_s,
            wall_s=record.wall_s,
            mb=(record.bytes_sent + record.bytes_received) / 1e6,
        )

    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    tell("listens", addresses=[str(address) for address in dht.get_visible_maddrs()])
    while not over.is_set():
        epoch = optimizer.local_epoch
        inputs, targets = batch_of(text, torch.randint(len(text) - CONTEXT, (args.batch_size,), generator=order))
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        if optimizer.local_epoch != epoch:
            tell_of_epoch()
        time.sleep(args.pause)
    samples = optimizer.ledger.samples.figures()
    tell("ends", **{name: samples[name] for name in ("produced", "averaged", "kept", "sums", "lost")})
    optimizer.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main()
