"""Lines that a program sees without setting logging up: verbose=True, HIVEMIND_LOGLEVEL; each in a process of its
own."""

import pytest

TRAIN = """
import logging
{before}
import torch
from hivemind_c import DHT, Optimizer
model = torch.nn.Linear(4, 2)
optimizer = Optimizer(dht=DHT(start=True), run_id="run", target_batch_size=8,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1), {options})
{after}
for _ in range(3):
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step(batch_size=8)
logging.getLogger("hivemind_c.optim").warning("a warning")
optimizer.shutdown()
"""
STEP = "Optimizer step: done! This peer contributed 8 samples to swarm epoch 0"


@pytest.fixture
def written(program, monkeypatch):
    """written(...) runs TRAIN; its lines on stderr."""
    monkeypatch.delenv("HIVEMIND_LOGLEVEL", raising=False)

    def run(options="", before="", after="", level=None):
        if level:
            monkeypatch.setenv("HIVEMIND_LOGLEVEL", level)
        code, out, err = program(TRAIN.format(options=options, before=before, after=after)).finish()
        assert (code, out) == (0, ""), err
        return err

    return run


def test_verbose_is_seen_on_stderr_if_no_logging_is_set_up(written):
    err = written("verbose=True")
    assert err.count(STEP) == 1 and "INFO hivemind_c.optim: " + STEP in err
    assert err.count("a warning") == 1 and "WARNING hivemind_c.optim: a warning" in err


def test_warnings_alone_are_seen_without_verbose(written):
    assert written() == "a warning\n"


@pytest.mark.parametrize("when", ["before", "after"])
def test_program_with_its_own_logging_sees_each_line_once(written, when):
    err = written("verbose=True", **{when: "logging.basicConfig(level=logging.INFO, format='MINE %(message)s')"})
    assert err.count(STEP) == 1 and "MINE " + STEP in err and "INFO hivemind_c" not in err.partition("MINE")[2]


def test_higher_level_set_beforehand_is_kept(written):
    assert (
        written("verbose=True", before="logging.basicConfig(level=logging.WARNING, format='%(message)s')")
        == "a warning\n"
    )


def test_level_of_the_environment_is_honoured(written):
    assert STEP in (debug := written(level="debug")) and "DEBUG hivemind_c." in debug
    assert written(level="ERROR") == ""
    assert "a warning" in (warnings := written("verbose=True", level="warning")) and STEP not in warnings


def test_level_that_is_none_is_refused_in_a_sentence(program, monkeypatch):
    monkeypatch.setenv("HIVEMIND_LOGLEVEL", "loud")
    code, _, err = program("import hivemind_c").finish()
    assert code == 1 and err.endswith(
        "ValueError: HIVEMIND_LOGLEVEL must be a level of logging, not 'loud': set it to DEBUG, INFO, WARNING or "
        "ERROR\n"
    )
