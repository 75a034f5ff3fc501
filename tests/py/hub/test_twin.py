"""Two hubs with copies of one key: the one that reads the other's record says so, and a hub alone says nothing."""

import shutil
from types import SimpleNamespace

import pytest

from hivemind_c import DHT
from hivemind_c.hub.presence import LOOK_EVERY, Presence
from support import HERE

RUN = "test"


@pytest.fixture
def swarm(tmp_path):
    """swarm(file): a DHT with the key in this file, beside one entrance for all."""
    entrance = DHT(host_maddrs=HERE, start=True)
    nodes = [entrance]

    def start(name):
        address = entrance.get_visible_maddrs()
        nodes.append(DHT(address, host_maddrs=HERE, identity_path=tmp_path / name, start=True))
        return nodes[-1]

    yield start
    for node in reversed(nodes):
        node.shutdown()


def tell_in_turns(*presences):
    for _ in range(2 * LOOK_EVERY + 1):
        for presence in presences:
            stored = presence.tell(1, 64, 0, 0)
            if stored is not None:  # as after the five seconds between two records of a hub
                stored.result(60)


def errors(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_hub_with_a_copied_key_is_told_once(swarm, tmp_path, caplog):
    one = swarm("key")
    shutil.copy(tmp_path / "key", tmp_path / "copy")
    other = swarm("copy")
    assert one.peer_id == other.peer_id
    tell_in_turns(Presence(one, RUN), Presence(other, RUN))
    said = errors(caplog)
    assert said and all("another process has the key of this hub" in line for line in said)
    assert any("--identity_path" in line for line in said) and len(said) <= 2


def test_hub_that_starts_again_finds_no_twin(swarm, caplog):
    hub = swarm("key")
    tell_in_turns(Presence(hub, RUN))
    tell_in_turns(Presence(hub, RUN))
    assert errors(caplog) == []


def test_record_is_stored_when_the_look_fails():
    stored, asked = [], []

    def late(seconds):
        asked.append(seconds)
        raise TimeoutError("nobody answered")

    node = SimpleNamespace(dht_store=lambda *record: stored.append(record))
    dht = SimpleNamespace(
        peer_id="12D3KooW",
        get=lambda *_, **__: SimpleNamespace(result=late),
        core=node,
        proof=b"",
    )
    tell_in_turns(Presence(dht, RUN))
    assert asked and len(stored) == 2 * LOOK_EVERY + 1
