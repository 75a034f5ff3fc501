"""Fixtures: a server of ranks for a module of tests, and peers whose ranks are ended with the test."""

import pytest

from ranks import Peer, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("ranks"))
    yield made
    made.shutdown()


@pytest.fixture
def peer(server):
    """peer(devices, ...) starts a peer whose ranks run rank_programs.train(...)."""
    started = []

    def start(devices=2, **arguments):
        started.append(Peer(server, devices, **arguments))
        return started[-1]

    yield start
    for one in started:
        one.end()
