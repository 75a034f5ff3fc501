"""HivemindStrategy in a closed swarm: it does not train alone when it is refused, and saves what it has first."""

import time
from pathlib import Path

import pytest
import torch
from trainers import BATCH, data, lightning, small, trainer

import _hivemind_c
from hivemind_c import DHT, HivemindPermissionError, HivemindStrategy, _invitation
from hivemind_c._lightning import bootstrap

pytestmark = pytest.mark.filterwarnings("ignore")
HERE = "/ip4/127.0.0.1/tcp/0"
GRACE = 3600


@pytest.fixture
def key(tmp_path, monkeypatch):
    for name in ("INVITE", "HIVEMIND_SWARM_KEY", "INITIAL_PEERS", "PL_INITIAL_PEERS"):
        monkeypatch.delenv(name, raising=False)
    _invitation.new_key(tmp_path / "swarm.key")
    return tmp_path / "swarm.key"


def ending_in(key, seconds):
    return _hivemind_c.invite_new(key.read_text().strip(), int(time.time()) - GRACE + seconds, "lab-3", None)[0]


class Slow(lightning().Callback):
    """Each batch takes a while."""

    def on_train_batch_end(self, *args):
        time.sleep(0.2)


def test_refused_stranger_does_not_train_alone(key):
    with DHT(start=True, swarm_key=key) as first:
        strategy = HivemindStrategy(BATCH, host_maddrs=HERE, initial_peers=list(map(str, first.get_visible_maddrs())))
        with pytest.raises(HivemindPermissionError, match="this swarm is closed"):
            trainer(strategy).fit(small(), data())
        assert strategy._samples == 0


def test_checkpoint_is_written_when_the_invitation_ends(key, tmp_path):
    with DHT(start=True, swarm_key=key) as first:
        peers = list(map(str, first.get_visible_maddrs()))
        strategy = HivemindStrategy(BATCH, host_maddrs=HERE, initial_peers=peers, closed=True, invite=ending_in(key, 6))
        made = trainer(strategy, max_epochs=1000, callbacks=[Slow()], default_root_dir=tmp_path)
        with pytest.raises(HivemindPermissionError) as caught:
            made.fit(small(), data())
        assert caught.value.cause == "invitation_ended" and "inv-" in str(caught.value)
        (path,) = tmp_path.glob("not-admitted-*.ckpt")
        assert str(path) in str(caught.value)
        saved = path.read_bytes()
        assert b"hvi1" not in saved and torch.load(path, weights_only=False)["global_step"] > 0


def test_line_to_join_has_the_invitation(key, capsys):
    with DHT(start=True, swarm_key=key) as first:
        line = bootstrap.invite(first)
        assert line.startswith("INVITE=hvi1") and " INITIAL_PEERS=" in line and line in capsys.readouterr().out
    notebook = bootstrap.join_line(["a"], ["python", "ipykernel_launcher"], "INVITE=hvi1x")
    assert notebook == "%env INVITE=hvi1x\n%env INITIAL_PEERS=a"
    assert bootstrap.join_line(["a"], ["python", "train.py"]) == "INITIAL_PEERS=a python train.py"
    assert Path(key).exists()
