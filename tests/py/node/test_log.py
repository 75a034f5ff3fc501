"""Records of nodes reach Python's logging."""

import logging
import socket
import threading
import weakref

import pytest

from hivemind_c import Node, _grpc_holes, _log
from support import HERE, eventually


def lines(caplog):
    return [record for record in caplog.records if record.name.startswith("hivemind_c.")]


@pytest.fixture(autouse=True)
def holes_are_told():
    """The sentence on gRPC comes once in a process, with its first node."""
    _grpc_holes.tell()


def test_lines_reach_logging_with_room_and_event(caplog, node):
    caplog.set_level(logging.DEBUG)
    first = node(log_level="debug")
    second = node(initial_peers=first.addresses, log_level=logging.DEBUG)
    second.wait_for_peers(1, timeout=60)
    assert eventually(lambda: lines(caplog))
    second.shutdown()
    first.shutdown()
    for record in lines(caplog):
        assert record.levelno in (10, 20, 30, 40)
        assert record.event and record.event == record.event.strip()
        assert record.getMessage() and record.getMessage().isprintable()
        assert record.name.split(".")[1]


def test_shutdown_delivers_all_log_lines_before_it_returns(caplog):
    caplog.set_level(logging.DEBUG)
    for _ in range(5):
        caplog.clear()
        Node(HERE, log_level="debug").shutdown()
        assert lines(caplog)


def test_lines_come_while_a_node_runs_without_any_call(caplog, node):
    caplog.set_level(logging.DEBUG)
    first = node(log_level="debug")
    heard = len(lines(caplog))
    with Node(HERE, initial_peers=first.addresses, log_level="error"):
        assert eventually(lambda: len(lines(caplog)) > heard)


def test_node_logs_nothing_below_its_level(caplog):
    caplog.set_level(logging.DEBUG)
    with Node(HERE, log_level="error"):
        pass
    assert lines(caplog) == []


def test_loggers_can_be_silenced_by_name(caplog):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.CRITICAL, logger="hivemind_c")
    with Node(HERE, log_level="debug"):
        pass
    assert lines(caplog) == []


def test_nothing_is_printed_unless_logging_is_told_to(program):
    code, out, err = program(
        """
        from hivemind_c import Node
        first = Node("/ip4/127.0.0.1/tcp/0")
        second = Node("/ip4/127.0.0.1/tcp/0", initial_peers=first.addresses)
        second.wait_for_peers(1, 60)
        """
    ).finish()
    assert (code, out, err) == (0, "", "")


def test_a_handler_may_use_the_node_and_may_fail(node, capfd):
    one = node(start=False, log_level="debug")
    heard = []

    class Handler(logging.Handler):
        def emit(self, record):
            heard.append(record.getMessage())
            repr(one), one._node is None or one._node.take_log()
            raise ZeroDivisionError

    logger = logging.getLogger("hivemind_c")
    handler = Handler()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        one.start()
        assert eventually(lambda: heard)
        one.shutdown()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert "ZeroDivisionError" in capfd.readouterr().err  # as logging itself tells it


def test_a_filter_that_raises_does_not_end_the_listening(caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(logging, "raiseExceptions", False)

    def spoilt(record):
        raise ZeroDivisionError

    caplog.handler.addFilter(spoilt)
    with Node(HERE, log_level="debug"):
        pass
    caplog.handler.removeFilter(spoilt)
    with Node(HERE, log_level="debug"):
        pass
    assert lines(caplog)


def test_the_listening_thread_lives_only_while_a_node_does(node):
    def listening():
        return [thread for thread in threading.enumerate() if thread.name == "hivemind_c-log"]

    one = node()
    assert len(listening()) == 1 and listening()[0].daemon
    two = node()
    assert len(listening()) == 1
    one.shutdown()
    two.shutdown()
    assert eventually(lambda: not listening())


def test_node_that_only_the_log_holds_is_waited_for(caplog):
    caplog.set_level(logging.DEBUG)
    held, go_on = threading.Event(), threading.Event()

    def hold(record):
        if threading.current_thread().name == "hivemind_c-log":
            held.set()
            go_on.wait(30)
        return True

    caplog.handler.addFilter(hold)
    one = Node(HERE, log_level="debug").start()
    inner, address = weakref.ref(one), ("127.0.0.1", int(one.addresses[0].split("/")[4]))
    assert held.wait(30)
    del one
    _log.let_go(0.1)
    assert inner() is not None  # the handler keeps it
    threading.Timer(0.2, go_on.set).start()
    _log.let_go(30)
    assert inner() is None
    with pytest.raises(OSError):
        socket.create_connection(address, 1).close()


@pytest.mark.parametrize(
    "level, number", [("debug", 0), ("INFO", 1), (20, 1), (25, 2), ("Warning", 2), (logging.ERROR, 3), (50, 3), (0, 0)]
)
def test_levels_are_those_of_logging(level, number):
    assert _log.level_number(level) == number


@pytest.mark.parametrize("level", ["loud", None, 1.5, True])
def test_a_level_that_logging_does_not_know_is_refused(level):
    with pytest.raises(ValueError, match="log_level"):
        _log.level_number(level)
