"""A target that this swarm will hardly reach is told, once, with one that it would."""

import logging
import types

import pytest

from hivemind_c.optim import forecast
from hivemind_c.optim.forecast import Forecast, reachable


@pytest.mark.parametrize(
    "target, speed, better",
    [
        (4096, 100.0, None),
        (360_000, 100.0, None),  # just an hour
        (361_000, 100.0, 30_000),
        (1_000_000, 12.34, 3_700),
        (4096, 0.0001, 1),
        (4096, 0.0, None),  # nothing is known
        (4096, float("inf"), None),
    ],
)
def test_reachable_target_follows_the_speed(target, speed, better):
    assert reachable(target, speed) == better


class Swarm:
    """One peer's view of a swarm of this speed, at a clock moved by hand."""

    def __init__(self, monkeypatch, target, speed):
        self.now, self.target, self.speed, self.said = 1000.0, target, speed, []
        self.local_samples, self.local_epoch = 7, 3
        monkeypatch.setattr(forecast, "get_dht_time", lambda: self.now)

    def figures(self):
        return types.SimpleNamespace(
            samples=100.0, target=self.target, peers=2, eta=(self.target - 100) / self.speed
        )

    def say(self, text, *args):
        self.said.append(text % args)


def test_target_out_of_reach_is_logged_once(monkeypatch, caplog):
    swarm = Swarm(monkeypatch, target=1_000_000, speed=10.0)
    one = Forecast(swarm)
    for _ in range(300):
        one.update(swarm.figures)
        if swarm.now < 1000 + forecast.SURE_AFTER_S:
            assert not caplog.messages
        swarm.now += 1
    assert len(caplog.messages) == 1 and caplog.records[0].levelno == logging.WARNING
    assert caplog.messages[0].startswith(
        "target_batch_size=1000000 takes 27.8 hours with the current 2 peers (10 samples/s together): "
        "add peers, or use a target_batch_size of about 3000"
    )
    assert (
        swarm.said[0]
        == "Collaboration accumulated 100 samples from 2 peers; ETA 99990.00 seconds "
        "(this peer: 7 samples of swarm epoch 3)"
    )


def test_a_slow_beginning_alone_is_no_reason(monkeypatch, caplog):
    swarm = Swarm(monkeypatch, target=1_000_000, speed=10.0)
    one = Forecast(swarm)
    for second in range(300):
        swarm.speed = 10.0 if second % 50 < 40 else 1000.0
        one.update(swarm.figures)
        swarm.now += 1
    assert not caplog.messages


@pytest.mark.parametrize("speed, lines", [(10.0, 10), (75.0, 17), (9000.0, 100), (1e-9, 10)])
def test_progress_is_logged_more_often_near_the_end(monkeypatch, speed, lines):
    """In 100 seconds: each ten, each six (half of the twelve that are left), or each second."""
    swarm = Swarm(monkeypatch, target=1000, speed=speed)
    one = Forecast(swarm)
    for _ in range(800):
        one.update(swarm.figures)
        swarm.now += 0.125  # of a second
    assert lines - 1 <= len(swarm.said) <= lines + 1
