"""The name of a run, as all programs check it. It needs no torch."""

from __future__ import annotations

from typing import Any


def run_name(value: Any) -> str:
    """Returns the name of a run.

    Raises TypeError or ValueError if it cannot be one.

    Args:
        value: The name.
    """
    if not isinstance(value, str) or not value:
        raise TypeError(f"run_id must be the name of the run, the same on all its peers, not {value!r}")
    if "." in value or len(value.encode()) > 200:
        raise ValueError(f'run_id must not contain "." and must have at most 200 bytes: {value[:60]!r}')
    return value
