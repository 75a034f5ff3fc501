"""What a strategy is in Lightning's eyes: here one process on one device, rank zero of a world of its own."""

from __future__ import annotations

from typing import Any

import torch

from hivemind_c._lightning import namespaces


class OneDevice:
    _base = "strategies.Strategy"
    parallel_devices: Any = None  # the Trainer fills it in

    @property
    def accelerator(self) -> Any:
        return self._accelerator

    @accelerator.setter
    def accelerator(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        if accelerator is not None:
            namespaces.settle(self, self._base, accelerator)

    @property
    def root_device(self) -> torch.device:
        device = self.parallel_devices[0] if self.parallel_devices else "cpu"
        return device if isinstance(device, torch.device) else torch.device(device)

    def model_to_device(self) -> None:
        self.model.to(self.root_device)

    @property
    def global_rank(self) -> int:
        return 0

    local_rank = node_rank = global_rank

    @property
    def world_size(self) -> int:
        return 1

    @property
    def is_global_zero(self) -> bool:
        return True  # each peer has its own bars, logs and metrics; checkpoints: writing.py

    def reduce(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return tensor

    def all_gather(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return tensor

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        pass

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return obj
