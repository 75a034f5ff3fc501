"""A client trains by itself, and a newcomer's load through a hub takes several of its epochs."""

import forking
import pytest
from hubs import Hub, Process, told

MBIT = 2  #: a state takes 3 s to the hub, and as long from there; an average 0.25 s; an epoch of one lasts 1 s
TRAINER = """
import hashlib, json, sys, time
import torch
import hivemind_c as hivemind
from optim_support import QUICK, flat

dht = hivemind.DHT([sys.argv[1]], start=True, client_mode=True)
model = torch.nn.Linear(250, 250)
optimizer = hivemind.Optimizer(
    dht=dht, run_id="test", target_batch_size=128, batch_size_per_step=16, log_memory=1 << 20, upload_mbit=MBIT,
    grad_compression=hivemind.Uniform8BitQuantization(), optimizer=torch.optim.Adam(model.parameters(), lr=1e-4),
    **QUICK,
)
while True:
    model(torch.randn(16, 250)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.12)
    last, replica = optimizer.last_epoch, hashlib.sha256(flat(model).numpy().tobytes()).hexdigest()[:16]
    if last:
        facts = {"epoch": optimizer.local_epoch, "replica": replica, "outcome": last.outcome, "members": last.members}
        print(json.dumps({**facts, "repeats": optimizer.driver.hands.repeated}), flush=True)
""".replace("MBIT", str(MBIT))


def averaged(one, members):
    """Its lines after rounds of so many, the hub among them, by epoch."""
    return {line["epoch"]: line for line in told(one) if line["outcome"] == "averaged" and line["members"] == members}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_lone_client_and_its_hub_keep_steps_for_a_newcomer(started, tmp_path):
    hub = started(Hub(tmp_path, "--upload_mbit", MBIT))
    founder = started(Process(TRAINER, hub.address, imports=forking.TORCH))
    founder.wait_for(lambda p: any(line["epoch"] >= 5 for line in told(p)))
    assert {line["outcome"] for line in told(founder)} == {"alone"}
    newcomer = started(Process(TRAINER, hub.address, imports=forking.TORCH))
    founder.wait_for(lambda p: averaged(p, 2), 60)
    newcomer.wait_for(lambda p: averaged(p, 3), 200)
    joined = max(averaged(newcomer, 3))
    newcomer.wait_for(lambda p: max(averaged(p, 3)) > joined + 3)
    assert max(line["repeats"] for line in told(newcomer)) > 0, newcomer.log[-20:]
    common = averaged(founder, 3).keys() & averaged(newcomer, 3).keys()
    replicas = [{line["replica"] for line in told(one) if line["epoch"] in common} for one in (founder, newcomer)]
    assert replicas[0] & replicas[1]
