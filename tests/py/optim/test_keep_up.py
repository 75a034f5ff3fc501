"""The true cause is told: how far a load is, why a peer does not keep up, the least target for the line."""

import logging
import re
import time

import pytest
import torch

from epochs import epoch
from hivemind_c.averaging.state import StateSharing
from hivemind_c.optim.keep_up import Figures, two_digits, why
from hivemind_c.optim.load_progress import LoadProgress
from hivemind_c.optim.target_check import TargetCheck

SLOW_LINE = Figures(
    loads=3,
    load_s=60.0,
    load_bytes=150_000_000,
    average_bytes=0,
    epoch_s=6.0,
    batch_s=0.25,
    target=96,
    is_compressed=False,
)
CAUSES = {
    "line": (
        SLOW_LINE,
        "a download takes 60 s at 20 Mbit/s, and a swarm epoch 6 s; give target_batch_size=2000 or more at all peers, "
        "or load_state_compression=hivemind_c.Float16Compression() at all peers",
    ),
    "line, compressed": (SLOW_LINE._replace(is_compressed=True), "or more at all peers, or a faster line"),
    "line, log": (
        SLOW_LINE._replace(average_bytes=12_500_000),  # 5 s: each second swarm epoch is missed for ever
        "a download takes 60 s at 20 Mbit/s, the average of a swarm epoch 5 s, and a swarm epoch 6 s; give "
        "target_batch_size=160 or more at all peers, or a grad_compression of fewer bits at all peers",
    ),
    "line, long log": (
        SLOW_LINE._replace(average_bytes=2_500_000, epoch_s=2.5),  # 1 s, but 40 steps
        "give target_batch_size=120 or more at all peers, or load_state_compression=",
    ),
    "log holds": (SLOW_LINE._replace(average_bytes=6_250_000), "run hivemind-doctor"),  # 2.5 s
    "line, short epochs": (
        SLOW_LINE._replace(load_s=0.8, average_bytes=12_500_000, epoch_s=0.5),
        "and a swarm epoch 0.5 s; give target_batch_size=200 or more at all peers",
    ),
    "line, unknown bytes": (SLOW_LINE._replace(load_bytes=0), "a download takes 60 s, and a swarm epoch 6 s"),
    "machine": (
        SLOW_LINE._replace(load_s=1.0, batch_s=9.0),
        "a batch takes 9 s on this machine, and a swarm epoch 6 s, so it is slower than the swarm",
    ),
    "neither": (SLOW_LINE._replace(load_s=1.0), "run hivemind-doctor"),
    "nothing known": (SLOW_LINE._replace(epoch_s=0.0, batch_s=0.0), "run hivemind-doctor"),
}


@pytest.mark.parametrize("case", CAUSES)
def test_peer_that_does_not_keep_up_hears_why(case):
    now, words = CAUSES[case]
    text = why(now)
    assert words in text, text
    assert ("slower than the swarm" in text) == (case == "machine")
    if "target_batch_size=" in text and case != "machine":  # the proposal holds what it says
        target = int(re.search(r"target_batch_size=(\d+)", text)[1])
        longer = now._replace(target=target, epoch_s=now.epoch_s * target / now.target)
        assert "a download takes" not in why(longer)


def test_numbers_are_rounded_up_to_two_digits():
    rounded = [two_digits(value) for value in (0, 0.4, 1, 9.2, 99, 100.5, 1201, 98_765)]
    assert rounded == [0, 1, 1, 10, 99, 110, 1300, 99_000]


LINE = dict(reducing_s=3.0, bytes_sent=37_000_000, bytes_received=37_000_000, wall_s=9.0)


def test_least_target_is_told_after_one_epoch():
    check = TargetCheck(96)
    assert check.look(epoch(0, outcome="alone", members=0, reducing_s=0.0), 16.0) is None
    is_small, text = check.look(epoch(1, **LINE), 16.0)
    assert is_small and "averages of 37 MB took 3 s" in text and "target_batch_size=480 or more at all peers" in text
    assert check.look(epoch(2, **LINE), 16.0) is None  # once


def test_delayed_averages_may_take_the_whole_epoch():
    beside = dict(LINE, reducing_s=0.0, background_reducing_s=3.0)
    is_small, text = TargetCheck(96).look(epoch(1, **beside), 16.0)
    assert not is_small and "target_batch_size may be 48 or more" in text


def test_load_is_followed_with_its_rate_and_rest(caplog):
    now, shown = [0.0], []
    progress = LoadProgress(lambda: now[0])
    progress.show = lambda: shown.append(progress.now)
    with caplog.at_level(logging.INFO, "hivemind_c.optim"):
        progress.look(7, 0, 0, 0)  # no size yet
        for second in range(31):
            now[0] = second
            progress.look(7, second * 2_500_000, 150_000_000, 3)
    assert str(progress.now) == "50% at 20 Mbit/s, 30 s left" and shown[-1] == progress.now
    assert len(caplog.messages) == 3  # each ten seconds
    assert caplog.messages[0].startswith("loading the state of swarm epoch 7, 150 MB from 3 peers: ")
    for second in range(31, 90):
        now[0] = second
        progress.look(7, 75_000_000, 150_000_000, 0)
    assert str(progress.now) == "50% at 0 Mbit/s, nothing comes" and progress.said()[2] < 1e10
    progress.look(8, 0, 150_000_000, 1)  # another state
    assert progress.now.rate == 0
    progress.end()
    assert progress.now is None and progress.said() == () and shown[-1] is None


def test_download_over_a_slow_line_is_watched(node):
    donor = node(upload_mbit=16)
    joiner = node(initial_peers=donor.addresses)
    for one in (donor, joiner):
        one.wait_for_peers(1, timeout=60)
    StateSharing(donor, "run").offer(3, [torch.zeros(2 << 20)])
    seen, progress = [], LoadProgress(time.monotonic)

    def watch(*figures):
        progress.look(*figures)
        seen.append(figures)

    begun = time.monotonic()
    assert StateSharing(joiner, "run").load(60, watch=watch).epoch == 3
    assert time.monotonic() - begun > 3.5
    assert len(seen) >= 3 and all(size == 8 << 20 for _, _, size, _ in seen[1:])
    assert 0.7 * 16 < 8e-6 * progress.now.rate < 1.3 * 16
