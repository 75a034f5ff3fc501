"""The names that programs written for hivemind import, beside what the other tests use anyway.

docs/howto/migrate-from-hivemind.md lists the differences.
"""

import dataclasses
import inspect
import logging
import threading

import numpy
import pytest
import torch

import hivemind_c as hivemind
from hivemind_c.dht import CompositeValidator, DHTRecord, RecordValidatorBase
from hivemind_c.optim.progress_tracker import ProgressTracker
from support import HERE, PATIENT


@pytest.mark.parametrize("name", ["averaging", "compression", "cuda", "dht", "optim", "utils"])
def test_modules_are_there_without_an_import_of_their_own(program, name):
    code, out, err = program(
        f"""
        import hivemind_c as hivemind

        assert "{name}" in dir(hivemind)
        print(hivemind.{name}.__name__)
        """
    ).finish(timeout=60)
    assert (code, out, err) == (0, f"hivemind_c.{name}\n", "")


def test_modules_have_the_names_that_programs_import():
    import hivemind_c.averaging.averager
    import hivemind_c.dht.crypto
    import hivemind_c.dht.schema
    import hivemind_c.optim.power_sgd_averager
    import hivemind_c.optim.state_averager
    import hivemind_c.utils.timed_storage  # noqa: F401

    assert hivemind.averaging.averager.DecentralizedAverager is hivemind.DecentralizedAverager
    assert hivemind.optim.state_averager.TrainingStateAverager is hivemind.TrainingStateAverager
    assert hivemind.utils.timed_storage.get_dht_time is hivemind.get_dht_time
    assert issubclass(hivemind.dht.crypto.RSASignatureValidator, hivemind.dht.SignatureValidator)


def test_a_signature_validator_under_its_old_name():
    validator = hivemind.dht.crypto.RSASignatureValidator()
    with pytest.raises(ValueError, match="identity_path"):
        hivemind.dht.crypto.RSASignatureValidator(private_key=b"mine")
    with hivemind.DHT(host_maddrs=[HERE], start=True, record_validators=[validator], **PATIENT) as dht:
        assert validator.local_public_key == f"[owner:{dht.peer_id}]".encode()
        until = hivemind.get_dht_time() + 60
        assert dht.store("key", 1, until, subkey=validator.local_public_key)
        dht.add_validators([hivemind.dht.crypto.RSASignatureValidator()])  # another one of its kind is the same one


def test_node_started_without_a_wait_can_wait_later():
    with hivemind.DHT(host_maddrs=[HERE], start=True, **PATIENT) as first:
        first.wait_until_ready()  # it was told of nobody
        with hivemind.DHT(
            first.get_visible_maddrs(), host_maddrs=[HERE], start=True, await_ready=False, **PATIENT
        ) as second:
            second.wait_until_ready(60)
            assert second.state()["peers"] == 1


def test_group_bits_are_known_at_once(dhts):
    averager = hivemind.DecentralizedAverager(
        [numpy.zeros(3, numpy.float32)],
        dhts[0],
        start=False,
        prefix="migrating",
        target_group_size=2,
        initial_group_bits="01",
    )
    with pytest.raises(hivemind.HivemindError, match="not been started"):
        averager.wait_until_ready()
    with averager:
        averager.wait_until_ready()
        assert averager.get_group_bits() == averager.get_group_bits(wait=False).result() == "01"
        assert averager.set_group_bits("10", wait=False).result() is None
        assert averager.get_group_bits() == "10"


def test_an_optimizer_tells_how_it_is(dhts):
    from optim_support import make, network

    for local in (False, True):
        optimizer = make(dhts[0], network(), run_id=f"migrating {local}", use_local_updates=local)
        assert (
            optimizer.is_alive()
            and optimizer.use_local_updates is local
            and optimizer.use_gradient_averaging is not local
        )
        optimizer.shutdown()
        assert not optimizer.is_alive()


def test_local_epoch_is_read_from_an_optimizers_state(dhts):
    from optim_support import make, network

    optimizer = make(dhts[0], network(), run_id="migrating state")
    inner = optimizer.opt.state
    (p, *_) = optimizer.param_groups[0]["params"]
    optimizer.state[p]["mine"] = 1
    assert inner[p] == {"mine": 1} and list(optimizer.state) == list(inner) and optimizer.state.get("none") is None
    optimizer.state_averager.local_epoch = 3
    assert optimizer.state["local_epoch"] == optimizer.state.get("local_epoch") == 3
    assert "local_epoch" in optimizer.state
    optimizer.shutdown()


def test_a_future_calls_when_it_is_over(dhts, caplog):
    over, ended = threading.Event(), []

    def tell(future):
        ended.append(future)
        over.set()

    stored = dhts[0].store("migrating", 1, hivemind.get_dht_time() + 60, return_future=True)
    stored.add_done_callback(tell)
    assert over.wait(60) and ended == [stored] and stored.result(0)
    stored.add_done_callback(tell)  # it is over
    assert ended == [stored, stored]
    with caplog.at_level(logging.ERROR):
        stored.add_done_callback(lambda future: 1 / 0)
    assert "ZeroDivisionError" in caplog.text


def test_a_step_calls_when_it_is_over(dhts):
    over = threading.Event()
    with hivemind.DecentralizedAverager(
        [numpy.zeros(3, numpy.float32)], dhts[0], start=True, prefix="migrating"
    ) as averager:
        step = averager.step(wait=False, require_trigger=True, timeout=60)
        step.add_done_callback(lambda step: over.set())
        assert not step.running() and not over.is_set()
        step.allow_allreduce()
        assert step.running()
        step.cancel()
        assert over.wait(60) and not step.running()


# ---- logs ----


@pytest.fixture
def handler(monkeypatch):
    """use_hivemind_log_handler; what it did is undone."""
    loggers = logging.getLogger(), logging.getLogger("hivemind_c")
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    yield hivemind.utils.use_hivemind_log_handler
    monkeypatch.delenv("HIVEMIND_LOGLEVEL", raising=False)
    hivemind.utils.use_hivemind_log_handler("nowhere")
    for logger, level, propagate in before:
        logger.setLevel(level)
        logger.propagate = propagate


ADDRESSES = ["/ip4/127.0.0.1/tcp/1/p2p/Q", "/ip4/10.0.0.7/tcp/1/p2p/Q"]


def test_lines_are_written_where_the_program_wants_them(handler, capsys):
    mine = hivemind.utils.get_logger("my program")

    def written(where):
        handler(where)
        hivemind.utils.log_visible_maddrs(ADDRESSES)
        mine.info("mine")
        return capsys.readouterr().err

    address = "--initial_peers /ip4/10.0.0.7/tcp/1/p2p/Q\n"
    both, theirs, none = (
        written("in_root_logger"),
        written(hivemind.utils.logging.HandlerMode.IN_HIVEMIND),
        written("nowhere"),
    )
    assert both.count("\n") == 2 and address in both and "INFO my program: mine" in both
    assert theirs.count("\n") == 1 and address in theirs and "127.0.0.1" not in theirs
    assert none == ""


def test_the_level_is_the_environments(handler, capsys, monkeypatch):
    monkeypatch.setenv("HIVEMIND_LOGLEVEL", "warning")
    handler("in_hivemind")
    hivemind.utils.log_visible_maddrs(ADDRESSES)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("HIVEMIND_LOGLEVEL", "loud")
    with pytest.raises(ValueError, match="HIVEMIND_LOGLEVEL"):
        handler("in_hivemind")
    with pytest.raises(ValueError, match="in_root_logger"):
        handler("everywhere")


# ---- options ----


def test_an_unknown_option_is_answered_with_the_nearest_name(dhts):
    model = torch.nn.Linear(2, 1)
    gradients = dict(parameters=model.parameters(), dht=dhts[0], prefix="typo", start=True)
    tries = {
        ("Optimizer", "target_batchsize", "target_batch_size"): lambda: hivemind.Optimizer(
            dht=dhts[0], run_id="typo", target_batchsize=4
        ),
        ("DecentralizedAverager", "bandwith", "bandwidth"): lambda: hivemind.GradientAverager(**gradients, bandwith=1),
        ("ProgressTracker", "min_refresh", "min_refresh_period"): lambda: ProgressTracker(
            dhts[0], "typo", 4, min_refresh=1
        ),
    }
    for (where, wrong, near), call in tries.items():
        with pytest.raises(TypeError, match=f"{where}: there is no option '{wrong}'; did you mean '{near}'"):
            call()
    for kind in (hivemind.Optimizer, hivemind.DecentralizedAverager, ProgressTracker):
        assert "options" not in inspect.signature(kind).parameters and len(inspect.signature(kind).parameters) > 8


def test_several_validators_are_one(dhts):
    class Ends(RecordValidatorBase):
        def __init__(self, mark, priority):
            self.mark, self.priority = mark, priority

        def validate(self, record):
            return record.value.endswith(self.mark)

        def sign_value(self, record):
            return record.value + self.mark

        def strip_value(self, record):
            return record.value[: -len(self.mark)]

    both = CompositeValidator([Ends(b"inner", 2)])
    both.extend([Ends(b"outer", 1)])
    record = DHTRecord(b"key", None, b"value", 0.0)
    signed = dataclasses.replace(record, value=both.sign_value(record))
    assert signed.value == b"valueinnerouter" and both.validate(signed) and both.strip_value(signed) == b"value"
    assert not both.validate(record) and both.priority == 2
    with hivemind.DHT(host_maddrs=[HERE], start=True, record_validators=[both], **PATIENT) as dht:
        assert dht.store("composite", 5, hivemind.get_dht_time() + 60) and dht.get("composite", latest=True).value == 5
    with pytest.raises(TypeError, match="must be derived from"):
        CompositeValidator([object()])
