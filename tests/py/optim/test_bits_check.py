"""The advice about the codec of local steps: tables of epochs."""

import pytest
import torch

import hivemind_c
from epochs import epoch
from hivemind_c.optim.bits_check import BITS, PROPOSED, BitsCheck

EIGHT, FOUR = PROPOSED


def said(n=2, **changed):
    check = BitsCheck()
    return [
        check.look(epoch(i, **{"outcome": "averaged", "members": 2, "stepping_s": 0.0, **changed})) for i in range(n)
    ]


SAID = {
    "8 bits fit": (dict(codec=EIGHT, computing_s=60.0, reducing_s=5.0), None),
    "8 bits do not": (
        dict(codec=EIGHT, computing_s=60.0, reducing_s=12.0),
        "computes 0.83 of the time; give all peers grad_compression=hivemind_c.Linear4BitQuantization(), for about 6.2",
    ),
    "4 bits do not": (
        dict(codec=FOUR, computing_s=60.0, reducing_s=12.0),
        "0.83 of the time; give all peers a larger target_batch_size",
    ),
    "8 are enough in place of 32": (
        dict(codec="NoCompression", computing_s=60.0, reducing_s=20.0),
        "grad_compression=hivemind_c.Linear8BitQuantization(), for about 5.2",
    ),
    "8 are not enough in place of 32": (
        dict(codec="NoCompression", computing_s=60.0, reducing_s=40.0),
        "grad_compression=hivemind_c.Linear4BitQuantization(), for about 5.3",
    ),
    "a codec of the program's own": (dict(codec="PerTensorCompression", computing_s=1.0, reducing_s=9.0), None),
    "alone": (dict(codec=EIGHT, computing_s=1.0, reducing_s=9.0, outcome="alone", members=0), None),
}


@pytest.mark.parametrize("case", SAID)
def test_line_that_does_not_carry_the_codec_is_said_once(case):
    changed, words = SAID[case]
    first, second, *rest = said(5, **changed)
    assert first is None and not any(rest)
    assert second is None if words is None else words in second, second


def test_proposed_codecs_have_the_bits_of_the_table():
    for name in PROPOSED:
        size = len(getattr(hivemind_c, name)().compress(torch.randn(65536)).buffer)
        assert size * 8 / 65536 == pytest.approx(BITS[name], rel=0.02)
