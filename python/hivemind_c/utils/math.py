"""Shapes of tensors."""

from __future__ import annotations

from typing import Any, Tuple


def get_flatten_greedy_dims(tensor: Any, max_ndim: int = 2) -> Tuple[int, ...]:
    """The shape of a tensor once its smallest neighbouring dimensions are merged, until max_ndim are left."""
    dims = list(tensor.shape)
    while len(dims) > max_ndim:
        at = min(range(len(dims) - 1), key=lambda i: dims[i] * dims[i + 1])
        dims[at : at + 2] = [dims[at] * dims[at + 1]]
    return tuple(dims)


__all__ = ["get_flatten_greedy_dims"]
