"""A run's figures as Prometheus reads them."""

from __future__ import annotations

from typing import Iterator, List, Mapping, Optional, Tuple

from hivemind_c.monitor.gather import Snapshot
from hivemind_c.optim.epoch_record import NUMBERS

Sample = Tuple[Mapping[str, str], Optional[float]]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _family(name: str, about: str, samples: List[Sample]) -> Iterator[str]:
    samples = [(labels, value) for labels, value in samples if value is not None]
    if samples:
        yield f"# HELP hivemind_{name} {about}"
        yield f"# TYPE hivemind_{name} gauge"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"hivemind_{name}{{{inside}}} {value!r}"


def exposition(now: Snapshot) -> str:
    run = {"run": now.run_id}

    def lines() -> Iterator[str]:
        for name, about, value in (
            ("epoch", "Steps of the swarm.", now.epoch),
            ("samples_accumulated", "Samples in this swarm epoch.", now.samples),
            ("target_batch_size", "Samples of a swarm epoch.", now.target),
            ("samples_per_second", "Speed of the swarm.", now.speed),
            ("seconds_to_next_epoch", "Estimated.", now.eta),
            ("peers", "Contributors.", now.num_peers),
            ("client_peers", "Contributors that cannot be dialled.", now.num_clients),
            ("loss", "The middle one of the peers' losses.", now.loss),
            ("look_timestamp_seconds", "When the monitor looked last.", now.time),
        ):
            yield from _family(name, about, [(run, value)])
        peers = [({**run, "peer": view.peer_id, "name": view.name}, view) for view in now.peers]
        yield from _family(
            "peer_samples", "Contributed, as the peer says.", [(labels, view.samples) for labels, view in peers]
        )
        yield from _family(
            "peer_samples_per_second", "As the peer says.", [(labels, view.speed) for labels, view in peers]
        )
        yield from _family("peer_loss", "As the peer says.", [(labels, view.loss) for labels, view in peers])
        yield from _family(
            "peer_rounds",
            "Of averaging that worked, as the peer says.",
            [(labels, view.rounds) for labels, view in peers],
        )
        yield from _family(
            "peer_rounds_failed", "As the peer says.", [(labels, view.failures) for labels, view in peers]
        )
        yield from _family(
            "peer_doubtful",
            "1: its figures cannot be right.",
            [(labels, int(bool(view.doubt))) for labels, view in peers],
        )
        for i, name in enumerate(NUMBERS):
            yield from _family(
                f"peer_last_epoch_{name}",
                "Of the peer's latest swarm epoch, as it says.",
                [(labels, view.last[i]) for labels, view in peers if view.last is not None],
            )
        yield from _family(
            "peer_trouble",
            "1: the peer says that it has this trouble.",
            [({**labels, "trouble": code}, 1) for labels, view in peers for code in view.troubles],
        )
        yield from _family(
            "peer_setup_differs",
            "1: it is set up differently from most peers, as it says.",
            [(labels, int(bool(view.differs))) for labels, view in peers],
        )

    return "\n".join(lines()) + "\n"
