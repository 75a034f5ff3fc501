"""The checkpoints that hivemind-monitor saves: named safely, whole or absent, and tried again until one is there."""

import errno
import logging

import pytest
import torch

from hivemind_c.averaging.state import LoadedState, StateSharing
from hivemind_c.monitor import checkpoints
from hivemind_c.monitor.checkpoints import Saver, save
from test_monitor import snapshot


@pytest.fixture(autouse=True)
def loaded(monkeypatch):
    """The swarm's state is there at once."""
    state = LoadedState(5, {"parameters": 1}, [torch.ones(3)], "donor")
    monkeypatch.setattr(StateSharing, "__init__", lambda *_: None)
    monkeypatch.setattr(StateSharing, "load", lambda *_: state)


@pytest.mark.parametrize(
    "run_id, name", [("run", "run-5.pt"), ("team/exp", "team%2Fexp-5.pt"), ("/tmp/exp", "%2Ftmp%2Fexp-5.pt")]
)
def test_checkpoint_of_any_run_is_in_the_folder(tmp_path, run_id, name):
    assert save(None, run_id, tmp_path) == tmp_path / name
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert torch.load(tmp_path / name, weights_only=True)["run_id"] == run_id


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("PytorchStreamWriter failed\nat it")]
)
def test_checkpoint_that_fails_is_one_sentence_and_tried_again(tmp_path, monkeypatch, caplog, error):
    def full(about, draft):
        draft.write_bytes(b"some of it")
        raise error

    saver = Saver(None, "run", 2, str(tmp_path))
    with caplog.at_level(logging.INFO, "hivemind_c.monitor"), monkeypatch.context() as broken:
        broken.setattr(torch, "save", full)
        for epoch in (1, 2, 2):
            saver.look(snapshot(epoch=epoch))
            saver.close()
        (line,) = [one.getMessage() for one in caplog.records]
        assert f"no checkpoint was written in {tmp_path}, will retry in 30 s: " in line and "\n" not in line
        assert list(tmp_path.iterdir()) == []
    saver._again -= checkpoints.RETRY_S
    for _ in range(2):
        saver.look(snapshot(epoch=2))
        saver.close()
    assert [path.name for path in tmp_path.iterdir()] == ["run-5.pt"]
    saver.look(snapshot(epoch=3))
    assert not saver._thread.is_alive()
