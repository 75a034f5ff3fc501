"""hivemind_c: train one model together, on machines that come and go."""

import hivemind_c._hush  # before the core
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

from hivemind_c import _stderr
from hivemind_c._issued import Invitation, invite
from hivemind_c._lightning import registry as _registry
from hivemind_c.node import Node, Peer

TYPE_CHECKING = False  # type checkers take it for true: they see the imports that happen on first use
if TYPE_CHECKING:
    from hivemind_c.averaging import DecentralizedAverager
    from hivemind_c.compression import (
        BFloat16Compression,
        BlockwiseQuantization,
        CompressionBase,
        CompressionInfo,
        CompressionType,
        ErrorFeedback,
        Float16Compression,
        Linear4BitQuantization,
        Linear8BitQuantization,
        NoCompression,
        PerTensorCompression,
        Quantile8BitQuantization,
        RoleAdaptiveCompression,
        ScaledFloat16Compression,
        SerializedTensor,
        SizeAdaptiveCompression,
        TensorDescriptor,
        TensorRole,
        Uniform8BitQuantization,
        deserialize_torch_tensor,
        register_compression,
        serialize_torch_tensor,
    )
    from hivemind_c.dht import DHT, get_dht_time
    from hivemind_c.optim import AloneError, CollaborativeOptimizer, ConfigMismatchError, DiLoCoOptimizer, EpochRecord, GradientAverager, GradScaler, Optimizer, PowerSGDGradientAverager, ProgressTracker, TrainingAverager, TrainingStateAverager
    from hivemind_c.p2p import Multiaddr, PeerID
    from hivemind_c.strategy import CollaborativeStrategy as CollaborativeStrategy
    from hivemind_c.strategy import HivemindStrategy as HivemindStrategy
    from hivemind_c.strategy import SwarmProgressBar as SwarmProgressBar
    from hivemind_c.utils import get_logger

_LATER = {  # names at the top whose module a program that only wants a node need not wait for
    "hivemind_c.averaging": ("DecentralizedAverager",),
    "hivemind_c.compression": (
        "BFloat16Compression",
        "BlockwiseQuantization",
        "CompressionBase",
        "CompressionInfo",
        "CompressionType",
        "ErrorFeedback",
        "Float16Compression",
        "Linear4BitQuantization",
        "Linear8BitQuantization",
        "NoCompression",
        "PerTensorCompression",
        "Quantile8BitQuantization",
        "RoleAdaptiveCompression",
        "ScaledFloat16Compression",
        "SerializedTensor",
        "SizeAdaptiveCompression",
        "TensorDescriptor",
        "TensorRole",
        "Uniform8BitQuantization",
        "deserialize_torch_tensor",
        "register_compression",
        "serialize_torch_tensor",
    ),
    "hivemind_c.dht": ("DHT", "get_dht_time"),
    "hivemind_c.p2p": ("Multiaddr", "PeerID"),
    "hivemind_c.utils": ("get_logger",),
    "hivemind_c.optim": ("AloneError", "CollaborativeOptimizer", "ConfigMismatchError", "DiLoCoOptimizer", "EpochRecord", "GradScaler", "GradientAverager", "Optimizer", "PowerSGDGradientAverager", "ProgressTracker", "TrainingAverager", "TrainingStateAverager"),
    "hivemind_c.strategy": ("CollaborativeStrategy", "HivemindStrategy", "SwarmProgressBar"),  # not in __all__: they need Lightning
}

_MODULES = ("averaging", "compression", "cuda", "dht", "optim", "p2p", "utils")  # likewise, and strategy

__version__: str = _hivemind_c.__version__

__all__ = [
    "AloneError",
    "BFloat16Compression",
    "BlockwiseQuantization",
    "CollaborativeOptimizer",
    "CompressionBase",
    "CompressionInfo",
    "CompressionType",
    "ConfigMismatchError",
    "DHT",
    "DecentralizedAverager",
    "DiLoCoOptimizer",
    "EpochRecord",
    "ErrorFeedback",
    "Float16Compression",
    "Future",
    "GradScaler",
    "GradientAverager",
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
    "Invitation",
    "Linear4BitQuantization",
    "Linear8BitQuantization",
    "Multiaddr",
    "NoCompression",
    "Node",
    "Optimizer",
    "Peer",
    "PeerID",
    "PerTensorCompression",
    "PowerSGDGradientAverager",
    "ProgressTracker",
    "Quantile8BitQuantization",
    "RoleAdaptiveCompression",
    "ScaledFloat16Compression",
    "SerializedTensor",
    "SizeAdaptiveCompression",
    "TensorDescriptor",
    "TensorRole",
    "TrainingAverager",
    "TrainingStateAverager",
    "Uniform8BitQuantization",
    "deserialize_torch_tensor",
    "get_dht_time",
    "get_logger",
    "invite",
    "register_compression",
    "serialize_torch_tensor",
    "__version__",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES or name == "strategy":
        return import_module(f"{__name__}.{name}")
    for module, names in _LATER.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list:
    """Everything public, whether it is loaded or not."""
    return sorted({*globals(), *__all__, *_MODULES, "strategy", *(name for names in _LATER.values() for name in names)})


_registry.register_everywhere()
if _stderr.wanted_level() is not None:
    _stderr.show(_stderr.wanted_level())
