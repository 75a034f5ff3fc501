"""The record of each epoch: what is in it, that its seconds add up, and to whom it goes."""

import dataclasses
import functools
import itertools
import logging
import math
import re
import threading
import time
from pathlib import Path

import pytest
import torch

from hivemind_c import DHT, EpochRecord, Float16Compression, HivemindError, NoCompression
from hivemind_c.optim.clock_check import FIRST_S, PERIOD_S, ClockCheck
from hivemind_c.optim.epoch_clock import EpochClock
from hivemind_c.optim.epoch_ledger import EpochLedger
from hivemind_c.optim.epoch_notes import EpochNotes, norm_of
from hivemind_c.optim.epoch_record import NUMBERS, OCCUPATIONS, OUTCOMES, WHY_LENGTH, WHY_MAX, codec_of
from optim_support import Peer, backward, make, meet, network, settle, together, train_together
from support import HERE, eventually

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "epoch-record.md"
RUNS = itertools.count()
TOLERANCE_S = 1e-6  # of a sum of floats


@pytest.fixture(scope="module")
def dht():
    with DHT(host_maddrs=[HERE], start=True) as one:
        yield one


@pytest.fixture
def swarm(dhts):
    """swarm(n, ...) makes n peers of one run, each with the list of its records; all are shut down at the end."""
    made = []

    def start(n, **options):
        run = f"records {next(RUNS)}"
        for i in range(n):
            records = []
            usual = dict(run_id=run, target_batch_size=16 * n, on_epoch=records.append)
            peer = Peer(i, dhts[i], network(), **{**usual, **options})
            peer.records = records
            made.append(peer)
        return made[-n:]

    yield start
    for peer in made:
        peer.optimizer.shutdown()


def lone(dht, **options):
    return make(dht, network(), run_id=f"lone {next(RUNS)}", **options)


# ---- the schema ----


def test_page_has_one_row_for_each_field():
    table = PAGE.read_text().split("<!-- record -->")[1]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.M)
    assert [name for name, _ in rows] == [field.name for field in dataclasses.fields(EpochRecord)]
    units = dict(rows)
    assert all((units[name].strip() == "seconds") == name.endswith("_s") for name in units)
    outcomes = PAGE.read_text().split("<!-- outcomes -->")[1]
    assert re.findall(r"^\| `([\w ]+)` \|", outcomes, re.M) == list(OUTCOMES)


def test_record_cannot_be_changed(dht):
    optimizer = lone(dht)
    backward(network(), 0, 32)
    optimizer.step()
    assert set(optimizer.last_epoch.numbers()) == set(NUMBERS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        optimizer.last_epoch.samples = 3
    optimizer.shutdown()


# ---- parts ----


def test_clock_counts_each_moment_once():
    now = [100.0]
    clock = EpochClock(lambda: now[0])
    now[0] += 1
    with clock.enter("stepping"):
        now[0] += 2
        with clock.enter("waiting"):
            now[0] += 4
        now[0] += 8
        with pytest.raises(KeyError), clock.enter("loading"):
            now[0] += 16
            raise KeyError
    now[0] += 32
    clock.move(3.0, "reducing")
    clock.move(5.0, "matching")  # more than there is
    spent = clock.take()
    assert spent == dict(computing=33, waiting=0, matching=1, reducing=3, loading=16, stepping=10, wall=63)
    now[0] += 7
    assert clock.take() == dict(computing=7, waiting=0, matching=0, reducing=0, loading=0, stepping=0, wall=7)


class Round:
    """A StepControl that is over."""

    def __init__(self, begun, matching, reducing, moved=1000, part=0.5, client=False):
        self.begun = begun
        members = (("me", True, client, False, b"", 1.0), ("other", False, False, False, b"", 1.0))
        self.figures = (members, 4, 4, moved, matching, 0.5, reducing, 1, (), False, part, 7)

    def details(self, timeout):
        return self.figures


@pytest.mark.parametrize(
    "rounds, matching, reducing",
    [
        ([Round(begun=90, matching=5, reducing=2)], 0, 2),  # the group was there before it was waited for
        ([Round(begun=90, matching=13, reducing=2)], 3, 2),
        ([Round(begun=100, matching=3, reducing=90)], 3, 7),  # no more than the time that was waited
        ([Round(begun=100, matching=1, reducing=2), Round(begun=103, matching=1, reducing=3)], 2, 5),
    ],
)
def test_waiting_is_divided_by_measured_seconds(rounds, matching, reducing):
    now = [100.0]
    clock, notes = EpochClock(lambda: now[0]), EpochNotes()
    with clock.enter("waiting"):
        now[0] += 10
    notes.add_rounds(rounds, clock, called=100.0)
    spent = clock.take()
    assert (spent["matching"], spent["reducing"], spent["waiting"]) == (matching, reducing, 10 - matching - reducing)
    assert notes.bytes_sent == notes.bytes_received == 500 * len(rounds) and notes.members == 2 and notes.part == 1.0


def test_part_of_a_client_is_not_known():
    notes = EpochNotes()
    notes.add_rounds([Round(100, 0, 0, part=0.0, client=True)], EpochClock(), 0.0)
    assert notes.part is None


def test_losses_that_are_no_numbers_count_for_nothing():
    notes = EpochNotes()
    assert notes.mean_loss() is None
    for value in (1.0, torch.tensor(3.0), torch.tensor([5.0], dtype=torch.float16), torch.ones(2), "low", True, None):
        notes.add_loss(value)
    assert notes.mean_loss() == 3.0


def test_words_of_strangers_are_bounded_and_plain():
    notes = EpochNotes()
    for i in range(100):
        notes.fail(f"{i} \x1b[2J" + "x" * 1000)
    assert len(notes.why) == WHY_MAX and all(len(why) == WHY_LENGTH and why.isprintable() for why in notes.why)
    notes.lose(0, "nothing")
    assert notes.lost_samples == 0


def test_norm_is_that_of_all_values():
    tensors = [torch.randn(3, 5), torch.randn(7, dtype=torch.float64), torch.empty(0), torch.randn(4, 4).t()]
    expected = math.sqrt(sum(float(t.double().pow(2).sum()) for t in tensors))
    assert abs(norm_of(tensors) - expected) < 1e-5 * expected
    assert math.isnan(norm_of([torch.tensor([math.nan])])) and norm_of([]) == 0


def test_codec_is_named_by_its_class():
    from hivemind_c import ErrorFeedback, Linear8BitQuantization, PowerSGDGradientAverager

    assert codec_of(Float16Compression()) == "Float16Compression"
    assert codec_of(ErrorFeedback(Linear8BitQuantization())) == "ErrorFeedback(Linear8BitQuantization)"
    factory = functools.partial(PowerSGDGradientAverager, averager_rank=2)
    assert codec_of(Float16Compression(), factory) == "PowerSGDGradientAverager, Float16Compression"


# ---- one peer ----


def test_seconds_are_those_of_the_programs_own_clock(dht):
    """A clock that only the program moves: 1 s for each batch, 2 s in its hook. No other second is counted."""
    now, records = [1000.0], []

    def spend(seconds):
        now[0] += seconds

    optimizer = lone(
        dht, batch_size_per_step=16, averaged_grad_hook=lambda parameters: spend(2), on_epoch=records.append
    )
    optimizer.ledger.clock = EpochClock(lambda: now[0])
    model = network()
    for number in range(6):
        spend(1)
        backward(model, number, 16)
        optimizer.step()
    with pytest.raises(ValueError, match="batch_size must be 1 or more"):
        optimizer.step(batch_size=0)
    spend(8)
    optimizer.load_state_from_peers(timeout=0.1)  # there is none, and it takes none of this clock's time
    optimizer.step()
    optimizer.step()
    optimizer.shutdown()
    assert [(r.wall_s, r.computing_s, r.stepping_s) for r in records] == [(4, 2, 2)] * 3 + [(10, 8, 2)]
    assert all(r.waiting_s == r.matching_s == r.reducing_s == r.loading_s == 0 for r in records)


def test_seconds_add_up_to_the_wall_time(dht):
    """By the system's clock: an epoch ends within a step, so the times around steps bound what the record may say."""
    records, begun, ended = [], [], []
    before = time.monotonic()
    optimizer = lone(
        dht, batch_size_per_step=16, averaged_grad_hook=lambda parameters: time.sleep(0.03), on_epoch=records.append
    )
    begun.append(before)
    ended.append(time.monotonic())
    for number in range(6):
        time.sleep(0.02)
        backward(network(), number, 16)
        begun.append(time.monotonic())
        optimizer.step()
        ended.append(time.monotonic())
    optimizer.shutdown()
    assert [record.epoch for record in records] == [0, 1, 2]
    for i, record in zip((2, 4, 6), records):
        parts = [getattr(record, f"{name}_s") for name in OCCUPATIONS]
        assert abs(sum(parts) - record.wall_s) < TOLERANCE_S and all(part >= 0 for part in parts)
        assert begun[i] - ended[i - 2] <= record.wall_s <= ended[i] - begun[i - 2]
        assert begun[i - 1] - ended[i - 2] + begun[i] - ended[i - 1] <= record.computing_s
        assert 0.03 <= record.stepping_s <= sum(ended[k] - begun[k] for k in (i - 2, i - 1, i))
        assert record.outcome == "alone" and (record.samples, record.swarm_samples, record.peers) == (32, 32, 1)


def test_each_batch_costs_no_reading_of_the_clock(dht, monkeypatch):
    """Counted, not timed: a batch reads no clock, and an epoch makes one record and reads the gradient once."""
    optimizer = lone(dht, target_batch_size=160, batch_size_per_step=16)
    read, made, normed = [], [], []
    clock, complete = optimizer.ledger.clock, EpochLedger._complete
    monkeypatch.setattr(clock, "now", lambda: (read.append(1), time.monotonic())[1])
    monkeypatch.setattr(EpochLedger, "_complete", lambda self: (made.append(1), complete(self))[1])
    monkeypatch.setattr("hivemind_c.optim.hands.norm_of", lambda tensors: (normed.append(1), norm_of(tensors))[1])
    backward(network(), 0, 16)
    optimizer.step()  # which joins the swarm
    read.clear()
    for number in range(1, 9):
        optimizer.step()
    assert not (read or made)
    optimizer.step()
    assert len(made) == len(normed) == 1 and len(read) <= 12
    optimizer.shutdown()


def test_norm_of_clipping_is_used_as_it_is(dht, monkeypatch):
    model = network()
    optimizer = make(dht, model, run_id=f"lone {next(RUNS)}", max_grad_norm=1e-3)
    monkeypatch.setattr("hivemind_c.optim.hands.norm_of", lambda tensors: pytest.fail("it is there already"))
    backward(model, 0, 32)
    expected = float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
    optimizer.step()
    assert abs(optimizer.last_epoch.gradient_norm - expected) < 1e-5 * expected
    optimizer.shutdown()


def test_errors_of_on_epoch_reach_the_program(dht):
    seen = []

    def on_epoch(record):
        seen.append((record, threading.get_ident()))
        if record.epoch == 1:
            raise ZeroDivisionError("the program's own")

    model = network()
    optimizer = make(dht, model, run_id=f"lone {next(RUNS)}", on_epoch=on_epoch)
    backward(model, 0, 32)
    optimizer.step()
    with pytest.raises(ZeroDivisionError, match="the program's own"):
        optimizer.step()
    assert optimizer.local_epoch == 2 and optimizer.last_epoch.epoch == 1  # the step was made
    optimizer.step()
    assert [record.epoch for record, _ in seen] == [0, 1, 2]
    assert {thread for _, thread in seen} == {threading.get_ident()}
    optimizer.shutdown()
    with pytest.raises(TypeError, match="on_epoch must be a function"):
        make(dht, network(), run_id=f"lone {next(RUNS)}", on_epoch=3)


def test_epoch_is_one_line_at_info(dht, caplog):
    caplog.set_level(logging.INFO, "hivemind_c.optim")
    model = network()
    optimizer = make(dht, model, run_id=f"lone {next(RUNS)}")
    optimizer.report_loss(backward(model, 0, 32))
    optimizer.step()
    optimizer.shutdown()
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO and "alone after" in r.getMessage()]
    assert line.startswith("swarm epoch 0: alone after ") and "32 of 32 samples" in line and "loss 1.13" in line


# ---- several peers ----


def test_records_of_a_group_tell_of_one_step(swarm):
    peers = swarm(2, grad_compression=Float16Compression(), target_batch_size=512)
    train_together(peers, 3)
    for peer in peers:
        peer.optimizer.shutdown()
    for mine, others in zip(*(peer.records for peer in peers)):
        assert mine.gradient_norm == others.gradient_norm > 0 and mine.epoch == others.epoch
    for peer in peers:
        assert [record.epoch for record in peer.records] == [0, 1, 2]
        for record in peer.records:
            assert (record.outcome, record.peers, record.members, record.why) == ("averaged", 2, 2, ())
            assert record.samples == 16 * len(peer.used[record.epoch]) and record.swarm_samples >= record.samples
            assert record.codec == "Float16Compression" and record.bytes_sent == record.bytes_received > 1000
            assert record.background_s > 0  # the state is averaged there
            assert abs(sum(getattr(record, f"{name}_s") for name in OCCUPATIONS) - record.wall_s) < 1e-6


def test_wait_for_a_late_peer_is_measured(swarm):
    """One peer comes 1.5 s late to the end of its epoch; the other one waits for its group, and no longer computes."""
    peers = swarm(2, delay_state_averaging=False, target_batch_size=64)
    meet(peers)
    here = threading.Event()

    def quick():
        for _ in range(3):
            peers[0].batch()
        here.set()
        while not peers[0].records:
            peers[0].batch()

    def late():
        here.wait(60)
        time.sleep(1.5)
        while not peers[1].records:
            peers[1].batch()

    together(quick, late)
    record = peers[0].records[0]
    waited = record.waiting_s + record.matching_s + record.reducing_s
    assert waited > 0.3 and record.outcome == "averaged", str(record)


LATE = {
    "gradients": dict(offload_optimizer=True, delay_grad_averaging=True),
    "state": dict(delay_state_averaging=True),
    "local updates": dict(use_local_updates=True),
}


@pytest.mark.parametrize("options", LATE.values(), ids=LATE)
def test_record_of_background_work_comes_with_its_end(swarm, options):
    peers = swarm(2, **options)
    train_together(peers, 3)
    for peer in peers:
        settle(peer.optimizer)
        peer.optimizer.shutdown()
        assert [record.epoch for record in peer.records] == list(range(len(peer.records))) and len(peer.records) >= 3
        for record in peer.records[:3]:
            assert record.outcome == "averaged" and record.members == 2 and record.bytes_sent > 0
            assert 0 <= record.background_reducing_s <= record.background_s and record.background_s > 0
        assert (peer.records[0].gradient_norm is None) == ("use_local_updates" in options)


def test_failed_averaging_is_in_the_record(swarm, monkeypatch):
    peers = swarm(2, delay_state_averaging=False, matchmaking_time=1.0)
    meet(peers)

    def broken(*args, **options):
        time.sleep(0.1)
        raise HivemindError("nobody \x1b[2J came")

    monkeypatch.setattr(peers[0].optimizer.grad_averager, "average_loaded", broken)
    together(*(lambda peer=peer: peer.train(1) for peer in peers))
    record = peers[0].records[0]
    assert record.outcome == "failed" and record.waiting_s >= 0.1 and record.members in (0, 2)
    assert record.why[0] == "averaging gradients failed: nobody ?[2J came" and record.lost_samples == 0


def test_gradient_that_is_not_finite_is_counted_as_lost(swarm):
    peers = swarm(2, target_batch_size=64, delay_state_averaging=False)
    meet(peers)

    def poisoned():
        backward(peers[0].model, 1, 16)
        next(peers[0].model.parameters()).grad[0] = math.nan
        peers[0].optimizer.step()
        peers[0].optimizer.zero_grad()
        peers[0].train(1)

    together(poisoned, lambda: peers[1].train(1))
    record = peers[0].records[0]
    assert record.samples == 0 and record.lost_samples >= 16 and record.outcome == "averaged"
    assert record.why == (f"{record.lost_samples} samples lost: the gradient of this peer is not finite",)


def test_loading_a_state_ends_the_epoch_of_a_newcomer(swarm):
    peers = swarm(2)
    peers[0].train(3)
    peers[0].optimizer.state_averager.share_state(3)
    newcomer = peers[1]
    assert eventually(lambda: newcomer.optimizer.tracker.global_epoch >= 3)
    newcomer.batch()
    while not newcomer.records:
        peers[0].batch()
        newcomer.batch()
    record = newcomer.records[0]
    assert (record.epoch, record.outcome, record.samples) == (0, "caught up", 0) and record.loading_s > 0
    assert abs(sum(getattr(record, f"{name}_s") for name in OCCUPATIONS) - record.wall_s) < 1e-6


# ---- other peers' clocks ----


def test_clock_check_takes_the_median_of_others(dhts):
    """Three peers: one agrees, one is ahead by a minute, and one lies by a year."""
    from hivemind_c.dht import get_dht_time, news
    from hivemind_c.dht.values import unpack

    for one, ahead in zip(dhts[:3], (0.0, 60.0, 3e7)):
        said = news.News("0.1.0", "x", "trainer", get_dht_time() + ahead, 60.0, 1, 64, 1, 1.0, None, 0, 0, ())
        key, subkey = news.key_of("clocks", one.peer_id), news.subkey_of(one.peer_id)
        assert one.store(key, unpack(news.write_news(said)), get_dht_time() + 60, subkey=subkey)
    now = [0.0]
    check = ClockCheck(dhts[3], "clocks", lambda: now[0])
    check.look()
    assert check.offset is None and check._asked is None  # not yet time
    now[0] = FIRST_S
    assert eventually(lambda: check.look() or check.offset is not None)
    assert 55 < check.offset < 65
    asked = check._next
    check.look()
    assert check._asked is None and asked == FIRST_S + PERIOD_S


# ---- local steps ----

OUTER = functools.partial(torch.optim.SGD, lr=0.7, momentum=0.5, nesterov=True)


def test_record_compares_the_own_difference_with_the_average(swarm):
    """The mean of what peers share with the average is the average itself."""
    exact = dict(outer_optimizer=OUTER, grad_compression=NoCompression())
    peers = swarm(2, target_batch_size=64, use_local_updates=True, **exact)
    train_together(peers, 3)
    for first, second in zip(*(peer.records for peer in peers)):
        weights = [min(one.samples, 64) for one in (first, second)]  # the target is the most
        shared = [one.difference_norm * one.difference_cosine for one in (first, second)]
        mean = sum(map(math.prod, zip(weights, shared))) / sum(weights)
        assert mean == pytest.approx(first.gradient_norm, rel=1e-4)
        assert 0 < first.difference_cosine < 1 and first.carried_samples == first.repeated_steps == 0
        assert re.search(r"own difference [\d.]+, cosine 0\.\d\d", str(first))


def test_record_of_a_lone_peer_has_its_own_difference(swarm):
    (peer,) = swarm(1, use_local_updates=True, outer_optimizer=OUTER)
    peer.train(2)
    record = peer.optimizer.last_epoch
    assert record.difference_norm == pytest.approx(record.gradient_norm)
    assert record.difference_cosine == pytest.approx(1)
