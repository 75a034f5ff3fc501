"""The parts of an Optimizer: its averagers and its tracker, from its options."""

from __future__ import annotations

import logging
import math
from typing import Any, Callable, Dict, Optional

from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.averaging.averager import made_apart
from hivemind_c.compression import CompressionBase
from hivemind_c.optim import options
from hivemind_c.optim.anchor import OuterFactory
from hivemind_c.optim.anchored_state import AnchoredStateAverager
from hivemind_c.optim.difference_averager import DifferenceAverager
from hivemind_c.optim.epoch_record import codec_of
from hivemind_c.optim.grad_averager import GradientAverager, GradientAveragerFactory
from hivemind_c.optim.parameters import flat_views
from hivemind_c.optim.progress_tracker import ProgressTracker
from hivemind_c.optim.run_peer import RunPeer
from hivemind_c.optim.state_averager import TrainingStateAverager
from hivemind_c.optim.state_gift import StateGift

logger = logging.getLogger("hivemind_c.optim")
_SET_HERE = (
    "averaged_tensors dht start prefix compression state_compression tensor_infos auxiliary client_mode "
    "min_matchmaking_time allreduce_timeout weight_max "
    "next_chunk_timeout shutdown_timeout"
).split()
#: of TrainingStateAverager alone
_OF_STATE = "reuse_tensors sync_epoch_when_averaging status_loglevel initialize_optimizer parameter_names".split()
STATE_WEIGHT = 1.0  #: of each peer's parameters in their average, where no buffers are averaged with them
LEAST_STALL = 5.0  #: seconds: a shorter silence says nothing about a member
LOSSY = (
    "state_averaging_compression=%s rounds the parameters in each averaging, and use_local_updates averages nothing "
    "else: training may end worse; remove state_averaging_compression unless you have compared the losses"
)
_TRACKER_SET_HERE = "dht prefix target_batch_size client_mode matchmaking_time start".split()


def averager_options(
    o: RunPeer,
    given: Optional[Dict[str, Any]],
    allreduce_timeout: Optional[float],
    next_chunk_timeout: Optional[float],
) -> Dict[str, Any]:
    """For both averagers."""
    known = options.known_options(given, "averager_opts", [DecentralizedAverager.__init__], _SET_HERE, also=_OF_STATE)
    allreduce = None if allreduce_timeout is None else options.seconds(allreduce_timeout, "allreduce_timeout")
    stall = None if next_chunk_timeout is None else options.seconds(next_chunk_timeout, "next_chunk_timeout")
    if stall is None and not {"sender_timeout", "reducer_timeout"} & known.keys():
        stall = min(max(o.matchmaking_time, LEAST_STALL), allreduce or math.inf)
    return dict(
        dht=o.dht,
        client_mode=o.client_mode,
        auxiliary=o.auxiliary,
        min_matchmaking_time=o.matchmaking_time,
        allreduce_timeout=allreduce,
        next_chunk_timeout=stall,
        shutdown_timeout=o.shutdown_timeout,
        **known,
    )


def tracker_options(given: Optional[Dict[str, Any]], performance_ema_alpha: float) -> Dict[str, Any]:
    known = options.known_options(given, "tracker_opts", [ProgressTracker.__init__], _TRACKER_SET_HERE)
    return {"performance_ema_alpha": performance_ema_alpha, **known}


def build(
    o: RunPeer,
    common: Dict[str, Any],
    state: Dict[str, Any],
    compression: CompressionBase,
    factory: Optional[GradientAveragerFactory],
    tracking: Dict[str, Any],
) -> None:
    """All or nothing: what fails leaves no averager behind."""
    if state["outer_optimizer"] is not None:
        options.check_outer(o.schedule, common, **state)
    made = []

    def make(part: Callable[[], Any]) -> Any:
        with made_apart():
            made.append(part())
        return made[-1]

    try:
        o.state_averager = make(lambda: _state_averager(o, **state, **common))
        averages_gradients = o.schedule.averages_gradients
        wide = compression if averages_gradients else state["compression"]
        narrow = getattr(wide, "narrow", None)
        o.codec, o.narrow_codec = codec_of(wide, factory), codec_of(narrow or wide, factory)
        if not averages_gradients and o.state_averager.is_compressed_with_loss:
            logger.warning(LOSSY, type(state["compression"]).__name__)
        if o.client_mode:  # no joiner can ask it
            o.state_averager.offers.gift = StateGift(o.dht, o.run_id)
        options.check_scheduler(o.schedule, o.state_averager.scheduler)
        o.grad_averager = None
        if averages_gradients:
            o.grad_averager = make(
                lambda: _grad_averager(
                    o,
                    factory or GradientAverager,
                    compression=compression,
                    **{name: value for name, value in common.items() if name not in _OF_STATE},
                )
            )
            if o.batch_size_per_step is not None:
                o.grad_averager.sizes_are_equal()
        o.tracker = make(
            lambda: ProgressTracker(
                o.dht,
                o.run_id,
                o.target_batch_size,
                start=True,
                client_mode=o.client_mode,
                matchmaking_time=o.matchmaking_time,
                **tracking,
            )
        )
    except BaseException:
        for part in made:
            part.shutdown()
        raise


def _state_averager(o: RunPeer, outer_optimizer: Optional[OuterFactory], **given: Any) -> TrainingStateAverager:
    with options.one_of_a_run(o.run_id):
        if outer_optimizer is not None:
            return AnchoredStateAverager(
                prefix=f"{o.run_id}_state_averager", outer_optimizer=outer_optimizer, start=True, **given
            )
        return TrainingStateAverager(
            prefix=f"{o.run_id}_state_averager",
            offload_optimizer=o.schedule.offload_optimizer,
            delta_rule_averaging=o.schedule.use_local_updates and o.schedule.delay_state_averaging,
            weight_max=_state_weight_max(o, given["buffers"]),
            start=True,
            **given,
        )


def _state_weight_max(o: RunPeer, buffers: Any) -> float:
    """Buffers are weighted by the samples since the last average, and the parameters beside them with these."""
    if buffers is None or isinstance(buffers, str):
        return STATE_WEIGHT
    return float(o.target_batch_size * o.schedule.average_state_every)


def _grad_averager(o: RunPeer, factory: GradientAveragerFactory, **common: Any) -> GradientAverager:
    parameters, main = o.state_averager.parameters.trainable()
    if o.schedule.outer:
        return DifferenceAverager(
            parameters,
            anchor=main,
            buffers=o.state_averager.buffers,
            prefix=f"{o.run_id}_grad_averager",
            weight_max=float(o.target_batch_size),
            start=True,
            **common,
        )
    pin = any(p.device.type == "cuda" for p in parameters)
    return factory(
        parameters=parameters,
        averaged_grads=flat_views(main, pin=pin) if o.schedule.offload_optimizer else (),
        prefix=f"{o.run_id}_grad_averager",
        reuse_grad_buffers=o.reuse_grad_buffers,
        in_place=not o.schedule.delay_optimizer_step,
        weight_max=float(o.target_batch_size),
        start=True,
        **common,
    )
