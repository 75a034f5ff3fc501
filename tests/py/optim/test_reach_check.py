"""The warning of a trainer that nobody can dial, in a run where nobody can be dialled."""

from hivemind_c.dht import get_dht_time, news
from hivemind_c.dht.values import unpack
from hivemind_c.optim.reach_check import ALONE_S, FIRST_S, OPENING_S, PERIOD_S, ReachCheck
from support import eventually

FIELDS = dict(
    version="0.1.0", name="amber", time=1e9, lease=10.0, epoch=3, target=64, samples=640, speed=12.5, loss=0.25,
    rounds=6, failures=0, errors=(),
)  # fmt: skip


def tell(dht, run_id, role):
    """Stores a peer's record with this role."""
    key, value = news.key_of(run_id, dht.peer_id), unpack(news.write_news(news.News(role=role, **FIELDS)))
    assert dht.store(key, value, get_dht_time() + 600, subkey=news.subkey_of(dht.peer_id))


class Client:
    """A DHT of a peer that nobody can dial: in client mode, or hidden behind a NAT."""

    def __init__(self, dht, client_mode=True, is_hidden=False):
        self._dht, self.client_mode, self.is_hidden = dht, client_mode, is_hidden

    def __getattr__(self, name):
        return getattr(self._dht, name)

    def state(self):
        return {**self._dht.state(), "is_hidden": int(self.is_hidden)}


def test_peer_warns_once_while_nobody_can_be_dialled(dhts, caplog):
    clock = [0.0]
    client = Client(dhts[0])
    check = ReachCheck(client, "reach", lambda: clock[0])

    def warnings_after(seconds):
        clock[0] += seconds
        check.look()
        assert eventually(lambda: check.look() or not check._asked)
        return [line.getMessage() for line in caplog.records if "hivemind-hub" in line.getMessage()]

    tell(dhts[0], "reach", "client")
    assert warnings_after(FIRST_S) == []  # alone
    tell(dhts[1], "reach", "client")
    (line,) = warnings_after(ALONE_S)
    assert "any of the 1 other peers" in line and "'hivemind-hub --run_id reach'" in line
    assert FIRST_S + ALONE_S + 2 < 10
    assert len(warnings_after(PERIOD_S)) == 1
    tell(dhts[2], "reach", "auxiliary")
    assert len(warnings_after(PERIOD_S)) == 1
    tell(dhts[2], "reach", "client")
    assert len(warnings_after(PERIOD_S)) == 2


def test_peer_behind_a_nat_warns_when_its_router_has_had_time(dhts, caplog):
    clock = [0.0]
    dht = Client(dhts[0], client_mode=False, is_hidden=True)
    check = ReachCheck(dht, "hidden", lambda: clock[0])

    def warnings_after(seconds):
        clock[0] += seconds
        check.look()
        assert eventually(lambda: check.look() or not check._asked)
        return [line.getMessage() for line in caplog.records if "hivemind-hub" in line.getMessage()]

    tell(dhts[1], "hidden", "client")
    assert warnings_after(FIRST_S) == [] and not check.is_client
    assert warnings_after(ALONE_S) == [] and not check.is_client
    assert len(warnings_after(OPENING_S)) == 1 and check.is_client
    dht.is_hidden = False  # the router has opened the port
    assert len(warnings_after(PERIOD_S)) == 1 and not check.is_client


def test_open_peer_never_looks_for_another_one(dhts, caplog):
    clock = [0.0]
    check = ReachCheck(dhts[0], "open", lambda: clock[0])
    tell(dhts[1], "open", "client")
    for _ in range(9):
        clock[0] += PERIOD_S
        check.look()
        assert not check._asked and not check.is_client
