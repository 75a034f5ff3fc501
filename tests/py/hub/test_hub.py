"""hivemind-hub with trainers in processes of their own: the state of a run outlives its trainers."""

from hubs import Hub, replicas, told, trainer


def kept_epoch(hub):
    """The epoch of the latest state that the hub has kept. 0: none."""
    epochs = [line.split("of swarm epoch ")[1].split(",")[0] for line in list(hub.log) if "keeping the state" in line]
    return int(epochs[-1]) if epochs else 0


def continues(late, early):
    """Whether a trainer began with the state of another one, to the bit."""
    first = late.wait_for(told)[0]
    return first["epoch"] > 0 and replicas(early).get(first["epoch"]) == first["replica"]


def test_next_trainer_continues_from_a_living_hub(started, tmp_path):
    hub = started(Hub(tmp_path))
    first = started(trainer([hub.address]))
    first.wait_for(lambda _: kept_epoch(hub) > 1)
    first.kill()
    assert continues(started(trainer([hub.address], seed=1)), first)


def test_restarted_hub_offers_its_newest_checkpoint(started, tmp_path):
    files = ("--checkpoints", tmp_path / "states", "--keep", 1)
    hub = started(Hub(tmp_path, *files))
    first = started(trainer([hub.address]))
    first.wait_for(lambda _: kept_epoch(hub) > 1)
    first.kill()
    hub.kill()
    again = started(Hub(tmp_path, *files))
    assert continues(started(trainer([again.address], seed=1)), first)
    assert again.end() == 0 and len(list((tmp_path / "states").iterdir())) == 1
