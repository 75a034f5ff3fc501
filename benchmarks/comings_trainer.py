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


def main(module, target, options, *peers):
    hivemind = __import__(module)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    model = torch.nn.Linear(FEATURES, 1)
    settings = dict(run_id="comings", target_batch_size=int(target), batch_size_per_step=BATCH, matchmaking_time=2, averaging_timeout=15)
    settings.update(json.loads(options))
    where = dict(client_mode=True) if settings.get("client_mode") else dict(host_maddrs=["/ip4/127.0.0.1/tcp/0"])
    dht = hivemind.DHT(initial_peers=list(peers), start=True, **where)
    say("listens", at=[str(address) for address in dht.get_visible_maddrs()])
    if settings.get("offload_optimizer"):
        settings.update(optimizer=lambda params: torch.optim.Adam(params, 1e-3), params=model.parameters())
    else:
        settings.update(optimizer=torch.optim.Adam(model.parameters(), 1e-3))
    optimizer = hivemind.Optimizer(dht=dht, **settings)
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
