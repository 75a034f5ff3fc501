"""A round that fails in its midst leaves averages in place, and says so."""

import time

import torch

from hivemind_c import DHT, DecentralizedAverager


def test_failed_step_says_that_chunks_were_averaged():
    """Cancelled in the midst of its round, and before it has one."""
    dhts = [DHT(start=True)]
    dhts.append(DHT(dhts[0].get_visible_maddrs(), start=True))
    ones = [torch.empty(8_000_000) for _ in dhts]
    a, b = (
        DecentralizedAverager([own], dht, prefix="part", start=True, part_size_bytes=4096)
        for dht, own in zip(dhts, ones)
    )

    def cancelled():
        for i, own in enumerate(ones):
            own.fill_(3 * i)
        controls = [one.step(wait=False, timeout=60, expected=2) for one in (a, b)]
        while (ones[0][::4096] == 0).all() and not controls[0].done():
            time.sleep(0.001)
        ended = controls[0].cancel()
        controls[1].exception(70)
        written = bool((ones[0] != 0).any())
        assert a.is_averaged_in_part == (ended and written) and set(ones[0].unique().tolist()) <= {0, 1.5}
        return ended and written and not (ones[0] == 1.5).all()

    try:
        assert a.step(wait=False, timeout=60).cancel() and not a.is_averaged_in_part
        assert any(cancelled() for _ in range(10))
    finally:
        for one in (a, b, *dhts):
            one.shutdown()
