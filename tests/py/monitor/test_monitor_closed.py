"""The monitor in a closed swarm: it shows by which invitation each peer came, as the peer proves it."""

import contextlib
import time

import pytest

from hivemind_c import DHT, _invitation, get_dht_time, invite
from hivemind_c.dht import news
from hivemind_c.dht.values import pack
from hivemind_c.monitor.gather import Gatherer
from support import HERE, PATIENT


@pytest.fixture
def key(tmp_path, monkeypatch):
    for name in ("INVITE", "HIVEMIND_SWARM_KEY"):
        monkeypatch.delenv(name, raising=False)
    _invitation.new_key(tmp_path / "swarm.key")
    return tmp_path / "swarm.key"


def tell(dht, proof):
    said = news.News("1", "pc", "trainer", get_dht_time(), 60.0, 1, 64, 1, 1.0, None, 0, 0, (), proof=proof)
    where, subkey = news.key_of("r", dht.peer_id).encode(), pack(news.subkey_of(dht.peer_id))
    dht.core.dht_store(where, subkey, news.write_news(said), 60000).result(60)


def test_monitor_shows_the_invitation_that_a_peer_proves(key):
    good, other = invite(key, name="lab-3"), invite(key, name="other")
    with (
        DHT(start=True, host_maddrs=HERE, swarm_key=key, **PATIENT) as first,
        DHT(first.get_visible_maddrs(), start=True, host_maddrs=HERE, invite=good.text, **PATIENT) as honest,
        DHT(first.get_visible_maddrs(), start=True, host_maddrs=HERE, invite=other.text, **PATIENT) as liar,
    ):
        tell(honest, honest.proof)
        tell(liar, honest.proof)  # it would have another one denied, and its certificate says which one is its own
        gatherer, shown = Gatherer(first, "r", 64), {}
        for _ in range(600):
            shown = {view.peer_id: view.membership for view in gatherer.look().peers}
            if len(shown) == 2:
                break
            time.sleep(0.1)
        gatherer.shutdown()
        assert shown == {str(honest.peer_id): f"{good.id} lab-3", str(liar.peer_id): f"{other.id} other"}


def test_record_of_an_open_swarm_has_no_proof():
    said = news.News("1", "pc", "trainer", 1.0, 60.0, 1, 64, 1, 1.0, None, 0, 0, ())
    assert b"proof" not in news.write_news(said)
    assert b"proof" in news.write_news(news.News(**{**vars(said), "proof": b"x"}))


def test_monitor_lists_each_member_by_its_certificate(key):
    """A member that says nothing of the run is there all the same, and a record without a proof hides nothing."""
    made = [invite(key, name=name) for name in ("lab-1", "lab-2", "lab-3")]
    with contextlib.ExitStack() as open_ones:
        first = open_ones.enter_context(DHT(start=True, host_maddrs=HERE, swarm_key=key, **PATIENT))
        guests = [
            open_ones.enter_context(
                DHT(first.get_visible_maddrs(), start=True, host_maddrs=HERE, invite=one.text, **PATIENT)
            )
            for one in made
        ]
        tell(guests[0], b"")  # it keeps its invitation to itself
        gatherer, views, silent = Gatherer(first, "r", 64), {}, {}
        for _ in range(600):
            now = gatherer.look()
            views, silent = {view.peer_id: view.membership for view in now.peers}, dict(now.silent)
            if len(views) == 1 and len(silent) == 2:
                break
            time.sleep(0.1)
        gatherer.shutdown()
        assert views == {guests[0].peer_id: f"{made[0].id} lab-1"}
        assert silent == {guests[i].peer_id: f"{made[i].id} {made[i].name}" for i in (1, 2)}
