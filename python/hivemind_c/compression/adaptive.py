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
    """Chooses a compression for each tensor. The bytes name the one that was chosen."""

    @abstractmethod
    def choose_compression(self, info: CompressionInfo) -> CompressionBase:
        """Returns the compression for a tensor.

        Args:
            info: Key, shape and role of the tensor.
        """

    def compress(
        self, tensor: Any, info: Optional[CompressionInfo] = None, allow_inplace: bool = False
    ) -> SerializedTensor:
        """Compresses a tensor by the compression chosen for it.

        Args:
            tensor: A tensor or a NumPy array.
            info: Key, shape and role of the tensor. None: those that the tensor shows.
            allow_inplace: Accepted without effect: the tensor never changes.
        """
        info = info or CompressionInfo.from_tensor(tensor)
        return self.choose_compression(info).compress(tensor, info=info, allow_inplace=allow_inplace)

    def extract(self, serialized_tensor: SerializedTensor) -> Any:
        """Returns the tensor, by the compression that the bytes name.

        Args:
            serialized_tensor: Result of compress().
        """
        return compression_of(serialized_tensor).extract(serialized_tensor)

    def estimate_compression_ratio(self, info: CompressionInfo) -> float:
        """Returns the compressed size divided by the size, without compressing.

        Args:
            info: Key, shape and role of the tensor.
        """
        return self.choose_compression(info).estimate_compression_ratio(info)


class SizeAdaptiveCompression(AdaptiveCompressionBase):
    """Chooses one of two compressions by the size of a tensor.

    Args:
        threshold: Number of elements from which a tensor is large.
        less: Compression of smaller tensors.
        greater_equal: Compression of large tensors.
    """

    def __init__(self, threshold: int, less: CompressionBase, greater_equal: CompressionBase):
        self.threshold, self.less, self.greater_equal = (
            threshold,
            _instance(less, "less"),
            _instance(greater_equal, "greater_equal"),
        )

    def choose_compression(self, info: CompressionInfo) -> CompressionBase:
        """Returns the compression for a tensor.

        Args:
            info: Key, shape and role of the tensor.
        """
        return self.greater_equal if info.descriptor.numel() >= self.threshold else self.less


class RoleAdaptiveCompression(AdaptiveCompressionBase):
    """Chooses a compression by the role of a tensor.

    Args:
        activation: Compression of activations. None: default.
        parameter: Compression of parameters. None: default.
        gradient: Compression of gradients. None: default.
        optimizer: Compression of optimizer statistics. None: default.
        default: Compression of all other tensors.
    """

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
        """Returns the compression for a tensor.

        Args:
            info: Key, shape and role of the tensor.
        """
        return self.role_compressions[info.role]


class PerTensorCompression(AdaptiveCompressionBase):
    """Chooses a compression by the key of a tensor.

    Args:
        tensor_compressions: A mapping from the names of tensors, or a sequence in their order.
    """

    def __init__(self, tensor_compressions: Union[Sequence[CompressionBase], Mapping[Any, CompressionBase]]):
        by_key = (
            tensor_compressions.items() if isinstance(tensor_compressions, Mapping) else enumerate(tensor_compressions)
        )
        for key, one in by_key:
            _instance(one, f"the compression of {key!r}")
        self.tensor_compressions = tensor_compressions

    def choose_compression(self, info: CompressionInfo) -> CompressionBase:
        """Returns the compression for a tensor.

        Args:
            info: Key, shape and role of the tensor.
        """
        try:
            return self.tensor_compressions[info.key]
        except (LookupError, TypeError):
            raise HivemindLookupError(f"PerTensorCompression has no compression for the tensor {info.key!r}") from None
