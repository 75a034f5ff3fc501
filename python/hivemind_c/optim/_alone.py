"""An averager for a peer that is alone: what the optimizer works with until it has others."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, Optional, Sequence


class DecentralizedAverager:
    def __init__(self, averaged_tensors: Sequence[Any], dht: Any, *, start: bool = True, prefix: str, client_mode: Optional[bool] = None, auxiliary: bool = False, **options: Any):
        self._averaged_tensors, self.dht, self.prefix, self.auxiliary = list(averaged_tensors), dht, prefix, auxiliary
        self.client_mode = bool(getattr(dht, "client_mode", False) if client_mode is None else client_mode)
        self.lock = threading.RLock()

    @contextlib.contextmanager
    def get_tensors(self) -> Iterator[Sequence[Any]]:
        with self.lock:
            yield self._averaged_tensors

    def load_state_from_peers(self, wait: bool = True, timeout: Optional[float] = None) -> None:
        return None

    def shutdown(self) -> None:
        pass
