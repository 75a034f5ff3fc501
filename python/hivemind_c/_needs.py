"""The lowest versions of torch, NumPy and Lightning that are tested, and the check that refuses older ones.

The extras of pyproject.toml name the same versions.
docs/explanation/how-it-is-tested.md says which tests ran with them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from typing import Dict, Optional, Tuple

LOWEST: Dict[str, Tuple[int, ...]] = {
    "torch": (2, 6),
    "numpy": (1, 26),
    "lightning": (2, 4),
    "pytorch-lightning": (2, 4),
}


def numbers(version: str) -> Tuple[int, ...]:
    """(2, 13) for "2.13.0+cpu"."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def installed(name: str) -> Optional[str]:
    """The version of the module if the program has imported it, else of the package. None: unknown."""
    version = getattr(sys.modules.get(name.replace("-", "_")), "__version__", None)
    if version is not None:
        return str(version)
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def there(name: str) -> bool:
    """True if the program has imported the package, or could."""
    module = name.replace("-", "_")
    return sys.modules[module] is not None if module in sys.modules else importlib.util.find_spec(module) is not None


def at_least(name: str) -> str:
    """The requirement as pip takes it: "torch>=2.6"."""
    return f"{name}>={'.'.join(map(str, LOWEST[name]))}"


def too_old(name: str, version: Optional[str]) -> Optional[str]:
    """One sentence if this version is older than the lowest that is tested. None: it is not, or is unknown."""
    if version is None or numbers(version) >= LOWEST[name]:
        return None
    wanted = at_least(name)
    return f"{name} {version} is too old: hivemind_c needs {wanted}; run pip install --upgrade '{wanted}'"


def check(*names: str) -> None:
    """ImportError if one of these packages is there and too old. Imports nothing."""
    for name in names:
        if sentence := too_old(name, installed(name)):
            raise ImportError(sentence, name=name)


def demand(purpose: str, *names: str) -> None:
    """check, and ImportError if one of these packages is missing."""
    check(*names)
    for name in names:
        if not there(name):
            remedy = f"run pip install '{at_least(name)}'"
            raise ImportError(f"{purpose} cannot be used: {name} is not installed; {remedy}", name=name)
