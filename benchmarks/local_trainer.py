"""One trainer of the rows `storms` and `scaling`. Writes a JSON object for each batch, and ends with its input.

    local_trainer.py EVENTS OPTIONS     OPTIONS: a JSON object, of DEFAULTS

Under bench_wan it listens on the machine's address.
"""

import json
import os
import sys
import threading
import time

import torch

import hivemind_c as hivemind
from benchmarks.byte_model import CONTEXT, held_out_loss, loss_of, network, texts

DEFAULTS = {
    "mode": "local",
    "target": 480,  # rows of CONTEXT bytes
    "batch": 2,
    "batch_s": 0.05,  # that a batch lasts at least, as on a slower machine
    "ballast": 0,  # parameters without a gradient, which travel all the same
    "seed": 0,
    "initial": [],
    "identity": None,
    "port": 0,
}
EIGHT_BITS = hivemind.Linear8BitQuantization()
MODES = {
    "exact": dict(grad_compression=hivemind.Float16Compression(), average_state_every=10),
    "delayed": dict(grad_compression=EIGHT_BITS, delay_grad_averaging=True, average_state_every=10),
    "local": dict(grad_compression=EIGHT_BITS, local_steps=True),
}


def figures_of(record):
    """The figures of the latest record. With delays the first one comes an epoch late.

    Args:
        record: The record, or None.
    """
    if record is None:
        return {}
    return dict(outcome=record.outcome, computed_s=record.computing_s + record.stepping_s, wall_s=record.wall_s)


def main(path, options):
    o = {**DEFAULTS, **options}
    torch.set_num_threads(1)
    text, held_out = texts()
    model, order = network(), torch.Generator().manual_seed(o["seed"])
    parameters = [*model.parameters()]
    if o["ballast"]:
        parameters.append(torch.nn.Parameter(torch.zeros(o["ballast"])))
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    address = os.environ.get("WAN_ADDRESS", "127.0.0.1")
    dht = hivemind.DHT(
        o["initial"],
        host_maddrs=[f"/ip4/{address}/tcp/{o['port']}"],
        identity_path=o["identity"],
        ensure_bootstrap_success=False,
        start=True,
    )
    with open(path, "a", buffering=1) as events:

        def say(what, **more):
            print(json.dumps({"t": time.time(), "what": what, **more}), file=events)

        optimizer = hivemind.Optimizer(
            dht=dht,
            run_id="local",
            target_batch_size=o["target"],
            batch_size_per_step=o["batch"],
            optimizer=lambda params: torch.optim.AdamW(params, lr=1e-3),
            params=parameters,
            matchmaking_time=3,
            averaging_timeout=120,
            averager_opts=dict(sender_timeout=5.0, declare_state_period=1.0),
            **MODES[o["mode"]],
        )
        say("listens", at=[str(one) for one in dht.get_visible_maddrs()])
        last = time.monotonic()
        while not over.is_set():
            epoch = optimizer.local_epoch
            loss_of(model, text, torch.randint(len(text) - CONTEXT - 1, (o["batch"],), generator=order)).backward()
            time.sleep(max(0.0, last + o["batch_s"] - time.monotonic()))
            optimizer.step()
            optimizer.zero_grad()
            last = time.monotonic()
            samples = optimizer.ledger.samples.figures()
            counts = {name: samples[name] for name in ("produced", "averaged", "kept", "sums", "lost")}
            if optimizer.local_epoch != epoch:
                with optimizer.use_anchor():
                    loss = held_out_loss(model, held_out, rows=32)
                say("epoch", n=optimizer.local_epoch, loss=loss, **figures_of(optimizer.last_epoch), **counts)
            else:
                say("batch", **counts)
        say("ends", **counts)
        optimizer.shutdown()
        dht.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
