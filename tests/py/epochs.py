"""Records of epochs for tests: one without trouble, and the same with changes."""

from hivemind_c.optim.epoch_record import NUMBERS, EpochRecord

FINE = EpochRecord(
    **{**dict.fromkeys(NUMBERS, 0), "outcome": "averaged", "why": (), "codec": "NoCompression"}
    | dict(peers=4, members=4, samples=64, swarm_samples=256, wall_s=30.0, computing_s=25.0, reducing_s=5.0, part=1.0)
    | dict(loss=0.5, gradient_norm=1.0, clock_s=0.1)
)


def epoch(number, **changed):
    return EpochRecord(**{**vars(FINE), "epoch": number, **changed})
