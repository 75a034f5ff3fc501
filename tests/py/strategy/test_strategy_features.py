"""Lightning's features with HivemindStrategy: each works as with Lightning alone, or is refused before training with a sentence that says what to do."""

import dataclasses
import logging

import pytest
import torch
from trainers import BATCH, NAMESPACES, SAMPLES, data, fit, lightning, same, small

from hivemind_c import HivemindStrategy
from support import HERE

pytestmark = pytest.mark.filterwarnings("ignore")
LOGGER = "hivemind_c.strategy"


def alone(target=BATCH, **options):
    return HivemindStrategy(target, host_maddrs=HERE, **options)


def misconfigured(pl=None):
    return (pl or lightning()).utilities.exceptions.MisconfigurationException


def lines(caplog, part, level=logging.INFO):
    return [record.getMessage() for record in caplog.records if record.name == LOGGER and record.levelno >= level and part in record.getMessage()]


@pytest.fixture(autouse=True)
def all_lines(caplog):
    caplog.set_level(logging.INFO, LOGGER)


# ---- how many samples a batch has ----


def batches(made, number=4):
    """Batches that the data loader gives as they are."""
    return torch.utils.data.DataLoader([made(i) for i in range(number)], batch_size=None)


class Counted(lightning().Callback):
    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, *args):
        self.seen.append(trainer.strategy.global_progress.samples_accumulated)


def counted(loader, **options):
    """The samples of the first batch, as the swarm sees them, with a module that does not look at its data."""
    module, count = small(), Counted()
    module.training_step = lambda batch, batch_idx: module.net(torch.ones(1, 8)).sum()
    fit(alone(10_000, **options), module, loader, max_epochs=1, callbacks=[count])
    return count.seen


@dataclasses.dataclass
class Batch:
    name: str
    x: torch.Tensor


IMAGES = [torch.rand(3, 8 + i, 9) for i in range(5)]
PACKED = torch.nn.utils.rnn.pack_sequence([torch.rand(n, 2) for n in (7, 4, 2)])
CASES = {
    "a tensor": (lambda i: torch.rand(6, 8), 6, "the first dimension of batch;"),
    "a scalar first": (lambda i: [torch.tensor(1.0), torch.rand(6, 8)], 6, "the first dimension of batch[1];"),
    "a dict": (lambda i: {"step": torch.tensor(3), "x": torch.rand(6, 8)}, 6, "the first dimension of batch['x'];"),
    "a dataclass": (lambda i: Batch("name", torch.rand(6, 8)), 6, "the first dimension of batch.x;"),
    "unequal images": (lambda i: list(IMAGES), 5, "the length of batch;"),
    "unequal images, labels": (lambda i: (list(IMAGES), torch.arange(5)), 5, "the length of batch[0];"),
    "equal images, targets": (lambda i: ([torch.rand(3, 8, 8)] * 5, [{"box": torch.rand(2, 4)}] * 5), 5, "the length of batch[0],"),
    "a packed sequence": (lambda i: PACKED, 3, "the batch size of batch;"),
    "a packed sequence, labels": (lambda i: [PACKED, torch.arange(3)], 3, "the batch size of batch[0];"),
}


@pytest.mark.parametrize("name", CASES)
def test_batch_is_counted_and_its_element_named(name, caplog):
    made, samples, where = CASES[name]
    assert counted(batches(made)) == [samples, 2 * samples, 3 * samples, 4 * samples]
    (line,) = lines(caplog, "the first batch has")
    assert f"has {samples} samples, counted as {where}" in line and "HivemindStrategy(batch_size=...)" in line


def test_element_counted_first_is_counted_in_all_batches():
    short = [list(IMAGES), list(IMAGES), IMAGES[:1], [IMAGES[0], IMAGES[0]]]  # images of one size are images, too
    assert counted(batches(lambda i: short[i])) == [5, 10, 11, 13]


def test_doubtful_count_is_a_warning_with_both_numbers(caplog):
    counted(batches(lambda i: [torch.rand(20, 6, 2), torch.arange(6)]))
    (line,) = lines(caplog, "the first batch has", logging.WARNING)
    assert "has 20 samples, counted as the first dimension of batch[0], but the first dimension of batch[1] is 6" in line


@pytest.mark.parametrize("made", [lambda i: "words", lambda i: torch.tensor(1.0), lambda i: ["a", "b"]])
def test_batch_without_a_dimension_is_asked_for(made):
    with pytest.raises(misconfigured(), match=r"how many samples are in a batch.*HivemindStrategy\(batch_size=\.\.\.\)"):
        counted(batches(made))


@pytest.mark.parametrize("options", [dict(), dict(batch_size=BATCH)], ids=["counted", "given"])
def test_dataloader_iter_loses_no_batch(options):
    def module(taken):
        made = small()

        class FromIterator(type(made)):
            def training_step(self, dataloader_iter):
                batch, batch_idx, _ = next(dataloader_iter)
                taken.append(batch_idx)
                return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        made.__class__ = FromIterator
        return made

    seen = [], []
    plain, _ = fit(module=module(seen[0]))
    hive, made = fit(alone(**options), module(seen[1]))
    assert same(plain, hive) and seen[0] == seen[1] and made.strategy.global_epoch == 2 * SAMPLES // BATCH
