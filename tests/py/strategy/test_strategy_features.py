"""Lightning's features with HivemindStrategy: each works as with Lightning alone, or is refused before training with a
sentence that says what to do."""

import dataclasses
import logging

import pytest
import torch
from trainers import BATCH, NAMESPACES, SAMPLES, data, fit, lightning, same, small, trainer

from hivemind_c import HivemindStrategy
from support import HERE

pytestmark = pytest.mark.filterwarnings("ignore")
LOGGER = "hivemind_c.strategy"


def alone(target=BATCH, **options):
    return HivemindStrategy(target, host_maddrs=HERE, **options)


def misconfigured(pl=None):
    return (pl or lightning()).utilities.exceptions.MisconfigurationException


def lines(caplog, part, level=logging.INFO):
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == LOGGER and record.levelno >= level and part in record.getMessage()
    ]


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
    "equal images, targets": (
        lambda i: ([torch.rand(3, 8, 8)] * 5, [{"box": torch.rand(2, 4)}] * 5),
        5,
        "the length of batch[0],",
    ),
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
    assert (
        "has 20 samples, counted as the first dimension of batch[0], but the first dimension of batch[1] is 6" in line
    )


@pytest.mark.parametrize("made", [lambda i: "words", lambda i: torch.tensor(1.0), lambda i: ["a", "b"]])
def test_batch_without_a_dimension_is_asked_for(made):
    with pytest.raises(
        misconfigured(), match=r"how many samples are in a batch.*HivemindStrategy\(batch_size=\.\.\.\)"
    ):
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


# ---- what ends, or is counted, without a step ----


def test_fit_without_a_step_says_so(caplog):
    fit(alone(1_000), max_epochs=1)
    (line,) = lines(caplog, "before the swarm's next step", logging.WARNING)
    assert "gathered 64 samples" in line and "target_batch_size is 1000" in line
    caplog.clear()
    fit(alone(SAMPLES), max_epochs=1)
    fit(alone(1_000, use_local_updates=True), max_epochs=1)
    assert not lines(caplog, "before the swarm's next step")


def module_that(**methods):
    """A small module with methods of its own."""
    made = small()
    made.__class__ = type("Own", (type(made),), methods)
    return made


def one_cycle(seen):
    def configure_optimizers(self):
        seen.append(self.trainer.estimated_stepping_batches)
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=seen[-1])
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    return module_that(configure_optimizers=configure_optimizers)


@pytest.mark.parametrize("name", NAMESPACES)
def test_estimated_steps_are_global_steps(name, caplog):
    pl, seen = lightning(name), []
    made = small(pl)
    made.__class__ = type(
        "Own",
        (type(made),),
        {
            "configure_optimizers": lambda self: (
                seen.append(self.trainer.estimated_stepping_batches) or torch.optim.SGD(self.parameters(), lr=0.1)
            )
        },
    )
    _, used = fit(alone(2 * BATCH), made, pl=pl, max_epochs=3)
    assert seen == [6] and used.strategy.global_epoch == 6 and used.estimated_stepping_batches == 12
    (line,) = lines(caplog, "estimated_stepping_batches")
    assert "6 global steps" in line


def test_one_cycle_ends_where_it_was_meant_to():
    seen = []
    module, plain = one_cycle(seen), one_cycle(seen)
    fit(alone(2 * BATCH), module, loader=data(shuffle=False), max_epochs=3)
    rate = module.lr_schedulers().get_last_lr()
    fit(module=plain, loader=data(shuffle=False), max_epochs=3, accumulate_grad_batches=2)
    assert seen == [6, 6] and rate == plain.lr_schedulers().get_last_lr()


def test_one_cycle_that_has_ended_keeps_its_rate(caplog):
    module = small(
        scheduler=lambda o: {
            "scheduler": torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=3),
            "interval": "step",
        }
    )
    _, made = fit(alone(), module)
    assert made.strategy.global_epoch == 8 and len(lines(caplog, "OneCycleLR has ended", logging.WARNING)) == 1


# ---- schedulers ----


def test_scheduler_that_counts_epochs_is_told_which(caplog):
    fit(alone(), small(scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 3)), max_epochs=1)
    (line,) = lines(caplog, "once in each swarm epoch")
    assert line.startswith("StepLR steps") and "'interval': 'step'" in line
    caplog.clear()
    fit(
        alone(),
        small(scheduler=lambda o: {"scheduler": torch.optim.lr_scheduler.StepLR(o, 3), "interval": "step"}),
        max_epochs=1,
    )
    assert not lines(caplog, "once in each swarm epoch")


def test_lr_schedulers_returns_the_users_own():
    module = small(scheduler=lambda o: {"scheduler": torch.optim.lr_scheduler.StepLR(o, 3, 0.5), "interval": "step"})
    seen = []
    module.on_train_batch_end = lambda *args: seen.append(module.lr_schedulers())
    fit(alone(), module, max_epochs=1)
    assert all(type(one) is torch.optim.lr_scheduler.StepLR for one in seen) and seen[0].last_epoch == 4


def test_override_of_lr_scheduler_step_is_called():
    def module():
        made, calls = (
            small(scheduler=lambda o: {"scheduler": torch.optim.lr_scheduler.StepLR(o, 1, 0.5), "interval": "step"}),
            [],
        )

        def lr_scheduler_step(self, scheduler, metric):
            calls.append(metric)
            scheduler.step(epoch=len(calls))

        made.__class__ = type("Own", (type(made),), {"lr_scheduler_step": lr_scheduler_step})
        return made, calls

    (plain, before), (hive, calls) = module(), module()
    assert same(fit(module=plain)[0], fit(alone(), hive)[0]) and calls == before == [None] * 8


class OfNobody:
    """A scheduler that is no subclass of torch's."""

    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    def step(self):
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] *= 0.5

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def test_scheduler_of_no_class_of_torch_works():
    def module():
        made = small(scheduler=lambda o: {"scheduler": OfNobody(o), "interval": "step"})
        made.__class__ = type(
            "Own", (type(made),), {"lr_scheduler_step": lambda self, scheduler, metric: scheduler.step()}
        )
        return made

    hive = module()
    assert same(fit(module=module())[0], fit(alone(), hive)[0]) and hive.lr_schedulers().steps == 8


def test_plateau_takes_its_metric_when_it_comes(caplog):
    def plateau(optimizer):
        made = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, factor=0.5, patience=0, threshold=1e9, threshold_mode="abs"
        )
        return {"scheduler": made, "monitor": "val_loss"}

    module = small(scheduler=plateau)
    module.val_dataloader = data
    module.train_dataloader = data
    made = trainer(alone(), max_epochs=4)
    made.fit(module)
    rate = made.optimizers[0].param_groups[0]["lr"]
    assert rate == 0.1 * 0.5**2 and not [r for r in caplog.records if "no metric" in r.getMessage()][1:]
