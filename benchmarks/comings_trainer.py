"""One trainer of the row `comings`: hivemind's or ours, by the first argument. Prints a JSON object for each thing that happens."""

import json
import signal
import sys
import threading
import time

import torch

FEATURES, BATCH, BATCH_S = 64, 16, 0.05


def say(what, **more):
    print(json.dumps({"t": time.time(), "what": what, **more}), flush=True)


def main(module, target, *peers):
    hivemind = __import__(module)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    model = torch.nn.Linear(FEATURES, 1)
    inner = torch.optim.Adam(model.parameters(), 1e-3)
    dht = hivemind.DHT(initial_peers=list(peers), host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True)
    say("listens", at=str(dht.get_visible_maddrs()[0]))
    optimizer = hivemind.Optimizer(
        dht=dht, run_id="comings", target_batch_size=int(target), batch_size_per_step=BATCH, optimizer=inner, matchmaking_time=2, averaging_timeout=15
    )
    say("begins")
    if peers:
        optimizer.load_state_from_peers()
        say("loaded", epoch=optimizer.local_epoch)
    epoch = optimizer.local_epoch
    while not stop.is_set():
        time.sleep(BATCH_S)
        model(torch.randn(BATCH, FEATURES)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if optimizer.local_epoch != epoch:
            say("epoch", n=optimizer.local_epoch, before=epoch)
            epoch = optimizer.local_epoch
    optimizer.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
