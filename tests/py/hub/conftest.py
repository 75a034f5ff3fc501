"""Fixtures of the tests of the hub."""

import contextlib

import pytest


@pytest.fixture
def started():
    """Ends the processes that a test has started."""
    with contextlib.ExitStack() as stack:

        def start(process):
            stack.callback(process.kill)
            return process

        yield start
