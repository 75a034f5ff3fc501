"""The properties of an averager: its settings, and how it is."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Optional, Sequence

from hivemind_c.averaging.base import AveragerBase
from hivemind_c.averaging.control import AveragingMode
from hivemind_c.averaging.layout import AveragerLayout, layout_of
from hivemind_c.compression import arrays


class AveragerSettings(AveragerBase):
    """The part of DecentralizedAverager that shows the options it was made with."""

    _arguments: Dict[str, Any]
    _settings: Dict[str, Any]  # as the core has them

    @property
    def mode(self) -> AveragingMode:
        """The role of this peer, as an AveragingMode."""
        return AveragingMode.AUX if self.auxiliary else AveragingMode.CLIENT if self.client_mode else AveragingMode.NODE

    @property
    def bandwidth(self) -> Optional[float]:
        """The option bandwidth, in bytes per second."""
        return self._arguments["bandwidth"]

    @property
    def request_timeout(self) -> float:
        """The option request_timeout, in seconds."""
        return self._arguments["request_timeout"]

    @property
    def allreduce_timeout(self) -> Optional[float]:
        """The option allreduce_timeout, in seconds."""
        return self._arguments["allreduce_timeout"]

    @property
    def next_chunk_timeout(self) -> float:
        """Seconds that a member may stall a round before the round continues without it."""
        return self._arguments["stall"]

    @property
    def matchmaking_kwargs(self) -> Dict[str, Any]:
        """The options for the search for a group, by name."""
        return {
            name: self._arguments[name]
            for name in (
                "target_group_size",
                "min_group_size",
                "min_matchmaking_time",
                "request_timeout",
                "initial_group_bits",
            )
        }

    @property
    def allreduce_kwargs(self) -> Dict[str, Any]:
        """The options for the round itself, by name."""
        return {
            name: self._arguments[name]
            for name in (
                "compression",
                "part_size_bytes",
                "min_vector_size",
                "averaging_alpha",
                "weight_max",
                "norm_ratio_max",
            )
        }

    def layout(self, kind: str, every: int) -> AveragerLayout:
        """Returns what a hub must know to take part in the rounds of this averager.

        Args:
            kind: "gradients" or "state".
            every: Epochs from one round to the next.
        """
        return layout_of(self._tensors, self._settings, self._arguments["initial_group_bits"], kind, every)

    @property
    def tensor_infos(self) -> Sequence[Any]:
        """One CompressionInfo for each tensor."""
        return self._tensors.infos

    @property
    def total_size(self) -> int:
        """The number of values in all tensors."""
        return sum(tensor.numel() if arrays.is_tensor(tensor) else tensor.size for tensor in self._tensors.tensors)

    @property
    def schema_hash(self) -> str:
        """A digest that is equal in averagers whose tensors have the same shapes and dtypes in the same order."""
        schema = [(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for tensor in self._tensors.tensors]
        return hashlib.sha256(repr(schema).encode()).hexdigest()
