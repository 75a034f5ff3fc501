"""Whether an Optimizer's options fit together; what does not is told with what to write instead."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Sequence

import torch
from _hivemind_c import HivemindError
from torch.optim.lr_scheduler import ReduceLROnPlateau

from hivemind_c._signature import unknown_option
from hivemind_c.compression import CompressionBase, NoCompression
from hivemind_c.compression.codecs import fitting
from hivemind_c.optim.names import run_name  # noqa: F401  of Optimizer
from hivemind_c.optim.ways import OVERLAP


def positive_int(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        try:
            as_int = int(value)
        except (TypeError, ValueError):
            as_int = None
        if isinstance(value, (bool, str)) or as_int is None or as_int != value:
            raise TypeError(f"{name} must be a number of samples, not {value!r}")
        value = as_int
    if value < 1:
        raise ValueError(f"{name} must be 1 or more, not {value}")
    return value


def step_size(value: Any) -> Optional[int]:
    return None if value is None else positive_int(value, "batch_size_per_step")


def limited(dht: Any, upload_mbit: Optional[float]) -> Any:
    """The DHT, whose node sends no more than that in bulk. None: as much as before."""
    if upload_mbit is not None:
        dht.limit_upload(upload_mbit)
    return dht


class ByDefault(float):
    """The default of an option."""


class Given(float):
    """The number with which a program gives an option."""


def as_given(value: Any, taker: Callable[..., Any], name: str) -> Any:
    """Returns a number as Given or ByDefault: that of the option of this name, unless another taker has said it.

    Args:
        value: The value.
        taker: The function that has it.
        name: The option.
    """
    if isinstance(value, (Given, ByDefault, bool)) or not isinstance(value, (int, float)):
        return value
    return (ByDefault if value == inspect.signature(taker).parameters[name].default else Given)(value)


def seconds(value: Any, name: str, default: Optional[float] = None) -> float:
    """value, or for None the default if there is one."""
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    if not value > 0:  # NaN is not
        raise ValueError(f"{name} must be more than 0 seconds, not {value!r}")
    return float(value)


def on_epoch(value: Any) -> Any:
    if value is not None and not callable(value):
        raise TypeError(f"on_epoch must be a function of an EpochRecord, not {value!r}")
    return value


def choice(value: Any, name: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    return str(value)


def check_times(averaging_timeout: float, matchmaking_time: float) -> None:
    """Raises ValueError if nothing is left of an averaging's time after its group was looked for."""
    if averaging_timeout <= matchmaking_time:
        raise ValueError(
            f"averaging_timeout={averaging_timeout:g} leaves no time for averaging after "
            f"matchmaking_time={matchmaking_time:g}: make averaging_timeout larger"
        )


def norm(max_grad_norm: Optional[float]) -> Optional[float]:
    """Returns the norm. Raises ValueError if it is not more than 0."""
    if max_grad_norm is not None and not max_grad_norm > 0:
        raise ValueError(f"max_grad_norm must be more than 0, not {max_grad_norm!r}")
    return max_grad_norm


def compression(value: Any, name: str) -> CompressionBase:
    if isinstance(value, type) and issubclass(value, CompressionBase):
        raise TypeError(f"{name} must be an instance: write {value.__name__}()")
    if not isinstance(value, CompressionBase):
        raise TypeError(f"{name} must be a compression, like hivemind_c.Float16Compression(), not {value!r}")
    return value


def grad_compression(value: Any, schedule: Any) -> CompressionBase:
    """Returns the option, or its default: none for gradients, and one that fits the line for differences."""
    if value is None:
        return fitting() if schedule.outer else NoCompression()
    return compression(value, "grad_compression")


def known_options(
    given: Optional[Dict[str, Any]],
    name: str,
    takers: Iterable[Callable[..., Any]],
    own: Iterable[str],
    also: Iterable[str] = (),
) -> Dict[str, Any]:
    """given as a dict of its own. TypeError: it has an option that no taker knows and that is not in also; ValueError:
    one that the Optimizer sets itself (own).
    """
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise TypeError(f"{name} must be a dict of options, not {given!r}")
    known = {
        option
        for taker in takers
        for option, p in inspect.signature(taker).parameters.items()
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    }
    known = known - {"self", *own} | set(also)
    for option in given:
        if option in own:
            raise ValueError(f"{name}: {option!r} is set by the Optimizer's own options; give it there")
        if option not in known:
            raise unknown_option(name, str(option), known)
    return dict(given)


def check_peer(client_mode: Optional[bool], auxiliary: bool, dht: Any) -> bool:
    """Whether this peer is in client mode."""
    dht_client = bool(dht.client_mode)
    if client_mode is None:
        client_mode = dht_client
    if client_mode and auxiliary:
        raise ValueError(
            "an auxiliary peer cannot be in client mode: others must reach it to send their data; remove auxiliary or "
            "client_mode"
        )
    if bool(client_mode) != dht_client:
        raise ValueError(
            f"client_mode={client_mode} differs from the DHT's client_mode={dht_client}: remove client_mode here, and "
            "give it to the DHT"
        )
    return bool(client_mode)


def offloads(given: Optional[bool], optimizer: Any, params: Any, steps_at_once: Any) -> bool:
    """The option offload_optimizer. None: if the optimizer is made here, and no batch waits for its step."""
    if given is not None:
        return bool(given)
    return params is not None and not isinstance(optimizer, torch.optim.Optimizer) and not steps_at_once


@contextlib.contextmanager
def one_of_a_run(run_id: str) -> Iterator[None]:
    try:
        yield
    except HivemindError as error:
        if error.status != "EXISTS":
            raise
        raise ValueError(
            f"no second optimizer can be made for {run_id!r} on this DHT: the first one is still running; call "
            "shutdown() on the first one, or give the second one "
            "a DHT of its own (another peer of the same run) or another run_id (another model)"
        ) from error


def check_gradients(
    schedule: Any, reuse_grad_buffers: bool, grad_averager_factory: Any, batch_size_per_step: Optional[int]
) -> None:
    if schedule.use_local_updates and reuse_grad_buffers:
        raise ValueError(
            "reuse_grad_buffers cannot be combined with use_local_updates: no gradients are added up then; remove "
            "reuse_grad_buffers"
        )
    if schedule.use_local_updates and grad_averager_factory is not None:
        raise ValueError(
            "grad_averager_factory cannot be combined with use_local_updates: no gradients are averaged then; remove "
            "grad_averager_factory"
        )
    if grad_averager_factory is not None and not callable(grad_averager_factory):
        raise TypeError(
            "grad_averager_factory must be a function that makes a GradientAverager, like "
            "functools.partial(PowerSGDGradientAverager, averager_rank=32), "
            f"not {grad_averager_factory!r}"
        )
    if schedule.auxiliary and batch_size_per_step is not None:
        raise ValueError(
            "an auxiliary peer has no batch size: it trains nothing; remove batch_size_per_step or auxiliary"
        )


def check_outer(schedule: Any, averager_options: Dict[str, Any], **given: Any) -> None:
    """Raises an error if an outer optimizer cannot be combined with the other options.

    Args:
        schedule: The Schedule.
        averager_options: Options of both averagers.
        **given: Further options of the state averager.
    """
    outer = given["outer_optimizer"]
    if isinstance(outer, torch.optim.Optimizer) or not callable(outer):
        raise TypeError(
            "outer_optimizer must be a function that makes an optimizer of the anchor, like "
            f"functools.partial(torch.optim.SGD, lr=0.7, momentum=0.5, nesterov=True), not {outer!r}"
        )
    useless = {
        "average_state_every": schedule.average_state_every != 1,
        "average_opt_statistics": len(given["average_opt_statistics"]) > 0,
        "extra_tensors": len(list(given["extra_tensors"])) > 0,
        "state_averaging_compression": type(given["compression"]) is not NoCompression,
    }
    for name in (name for name, is_given in useless.items() if is_given):
        raise ValueError(
            f"{name} cannot be combined with outer_optimizer: anchors are equal at all peers, so no state is averaged; "
            f"remove {name}"
        )
    if type(given["state_compression"]) is not NoCompression:
        raise ValueError(
            "load_state_compression cannot be combined with outer_optimizer, because anchors are equal to the bit: "
            "remove it; grad_compression is that of the differences"
        )
    if averager_options.get("target_group_size"):
        raise ValueError(
            "target_group_size cannot be combined with outer_optimizer: each group would make an anchor of its own; "
            "remove it from averager_opts"
        )


def check_scheduler(schedule: Any, scheduler: Any) -> None:
    if schedule.use_local_updates and isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError(
            "ReduceLROnPlateau would follow each peer's own metric with use_local_updates, because metrics are "
            "averaged with the gradients, and there none are: "
            "remove use_local_updates, or use a scheduler that needs no metric"
        )


def overlap(value: Any) -> int:
    """Returns the percentage of an epoch in which batches may go on while its difference travels.

    Args:
        value: The option: True, False, or a part from 0 to 1.
    """
    if not isinstance(value, (bool, int, float)):
        raise TypeError(f"overlap must be True, False or a part of a swarm epoch, not {value!r}")
    part = OVERLAP if value is True else float(value)
    if not 0 <= part <= 1:
        raise ValueError(f"overlap must be a part of a swarm epoch, from 0 to 1, not {value!r}; True is half of it")
    return max(1, round(100 * part)) if part else 0
