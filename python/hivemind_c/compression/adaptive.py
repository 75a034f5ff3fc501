"""Which compression for which tensor: by its size, by what it is to the model, or one by one."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Mapping, Optional, Sequence, Union

from _hivemind_c import HivemindLookupError

from hivemind_c.compression.base import CompressionBase, CompressionInfo, SerializedTensor, TensorRole, compression_of
from hivemind_c.compression.codecs import NoCompression


def _instance(compression: Any, where: str) -> CompressionBase:
    if not isinstance(compression, CompressionBase):
        raise TypeError(f"{where} must be an instance, for example Float16Compression(), not {compression!r}")
    return compression


class AdaptiveCompressionBase(CompressionBase):
    """Chooses a compression for each tensor; the bytes tell which one it was."""

    @abstractmethod
    def choose_compression(self, info: CompressionInfo) -> CompressionBase: ...

    def compress(self, tensor: Any, info: Optional[CompressionInfo] = None, allow_inplace: bool = False) -> SerializedTensor:
        info = info or CompressionInfo.from_tensor(tensor)
        return self.choose_compression(info).compress(tensor, info=info, allow_inplace=allow_inplace)

    def extract(self, serialized_tensor: SerializedTensor) -> Any:
        return compression_of(serialized_tensor).extract(serialized_tensor)

    def estimate_compression_ratio(self, info: CompressionInfo) -> float:
        return self.choose_compression(info).estimate_compression_ratio(info)


class SizeAdaptiveCompression(AdaptiveCompressionBase):
    """``less`` for tensors with fewer elements than ``threshold``, ``greater_equal`` for the others."""

    def __init__(self, threshold: int, less: CompressionBase, greater_equal: CompressionBase):
        self.threshold, self.less, self.greater_equal = threshold, _instance(less, "less"), _instance(greater_equal, "greater_equal")

    def choose_compression(self, info: CompressionInfo) -> CompressionBase:
        return self.greater_equal if info.descriptor.numel() >= self.threshold else self.less


class RoleAdaptiveCompression(AdaptiveCompressionBase):
    """One compression for each role; ``default`` for the roles that have none and for tensors without a role."""

    def __init__(
        self,
        *,
        activation: Optional[CompressionBase] = None,
        parameter: Optional[CompressionBase] = None,
        gradient: Optional[CompressionBase] = None,
        optimizer: Optional[CompressionBase] = None,
        default: CompressionBase = NoCompression(),
    ):
        given = {
            TensorRole.ACTIVATION: activation,
            TensorRole.PARAMETER: parameter,
            TensorRole.GRADIENT: gradient,
            TensorRole.OPTIMIZER: optimizer,
            TensorRole.UNSPECIFIED: default,
        }
        self.role_compressions = {role: _instance(one or default, role.name.lower()) for role, one in given.items()}

    def choose_compression(self, info: CompressionInfo) -> CompressionBase:
        return self.role_compressions[info.role]


class PerTensorCompression(AdaptiveCompressionBase):
    """One compression for each tensor, by its key: its name in a mapping, its index in a sequence."""

    def __init__(self, tensor_compressions: Union[Sequence[CompressionBase], Mapping[Any, CompressionBase]]):
        by_key = tensor_compressions.items() if isinstance(tensor_compressions, Mapping) else enumerate(tensor_compressions)
        for key, one in by_key:
            _instance(one, f"the compression of {key!r}")
        self.tensor_compressions = tensor_compressions

    def choose_compression(self, info: CompressionInfo) -> CompressionBase:
        try:
            return self.tensor_compressions[info.key]
        except (LookupError, TypeError):
            raise HivemindLookupError(f"PerTensorCompression has no compression for the tensor {info.key!r}") from None
