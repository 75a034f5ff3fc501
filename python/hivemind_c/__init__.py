"""hivemind_c: train one model together, on machines that come and go."""

import _hivemind_c
from _hivemind_c import (
    Future,
    HivemindCancelledError,
    HivemindConnectionError,
    HivemindError,
    HivemindLookupError,
    HivemindMemoryError,
    HivemindOSError,
    HivemindPermissionError,
    HivemindTimeoutError,
    HivemindUnsupportedError,
    HivemindValueError,
)

from hivemind_c.node import Node, Peer

__version__: str = _hivemind_c.__version__

__all__ = [
    "Future",
    "HivemindCancelledError",
    "HivemindConnectionError",
    "HivemindError",
    "HivemindLookupError",
    "HivemindMemoryError",
    "HivemindOSError",
    "HivemindPermissionError",
    "HivemindTimeoutError",
    "HivemindUnsupportedError",
    "HivemindValueError",
    "Node",
    "Peer",
    "__version__",
]
