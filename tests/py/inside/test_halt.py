"""Halt: ranks interrupt a validation before the same batch, or not at all."""

import random
import threading
import time

import pytest

from hivemind_c.inside.halt import Halt

STOP, BOTH = 1, 3


class Validation:
    """Ranks, as threads, that validate batches. A batch is a collective if `together`.

    Args:
        folder: The folder that they share.
        lengths: Batches of each rank.
        signals: Of each rank, the batch in which a signal comes to it, or None.
    """

    def __init__(self, folder, lengths, signals, together, pauses):
        self.begun, self.causes = [0] * len(lengths), [[] for _ in lengths]
        self._halts = [Halt(str(folder), rank, len(lengths)) for rank in range(len(lengths))]
        self._lengths, self._signals, self._together, self._pauses = lengths, signals, together, pauses
        self._met = threading.Barrier(len(lengths))
        for halt in self._halts:
            halt.start()
        threads = [threading.Thread(target=self._run, args=(rank,)) for rank in range(len(lengths))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for halt in self._halts:
            halt.close()

    def _run(self, rank):
        halt, asked = self._halts[rank], 0
        for batch in range(1, self._lengths[rank] + 1):
            if found := halt.before_batch(batch == self._lengths[rank], asked):
                self.causes[rank].append(found)
                return
            self.begun[rank] = batch
            time.sleep(self._pauses.random() * 0.004)
            if self._together:
                self._met.wait(5.0)  # breaks if a rank has stopped before
            if batch == self._signals[rank]:
                asked = STOP
        if found := halt.after_last_batch():
            self.causes[rank].append(found)


@pytest.mark.parametrize("turn", range(20))
def test_ranks_stop_before_the_same_batch(tmp_path, turn):
    pauses = random.Random(turn)
    signals = [pauses.choice([None, pauses.randint(1, 10)]) for _ in range(3)]
    ran = Validation(tmp_path, [12] * 3, signals, together=True, pauses=pauses)
    stopped = any(signals)
    assert ran.causes == [[STOP] if stopped else []] * 3
    assert len(set(ran.begun)) == 1 and (ran.begun[0] < 12) == stopped


@pytest.mark.parametrize("turn", range(20))
def test_ranks_of_uneven_validations_all_stop_or_none(tmp_path, turn):
    pauses = random.Random(turn)
    lengths = [pauses.randint(1, 12) for _ in range(3)]
    signals = [pauses.randint(1, length) for length in lengths]
    ran = Validation(tmp_path, lengths, signals, together=False, pauses=pauses)
    assert len({tuple(causes) for causes in ran.causes}) == 1, (lengths, signals, ran.causes)
    if ran.causes == [[]] * 3:
        assert ran.begun == lengths


def test_next_validation_is_not_interrupted_by_the_signal_before(tmp_path):
    halts = [Halt(str(tmp_path), rank, 2) for rank in range(2)]
    for halt in halts:
        halt.start()
    assert halts[0].before_batch(False, 0) == halts[1].before_batch(True, 0) == 0
    assert halts[0].before_batch(False, STOP) == 0, "rank 1 is through with its validation"
    for halt in halts:
        halt.start()
    assert halts[0].before_batch(False, 0) == halts[1].before_batch(False, 0) == 0
    assert halts[1].before_batch(False, BOTH) == BOTH and halts[0].before_batch(False, 0) == BOTH
    assert halts[1].before_batch(True, 0) == halts[0].before_batch(True, 0) == 0, "once"
    for halt in halts:
        halt.close()
