"""One machine of the row `home-line`, in the namespace and with the line that bench_wan gave it: a trainer, or a hub.

    home_scene.py FOLDER HUB [SCENE]     machine 0 prints a JSON object

HUB is 1 if nobody can dial the trainers; then the last machine is a hub.
SCENE has fields of Scene that differ, as a JSON object.
"""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

TRAINERS, JOINER, HUB = 3, 3, 4  # machines 0 to 2 begin together; one more comes; JOINER and HUB: numbers of machines
KILLED = 2
BATCH = 4
PORT = 31400
START_S = 60  # until all train


class Scene(NamedTuple):
    """The model, an epoch, and how long it takes."""

    mode: str = "delayed"  #: or "local": local steps
    parameters: int = 12_400_000
    batch_s: float = 0.25
    batches: int = 24  #: of each trainer in an epoch of three
    first: int = 2  #: common epochs of three before all that
    alone_s: float = 15.0  #: of three trainers,
    with_s: float = 65.0  #: then of four
    after_s: float = 15.0  #: and of three; 0: none is killed
    meets: int = 0  #: common epochs of the newcomer after which its part ends; 0: it lasts with_s
    options: dict = {}  #: of the Optimizer

    @property
    def epoch_s(self):
        """Seconds of an epoch of three."""
        return self.batch_s * self.batches

    def load_s(self, mbit):
        """Seconds of a download of the state alone.

        Args:
            mbit: Speed of the line.
        """
        return (8 if self.mode == "local" else 12) * self.parameters / (mbit * 125_000)

    def goal_s(self, mbit):
        """Seconds from a newcomer's start until it is with the others.

        Args:
            mbit: Speed of the line.
        """
        return 1.5 * self.load_s(mbit) + 3 * self.epoch_s


def options_of(mode, parameters, hivemind, torch):
    """Options of the Optimizer.

    Args:
        mode: Of the Scene.
        parameters: Of the model.
        hivemind: The module.
        torch: The module.
    """
    if mode == "local":
        inner = torch.optim.SGD(parameters, lr=1e-5)
        return dict(optimizer=inner, local_steps=True, grad_compression=hivemind.Linear4BitQuantization())
    hidden = "delay_grad_averaging", "delay_optimizer_step", "delay_state_averaging", "offload_optimizer"
    optimizer = dict(optimizer=partial(torch.optim.AdamW, lr=1e-5), params=parameters)
    rounds = dict(average_state_every=50, grad_compression=hivemind.Linear8BitQuantization())
    return dict(**dict.fromkeys(hidden, True), **optimizer, **rounds)


def step_s(mode, parameters, gradients, torch):
    """Seconds of a batch's own step without a network, the least of some. In the delayed mode a batch has none.

    Args:
        mode: Of the Scene.
        parameters: Of the model.
        gradients: One for each.
        torch: The module.
    """
    if mode != "local":
        return 0.0
    optimizer, least = torch.optim.SGD(parameters, lr=0.0), float("inf")
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient
    for _ in range(10):
        begun = time.perf_counter()
        optimizer.step()
        least = min(least, time.perf_counter() - begun)
    return least


def trainer(folder, scene, number, is_client, initial):
    """Trains until it is killed, and writes an event for each batch and each epoch.

    Args:
        folder: Path of the folder for events.
        scene: The Scene.
        number: Number of the machine.
        is_client: Nobody can dial it.
        initial: Addresses of peers.
    """
    import torch

    import hivemind_c as hivemind

    torch.set_num_threads(1)
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.zeros(scene.parameters // 4)) for _ in range(4)]
    gradients = [torch.randn(scene.parameters // 4) for _ in parameters]
    events = (folder / f"events{number}").open("w", buffering=1)

    def say(what, **more):
        print(json.dumps({"t": time.time(), "what": what, **more}), file=events)

    say("starts", step_s=step_s(scene.mode, parameters, gradients, torch))
    here = [f"/ip4/{os.environ['WAN_ADDRESS']}/tcp/{PORT + number}"]
    where = dict(client_mode=True) if is_client else dict(host_maddrs=here)
    dht = hivemind.DHT(initial, start=True, ensure_bootstrap_success=False, **where)
    usual = options_of(scene.mode, parameters, hivemind, torch)
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="home",
        target_batch_size=TRAINERS * scene.batches * BATCH,
        batch_size_per_step=BATCH,
        on_epoch=lambda record: say("epoch", n=record.epoch, outcome=record.outcome, members=record.members),
        **{"matchmaking_time": 3, "averaging_timeout": 60, **usual, **scene.options},
    )
    while True:
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient
        time.sleep(scene.batch_s)
        optimizer.step()
        samples = optimizer.ledger.samples.figures()
        say("batch", **{name: samples[name] for name in ("averaged", "kept", "lost")})


def hub(number):
    words = [sys.executable, "-m", "hivemind_c.cli.hub", "--run_id", "home"]
    words += ["--host_maddrs", f"/ip4/{os.environ['WAN_ADDRESS']}/tcp/{PORT + number}"]
    words += ["--identity", "/tmp/home-hub.key", "--history", "none"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def read(folder, number):
    path = folder / f"events{number}"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def common(events, members):
    """Epochs that the trainer averaged with others.

    Args:
        events: Its events.
        members: Least peers of such a group, with itself and a hub.
    """
    epochs = [event for event in events if event["what"] == "epoch"]
    return [event for event in epochs if event["outcome"] == "averaged" and event["members"] >= members]


def computed(events, scene, begin, end):
    """Share of the time between begin and end in which the trainer computed, with each batch's own step."""
    batches = sum(event["what"] == "batch" and begin <= event["t"] < end for event in events)
    return batches * (scene.batch_s + events[0]["step_s"]) / (end - begin)


def figures(folder, scene, begin, end, least):
    """The figures of the events.

    Args:
        folder: Path of the folder with events.
        scene: The Scene.
        begin: Time from which it is measured.
        end: Time until which it is.
        least: Least members of a group of several trainers.
    """
    events = [read(folder, number) for number in range(TRAINERS + 1)]
    joined = events[JOINER]
    batches = [[event for event in one if event["what"] == "batch"] for one in events]
    last = [one[-1] for one in batches if one]
    together = common(joined, least)
    starts = joined[0]["t"]
    stay = [events[number] for number in range(TRAINERS) if number != KILLED]
    averaged = sum(event["averaged"] for event in last)
    return {
        "computed_share": sum(computed(one, scene, begin, end) for one in stay) / len(stay),
        "joiner_computed_share": computed(joined, scene, starts, end),
        "joiner_together_s": together[0]["t"] - starts if together else end - starts,
        "joiner_common_epochs": len(together),
        "epochs": len({event["n"] for event in common(events[0], least) if event["t"] >= begin}),
        "averaged_share": averaged / max(1, averaged + sum(event["kept"] + event["lost"] for event in last)),
    }


def machine(folder, scene, number, has_hub):
    """Starts this machine's program when its time has come, and ends it. Machine 0 says when, and what came of it.

    Args:
        folder: Path of the folder that all share.
        scene: The Scene.
        number: Number of the machine.
        has_hub: The trainers are reached through a hub alone.
    """
    least = 2 + has_hub
    first = HUB if has_hub else 0
    initial = [] if number == first else [f"/ip4/10.77.0.{first + 1}/tcp/{PORT + first}"]

    def wait_for(name):
        end = time.monotonic() + START_S + scene.alone_s + scene.with_s + scene.after_s + 30
        while not (folder / name).exists():
            if time.monotonic() > end:
                sys.exit(f"the machines did not get to {name!r}")
            time.sleep(0.05)

    if number == JOINER:
        wait_for("join")
    elif number != first:
        time.sleep(2)
    words = ["trainer", str(folder), json.dumps(scene._asdict()), str(number), str(int(has_hub)), json.dumps(initial)]
    if number == HUB:
        program = hub(number)
    else:
        program = subprocess.Popen([sys.executable, "-W", "ignore", __file__, *words])
    try:
        if number == 0:
            until = time.monotonic() + START_S
            while any(len(common(read(folder, other), least)) < scene.first for other in range(TRAINERS)):
                if time.monotonic() > until:
                    break  # their rounds take that long
                if program.poll() is not None:
                    sys.exit("the first trainer ended")
                time.sleep(0.2)
            begin = time.time()
            time.sleep(scene.alone_s)
            (folder / "join").touch()
            until = time.monotonic() + scene.with_s
            while time.monotonic() < until:
                if scene.meets and len(common(read(folder, JOINER), least)) >= scene.meets:
                    break
                time.sleep(0.2)
            if scene.after_s:
                (folder / "kill").touch()
                time.sleep(scene.after_s)
            outcome = figures(folder, scene, begin, time.time(), least)
            (folder / "end").touch()
            print(json.dumps(outcome), flush=True)
        else:
            wait_for("kill" if number == KILLED and scene.after_s else "end")
    finally:
        program.kill()
        program.wait()


if __name__ == "__main__":
    if sys.argv[1] == "trainer":
        scene, number, is_client, initial = sys.argv[3:]
        played = Scene(**json.loads(scene))
        trainer(Path(sys.argv[2]), played, int(number), is_client == "1", json.loads(initial))
    else:
        differs = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
        machine(Path(sys.argv[1]), Scene(**differs), int(os.environ["WAN_PEER"]), sys.argv[2] == "1")
