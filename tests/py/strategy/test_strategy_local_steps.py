"""HivemindStrategy(local_steps=...): each batch steps, an outer step ends a swarm epoch, and fit leaves the anchor."""

import copy
import functools
import logging
import threading

import pytest
import torch
from trainers import BATCH, SAMPLES, data, fit, lightning, same, small, trainer

import hivemind_c
from hivemind_c import DHT, HivemindStrategy, Linear4BitQuantization
from hivemind_c.compression import Float16Compression
from hivemind_c.optim import local_steps

pytestmark = pytest.mark.filterwarnings("ignore")
HERE = "/ip4/127.0.0.1/tcp/0"
TWO = 2 * BATCH  # samples of an epoch of two batches
STEP = torch.optim.lr_scheduler.StepLR


def local(target=TWO, **options):
    return HivemindStrategy(target, host_maddrs=HERE, **{"local_steps": True, **options})


def misconfigured():
    return lightning().utilities.exceptions.MisconfigurationException


def adamw(params):
    return torch.optim.AdamW(params, lr=0.02)


class Look(lightning().Callback):
    """Notes something at each of these hooks."""

    def __init__(self, look, *hooks):
        self.seen = []
        for hook in hooks:
            setattr(self, hook, lambda trainer, module, *args: self.seen.append(look(trainer, module)))


def flat(tensors):
    return torch.cat([t.detach().flatten().clone() for t in tensors])


def epoch_and_anchor(trainer, module):
    return trainer.strategy.global_epoch, flat(trainer.strategy.optimizer.anchor)


def anchor_and_local(trainer, module):
    return flat(trainer.strategy.optimizer.anchor), flat(module.parameters())


def by_hand(module, optimizer, batches, lr=0.7, momentum=0.5, clip=0.0, per_epoch=2):
    """The parameters after each outer step of a lone peer, by operations of torch that each round once."""
    parameters = list(module.parameters())
    anchor, remembered, anchors = flat(parameters), None, []
    rate, mu = torch.tensor(lr), torch.tensor(momentum)
    for number, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module.net(x), y).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        if (number + 1) % per_epoch:
            continue
        difference = anchor - flat(parameters)
        remembered = difference.clone() if remembered is None else remembered * mu + difference
        anchor = anchor - (difference + remembered * mu) * rate
        torch.nn.utils.vector_to_parameters(anchor.clone(), parameters)
        anchors.append(anchor.clone())
    return anchors


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_lone_peer_steps_each_batch_and_the_anchor_each_epoch(clip):
    """Clipping acts on the gradient of each batch."""
    loader = data(shuffle=False)
    expected = by_hand(reference := small(), adamw(reference.parameters()), [*loader, *loader], clip=clip)
    anchors = Look(epoch_and_anchor, "on_train_batch_end")
    module, made = fit(local(), small(optimizer=adamw), loader, callbacks=[anchors], gradient_clip_val=clip)
    assert made.strategy.global_epoch == len(expected) == 2 * SAMPLES // TWO
    for epoch, anchor in anchors.seen:
        assert not epoch or torch.equal(anchor, expected[epoch - 1])
    assert torch.equal(flat(module.parameters()), expected[-1])


def test_scheduler_makes_one_step_in_each_swarm_epoch(caplog):
    caplog.set_level(logging.INFO)
    seen = Look(lambda trainer, module: trainer.strategy.optimizer.param_groups[0]["lr"], "on_train_batch_end")
    fit(local(), small(scheduler=lambda optimizer: STEP(optimizer, 1, gamma=0.5)), max_epochs=1, callbacks=[seen])
    assert seen.seen == [0.1, 0.05, 0.05, 0.025]
    assert "StepLR steps once in each swarm epoch, which is one outer step, and not" in caplog.text


def test_validation_has_the_anchor_and_changes_no_bit():
    """Validation after each batch changes no bit of a training."""
    plain, _ = fit(local(3 * BATCH), small(optimizer=adamw), data(shuffle=False), max_epochs=3)
    equal, module = [], small(optimizer=adamw)
    step = module.validation_step

    def validation_step(batch, batch_idx):
        equal.append(torch.equal(flat(module.parameters()), flat(module.trainer.strategy.optimizer.anchor)))
        return step(batch, batch_idx)

    module.validation_step = validation_step
    away = Look(lambda trainer, module: torch.equal(*anchor_and_local(trainer, module)), "on_train_batch_end")
    made = trainer(local(3 * BATCH), max_epochs=3, val_check_interval=1, callbacks=[away])
    torch.manual_seed(5)
    made.fit(module, data(shuffle=False), data(shuffle=False))
    assert len(equal) > 12 and all(equal)
    assert not all(away.seen)
    assert same(plain, module)


class Saves(lightning().Callback):
    """Writes a checkpoint after a batch of the first pass."""

    def __init__(self, path, after):
        self.path, self.after = path, after

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == self.after:
            trainer.save_checkpoint(self.path)
            self.anchor = flat(trainer.strategy.optimizer.anchor)
            self.local = flat(module.parameters())


def module_with_schedule():
    return small(optimizer=adamw, scheduler=lambda optimizer: STEP(optimizer, 2, gamma=0.7))


def test_checkpoint_has_the_anchor_and_resumes_to_the_bit(tmp_path):
    """It is written after a pass over the data, in the middle of a swarm epoch."""
    saves, target = Saves(tmp_path / "middle.ckpt", after=4), 3 * BATCH
    whole, made = fit(local(target), module_with_schedule(), data(shuffle=False), max_epochs=4, callbacks=[saves])
    saved = torch.load(saves.path, weights_only=False)
    assert torch.equal(flat(saved["state_dict"].values()), saves.anchor)
    assert not torch.equal(saves.anchor, saves.local)
    again, resumed = fit(local(target), module_with_schedule(), data(shuffle=False), max_epochs=4, ckpt_path=saves.path)
    assert resumed.strategy.global_epoch == made.strategy.global_epoch == 4 * SAMPLES // target
    assert same(whole, again)


def test_module_is_the_anchor_when_fit_has_ended():
    """The last batch is of an epoch that does not end."""
    seen = Look(anchor_and_local, "on_train_batch_end")
    module, _ = fit(local(3 * BATCH), max_epochs=1, callbacks=[seen])
    anchor, stepped = seen.seen[-1]
    assert torch.equal(flat(module.parameters()), anchor) and not torch.equal(anchor, stepped)


def test_fit_that_ends_before_an_outer_step_says_so(caplog):
    module, _ = fit(local(1000), max_epochs=1)
    assert same(module, small())
    assert "fit has ended before the swarm's next step" in caplog.text


# ---- half precision ----


def test_overflow_costs_that_batch_alone():
    """The scaler's scale falls, and no local step is made."""
    module = small()
    step = module.training_step
    module.training_step = lambda batch, batch_idx: step(batch, batch_idx) * (float("inf") if batch_idx == 1 else 1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plugin = lightning().plugins.precision.MixedPrecision("16-mixed", "cpu", scaler)
    seen = Look(
        lambda trainer, module: (
            flat(module.parameters()),
            trainer.precision_plugin.scaler.get_scale(),
            trainer.strategy.optimizer.ledger.samples.figures(),
        ),
        "on_train_batch_end",
    )
    fit(local(1000), module, plugins=[plugin], max_epochs=1, callbacks=[seen])
    parameters, scales, places = zip(*seen.seen)
    assert torch.equal(parameters[0], parameters[1]) and not torch.equal(parameters[1], parameters[2])
    assert scales == (1024.0, 512.0, 512.0, 512.0)
    assert [now["sums"] for now in places] == [16, 16, 32, 48]
    assert places[-1]["lost_by"]["OVERFLOW"] == places[-1]["lost"] == 16


def test_autocast_keeps_parameters_in_float32():
    module, made = fit(local(), precision="bf16-mixed")
    assert made.strategy.global_epoch == 4 and all(p.dtype is torch.float32 for p in module.parameters())


# ---- two peers ----


def test_two_peers_have_equal_anchors():
    """Of a trainer beside a loop of an Optimizer: the same rule, and equal anchors."""
    options = dict(run_id="local steps of two", matchmaking_time=5.0, averaging_timeout=60.0)
    tracking = dict(min_refresh_period=0.1, default_refresh_period=0.1, max_refresh_period=0.5)
    anchors, over = {}, threading.Event()
    with DHT(start=True, host_maddrs=HERE) as first, DHT(first.get_visible_maddrs(), start=True) as second:
        module = small(optimizer=adamw)
        looped = hivemind_c.Optimizer(
            dht=second, target_batch_size=8 * BATCH, batch_size_per_step=BATCH, optimizer=adamw(module.parameters()),
            local_steps=True, tracker_opts=tracking, **options,
        )  # fmt: skip
        looped.find_swarm()

        def loop():
            while not over.is_set():
                for x, y in data():
                    torch.nn.functional.cross_entropy(module.net(x), y).backward()
                    looped.step()
                    looped.zero_grad()
                    anchors[looped.local_epoch] = flat(looped.anchor)
                    over.wait(0.02)

        thread = threading.Thread(target=loop)
        thread.start()
        try:
            slow = Look(lambda trainer, module: over.wait(0.02), "on_train_batch_end")
            seen = Look(epoch_and_anchor, "on_train_batch_end")
            strategy = HivemindStrategy(8 * BATCH, dht=first, local_steps=True, tracker_opts=tracking, **options)
            fit(strategy, small(optimizer=adamw), max_epochs=20, callbacks=[slow, seen])
        finally:
            over.set()
            thread.join()
            looped.shutdown()
    common = {epoch: anchor for epoch, anchor in seen.seen if epoch in anchors}
    assert max(common) >= 3
    equal = [epoch for epoch, anchor in common.items() if torch.equal(anchor, anchors[epoch])]
    assert len(equal) >= len(common) - 1, (sorted(common), sorted(equal))  # the last may lack the other peer


# ---- the option ----


def test_rule_of_the_outer_step_is_the_options():
    def rule(option):
        outer = local_steps.outer_of(option)
        return tuple(outer.keywords[name] for name in ("lr", "momentum", "nesterov"))

    assert rule(True) == rule(50) == rule({}) == (0.7, 0.5, True)
    assert rule(dict(lr=0.3, momentum=0.9)) == (0.3, 0.9, True)
    assert rule(dict(momentum=0)) == (0.7, 0, False)
    assert rule(dict(nesterov=False, steps=25)) == (0.7, 0.5, False)
    assert local_steps.outer_of(None) is local_steps.outer_of(False) is None


def test_differences_travel_in_8_bits_or_in_the_codec_given():
    seen = Look(lambda trainer, module: trainer.strategy.optimizer.codec, "on_train_batch_end")
    fit(local(), max_epochs=1, callbacks=[seen])
    fit(local(grad_compression=Linear4BitQuantization()), max_epochs=1, callbacks=[seen])
    assert set(seen.seen[:4]) == {"Linear8BitQuantization"} and set(seen.seen[4:]) == {"Linear4BitQuantization"}


def test_outer_optimizer_under_a_trainer_is_that_of_local_steps():
    outer = functools.partial(torch.optim.SGD, lr=0.7, momentum=0.5, nesterov=True)
    one, _ = fit(local(), max_epochs=1)
    assert same(one, fit(local(local_steps=None, use_local_updates=True, outer_optimizer=outer), max_epochs=1)[0])


WRONG = {
    "a word": ("fifty", TypeError, "local_steps must be True, a number of batches, or a dict"),
    "no batch": (0, ValueError, "1 or more"),
    "a rate of 0": (dict(lr=0), ValueError, "lr must be a number, more than 0"),
    "a rate that is none": (dict(lr=float("nan")), ValueError, "lr must be a number"),
    "a momentum below 0": (dict(momentum=-1), ValueError, "momentum must be a number, 0 or more"),
    "nesterov without momentum": (dict(momentum=0, nesterov=True), ValueError, "needs a momentum"),
    "a number for nesterov": (dict(nesterov=1), TypeError, "nesterov must be True or False"),
    "an unknown name": (dict(momentun=0.5), TypeError, "did you mean 'momentum'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_local_steps_are_an_error_with_a_remedy(case):
    given, error, text = WRONG[case]
    with pytest.raises(error, match=text):
        local(local_steps=given)


def test_rounds_follow_the_line_unless_the_timeout_is_given():
    """Its default is another one than an Optimizer's."""
    seen = Look(lambda trainer, module: trainer.strategy.optimizer.averaging_is_given, "on_train_batch_end")
    for given in [{}, dict(averaging_timeout=30), dict(averaging_timeout=60.0), dict(averaging_timeout=10)]:
        fit(local(**given), max_epochs=1, callbacks=[seen])
    assert seen.seen[::4] == [False, False, True, True]


def test_local_steps_and_an_outer_optimizer_are_refused_together():
    with pytest.raises(ValueError, match="remove one of them"):
        local(outer_optimizer=torch.optim.SGD)


REFUSED = {
    "groups": (dict(averager_opts=dict(target_group_size=2)), {}, "target_group_size"),
    "PowerSGD": (dict(grad_averager_factory=hivemind_c.PowerSGDGradientAverager), {}, "grad_averager_factory"),
    "lossy states": (dict(load_state_compression=Float16Compression()), {}, "load_state_compression"),
    "delays": (dict(delay_grad_averaging=True), {}, "delay"),
    "parameters of 16 bits": ({}, dict(precision="bf16-true"), "bf16-mixed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_option_that_does_not_fit_is_refused_with_a_remedy(case):
    options, training, text = REFUSED[case]
    with pytest.raises((ValueError, misconfigured()), match=text):
        fit(local(**options), **training)


def test_plateau_is_refused_with_local_steps():
    module = small()
    type(module).configure_optimizers = lambda self: {
        "optimizer": (optimizer := torch.optim.SGD(self.parameters(), lr=0.1)),
        "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer), "monitor": "loss"},
    }
    with pytest.raises((ValueError, misconfigured()), match="ReduceLROnPlateau"):
        fit(local(), module)


def test_strategy_of_local_steps_can_be_copied_after_fit():
    _, made = fit(local(), max_epochs=1)
    again, _ = fit(copy.deepcopy(made.strategy), max_epochs=1)
    assert same(again, fit(local(), max_epochs=1)[0])


def test_learning_rate_finder_is_refused_with_local_steps(caplog):
    caplog.set_level(logging.INFO)
    with pytest.raises(misconfigured(), match="use_local_updates"):
        fit(local(), callbacks=[lightning().callbacks.LearningRateFinder()])


@pytest.mark.parametrize("overlap, percent", [(True, 50), (0.25, 25), (False, 0)])
def test_overlap_of_the_strategy_is_the_optimizers(overlap, percent):
    looks = Look(lambda trainer, module: trainer.strategy.optimizer.schedule.overlap, "on_train_end")
    fit(local(overlap=overlap), small(), callbacks=[looks])
    assert looks.seen == [percent]
