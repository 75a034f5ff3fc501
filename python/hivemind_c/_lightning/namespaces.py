"""Which Lightning: `lightning.pytorch` or `pytorch_lightning`, the same code under two names whose classes do not know
each other.

A class of ours is written once, as a mixin. An object of it gets the base class of the Lightning that the program has
imported; where it has imported both, it has both bases until a Trainer takes it (settle), and from then on that
Trainer's alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, Dict, List, Tuple

from hivemind_c import _needs

NAMES = "lightning.pytorch", "pytorch_lightning"
_made: Dict[Tuple[type, Tuple[str, ...], str], type] = {}


def imported() -> List[str]:
    """Those that the program has imported; if none, those that are installed. ImportError: none, or too old."""
    there = [name for name in NAMES if hasattr(sys.modules.get(name), "Trainer")]
    there = there or [name for name in NAMES if importlib.util.find_spec(name.split(".")[0])]
    if not there:
        remedy = f"run pip install '{_needs.at_least('lightning')}'"
        raise ImportError(f"hivemind_c.HivemindStrategy cannot be used: Lightning is not installed; {remedy}")
    old = {name: _needs.too_old(package_of(name), _needs.installed(package_of(name))) for name in there}
    usable = [name for name in there if not old[name]]
    if not usable:
        raise ImportError(old[there[0]])
    return usable


def package_of(name: str) -> str:
    """Its name for pip."""
    return name.split(".")[0].replace("_", "-")


def part(name: str, where: str) -> Any:
    """part("lightning.pytorch", "strategies.Strategy")."""
    *modules, last = where.split(".")
    return getattr(importlib.import_module(".".join((name, *modules))), last)


def make(cls: type, base: str, names: Tuple[str, ...]) -> type:
    """cls with the base class of these namespaces."""
    key = cls, names, base
    if key not in _made:
        bases = (cls, *(part(name, base) for name in names))
        _made[key] = type(
            cls.__name__,
            bases,
            {"__module__": cls.__module__, "__doc__": cls.__doc__, "_mixin": cls, "_names": names, "_base": base},
        )
    return _made[key]


def new(cls: type, base: str) -> Any:
    """An object, not yet initialized, of cls with the base class of the Lightning at hand."""
    return object.__new__(cls if hasattr(cls, "_mixin") else make(cls, base, tuple(imported())))


def _again(cls: type, base: str, names: Tuple[str, ...]) -> Any:
    """An object, not yet filled, for pickle and copy: of these namespaces, or of those at hand if no Trainer had
    settled it.
    """
    return object.__new__(make(cls, base, names or tuple(imported())))


class EitherLightning:
    """The mixin of a class whose base class `_base` is chosen when an object is made.

    `__new__` is defined here and not beside the `__init__` of such a class: tools that show or parse arguments then
    find those of `__init__`."""

    _base: str
    _mixin: type
    _names: Tuple[str, ...]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return new(cls, cls._base)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The class of an object is in no module, so pickle and copy make it again."""
        settled = self._names if len(self._names) == 1 else ()
        return (_again, (self._mixin, self._base, settled), *object.__reduce_ex__(self, 2)[2:])


def settle(thing: Any, base: str, witness: object) -> None:
    """Makes a thing of both namespaces one of the namespace that the witness comes from."""
    if len(thing._names) > 1:
        root = type(witness).__module__.split(".")[0]
        name = next((name for name in thing._names if name.split(".")[0] == root), None)
        if name:
            thing.__class__ = make(thing._mixin, base, (name,))


def misconfigured(thing: Any, text: str) -> Exception:
    """Lightning's exception for options that do not fit together."""
    return part(thing._names[0], "utilities.exceptions.MisconfigurationException")(text)
