"""Averaging in a closed swarm: rounds continue without a peer that is denied."""

import time

import pytest
import torch

from hivemind_c import DHT, DecentralizedAverager, HivemindPermissionError, _invitation, invite
from hivemind_c.cli import invite as command
from support import HERE, PATIENT


@pytest.fixture
def key(tmp_path, monkeypatch):
    for name in ("INVITE", "HIVEMIND_SWARM_KEY"):
        monkeypatch.delenv(name, raising=False)
    _invitation.new_key(tmp_path / "swarm.key")
    return tmp_path / "swarm.key"


def test_rounds_continue_without_a_denied_peer(key, capsys):
    good, bad = invite(key, name="good"), invite(key, name="bad")
    dhts = [DHT(start=True, host_maddrs=HERE, swarm_key=key, **PATIENT)]
    for made in (good, good, bad):
        dhts.append(DHT(dhts[0].get_visible_maddrs(), start=True, host_maddrs=HERE, invite=made.text, **PATIENT))
    tensors = [torch.full((1000,), float(i)) for i in range(4)]
    averagers = [DecentralizedAverager([t], d, prefix="closed", start=True) for t, d in zip(tensors, dhts)]
    try:
        controls = [one.step(wait=False, timeout=60, expected=4) for one in averagers]
        assert all(len(control.result(70)) == 4 for control in controls)
        assert all(torch.allclose(t, torch.full((1000,), 1.5)) for t in tensors)
        # the denied peer looks for a group too, while the others already do
        controls = [one.step(wait=False, timeout=60, expected=3) for one in (averagers[3], *averagers[:2])]
        told = list(map(str, dhts[1].get_visible_maddrs()))
        assert command.main([str(key), "--deny", bad.id, "--initial_peers", *told]) == 0
        capsys.readouterr()
        deadline = time.monotonic() + 30
        with pytest.raises(HivemindPermissionError):
            while time.monotonic() < deadline:
                dhts[3].check_admission()
                time.sleep(0.05)
        for t, value in zip(tensors, (0.0, 3.0, 6.0, 99.0)):
            t.fill_(value)
        for control in controls:
            control.cancel()
        controls = [one.step(wait=False, timeout=60, expected=3) for one in averagers[:3]]
        assert all(len(control.result(70)) == 3 for control in controls)
        assert all(torch.allclose(t, torch.full((1000,), 3.0)) for t in tensors[:3])
        assert torch.all(tensors[3] == 99.0)
    finally:
        for one in (*averagers, *dhts):
            one.shutdown()
