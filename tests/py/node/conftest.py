"""Fixtures of the tests of closed swarms."""

import pytest

from hivemind_c import _invitation


@pytest.fixture
def no_variables(monkeypatch, tmp_path):
    """No variable makes a member of this process, and its state is in a folder of the test."""
    for name in ("INVITE", "HIVEMIND_SWARM_KEY", "INITIAL_PEERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def key(tmp_path):
    """The file of a new swarm key."""
    path = tmp_path / "swarm.key"
    _invitation.new_key(path)
    return path
