"""The lowest versions of torch, NumPy and Lightning that hivemind_c is tested with, and the check that refuses older ones.

The extras of pyproject.toml name the same versions; docs/TESTING.md says which tests ran with them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from typing import Dict, Optional, Tuple

LOWEST: Dict[str, Tuple[int, ...]] = {"torch": (2, 6), "numpy": (1, 26), "lightning": (2, 4), "pytorch-lightning": (2, 4)}


def installed(name: str) -> Optional[str]:
    """The version of a package: that of the module if the program has imported it, else that of the package. None: unknown."""
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
    """One sentence if this version of the package is older than the lowest that is tested. None: it is not, or nobody knows."""
    if version is None or tuple(int(number) for number in re.findall(r"\d+", version)[:2]) >= LOWEST[name]:
        return None
    return f"{name} {version} is too old: hivemind_c needs {at_least(name)}; run pip install --upgrade '{at_least(name)}'"


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
            raise ImportError(f"{purpose} cannot be used: {name} is not installed; run pip install '{at_least(name)}'", name=name)
