"""A fixture: peers whose ranks are ended with the test."""

import pytest

from ranks import Peer


@pytest.fixture
def peer(tmp_path_factory):
    """peer(devices, ...) starts a peer whose ranks run rank_programs.train(...)."""
    started = []

    def start(devices=2, **arguments):
        started.append(Peer(tmp_path_factory.mktemp("ranks"), devices, **arguments))
        return started[-1]

    yield start
    for one in started:
        one.end()
