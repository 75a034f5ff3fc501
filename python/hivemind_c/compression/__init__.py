"""How tensors become few bytes and come back; docs/reference/compression.md says which to use when."""

from hivemind_c.compression.adaptive import (
    AdaptiveCompressionBase,
    PerTensorCompression,
    RoleAdaptiveCompression,
    SizeAdaptiveCompression,
)
from hivemind_c.compression.base import (
    CompressionBase,
    CompressionInfo,
    CompressionType,
    SerializedTensor,
    TensorDescriptor,
    TensorRole,
    register_compression,
)
from hivemind_c.compression.codecs import (
    BFloat16Compression,
    BlockwiseQuantization,
    ErrorFeedback,
    Float16Compression,
    Linear4BitQuantization,
    Linear8BitQuantization,
    NoCompression,
    Quantile8BitQuantization,
    ScaledFloat16Compression,
    Uniform8BitQuantization,
)
from hivemind_c.compression.serialization import (
    BASE_COMPRESSION_TYPES,
    combine_from_streaming,
    deserialize_tensor_stream,
    deserialize_torch_tensor,
    serialize_torch_tensor,
    split_for_streaming,
)

__all__ = [
    "AdaptiveCompressionBase",
    "BASE_COMPRESSION_TYPES",
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
    "combine_from_streaming",
    "deserialize_tensor_stream",
    "deserialize_torch_tensor",
    "register_compression",
    "serialize_torch_tensor",
    "split_for_streaming",
]


def __getattr__(name: str) -> object:
    from hivemind_c._lazy import submodule

    return submodule(__name__, name)
