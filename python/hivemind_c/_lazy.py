"""Modules of a package as its attributes, imported when they are asked for."""

from __future__ import annotations

import importlib
import importlib.util


def submodule(package: str, name: str) -> object:
    """For a package's __getattr__: its module of that name. AttributeError: it has none."""
    full = f"{package}.{name}"
    if name.startswith("_") or importlib.util.find_spec(full) is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(full)
