"""Answers imports of hivemind and lightning_hivemind with the modules of hivemind_c.

Processes started by this one inherit PYTHONPATH, and on it FOLDER: its module hivemind installs the hook there.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import logging
import operator
import os
import sys
from types import CodeType, ModuleType
from typing import Any, List, Optional, Sequence

from hivemind_c.as_hivemind.names import ABSENT, ALIASES, MODULES, PROGRAMS, nearest

logger = logging.getLogger("hivemind_c.as_hivemind")

TOPS = ("hivemind", "lightning_hivemind")
VERSIONS = {"hivemind": "1.1.12", "lightning_hivemind": "0.1.0"}  #: the releases whose names are here
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "path")
OPEN_ENV = "HIVEMIND_C_AS_HIVEMIND"  #: set for child processes, so that the warning comes once
PAGE = "docs/howto/migrate-from-hivemind.md"


def missing(where: str, name: str) -> str:
    """The sentence for a name that is not there: the reason or the nearest name, and the page that tells more."""
    full = f"{where}.{name}"
    reason = next((why for prefix, why in ABSENT.items() if full == prefix or full.startswith(f"{prefix}.")), "")
    near = "" if reason else nearest(where, name, public)
    cause = f"{reason}." if reason else f"did you mean {near}?" if near else "no name here is like it."
    return f"hivemind_c has no {full}: {cause} See {PAGE}"


def public(module: str) -> List[str]:
    """Names of a module that the import hook answers for, submodules included."""
    found = {name for name in ALIASES.get(module, ()) if not name.startswith("_")}
    for source in MODULES[module]:
        try:
            there = importlib.import_module(source)
        except ImportError:  # what it needs, such as Lightning, is not installed: importing it says so
            continue
        found.update(name for name in getattr(there, "__all__", dir(there)) if not name.startswith("_"))
    found.update(
        name.removeprefix(f"{module}.")
        for name in MODULES
        if name.startswith(f"{module}.") and "." not in name[len(module) + 1 :]
    )
    return sorted(found)


class AliasModule(ModuleType):
    """A module of hivemind: what is asked of it comes from modules of hivemind_c, and what is set in it is set
    there."""

    __path__: List[str] = []  # in each module, so that the finder is asked for all that is imported from it

    def __getattr__(self, name: str) -> Any:
        module = self.__name__
        if name == "__all__":
            return public(module)
        if name.startswith("__") and name != "__version__":
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if name == "__version__" and module in VERSIONS:
            return VERSIONS[module]
        if f"{module}.{name}" in MODULES:
            return importlib.import_module(f"{module}.{name}")
        if name in ALIASES.get(module, ()):
            source, _, attribute = ALIASES[module][name].partition(":")
            return operator.attrgetter(attribute)(importlib.import_module(source))
        for source in MODULES[module]:
            value = getattr(importlib.import_module(source), name, self)
            if value is not self:
                return value
        raise AttributeError(missing(module, name))

    def _source_of(self, name: str) -> Optional[ModuleType]:
        """The module of hivemind_c that a program changes when it changes this name here, as tests do to
        replace a part."""
        if name.startswith("__"):
            return None
        sources = [importlib.import_module(source) for source in MODULES[self.__name__]]
        return next(
            (source for source in sources if hasattr(source, name)), self.__dict__.get("__taken__", {}).get(name)
        )

    def __setattr__(self, name: str, value: Any) -> None:
        source = None if isinstance(value, AliasModule) else self._source_of(name)
        setattr(source, name, value) if source is not None else super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        source = None if name in self.__dict__ else self._source_of(name)
        if source is None:
            return super().__delattr__(name)
        delattr(source, name)
        self.__dict__.setdefault("__taken__", {})[name] = source  # where it is put back, as unittest.mock does

    def __dir__(self) -> List[str]:
        return sorted({*super().__dir__(), *public(self.__name__)})


class AliasFinder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finder and loader of these modules."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        top = fullname.partition(".")[0]
        if top not in TOPS:
            return None
        if fullname not in MODULES:
            where, _, name = fullname.rpartition(".")
            # its name is the top's, because Python passes over the error of a "from" that bears the whole name
            raise ModuleNotFoundError(missing(where, name), name=top)
        return importlib.machinery.ModuleSpec(
            fullname, self, origin=f"hivemind_c ({', '.join(MODULES[fullname])})", is_package=fullname not in PROGRAMS
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return AliasModule(spec.name, f"{spec.name}, as hivemind_c has it.")

    def exec_module(self, module: ModuleType) -> None:
        for source in MODULES[module.__name__]:
            importlib.import_module(source)

    def is_package(self, fullname: str) -> bool:
        return fullname not in PROGRAMS

    def get_source(self, fullname: str) -> Optional[str]:
        return f"from {MODULES[fullname][0]} import main\n\nmain()\n" if fullname in PROGRAMS else None

    def get_code(self, fullname: str) -> Optional[CodeType]:
        source = self.get_source(fullname)
        return None if source is None else compile(source, f"<{fullname}>", "exec")


def _is_stub(module: Any) -> bool:
    """True if this is the module in FOLDER that is just installing the hook."""
    return os.path.dirname(os.path.abspath(getattr(module, "__file__", None) or "")) == FOLDER


def _installed(name: str) -> Optional[str]:
    """Where another package of that name lies, which the hook hides."""
    spec = importlib.machinery.PathFinder.find_spec(
        name, [entry for entry in sys.path if os.path.abspath(entry or ".") != FOLDER]
    )
    places = [] if spec is None else [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return (
        places[0] if spec is not None and spec.loader is not None and places else None
    )  # without a loader it is a mere folder


def install() -> None:
    """From now on hivemind is hivemind_c here and in processes started from here. ImportError: another hivemind was
    imported before."""
    if any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        return
    stubs = []
    for name in TOPS:
        there = sys.modules.get(name)
        if there is not None and not _is_stub(there):
            raise ImportError(
                f"hivemind_c cannot take the place of {name}: it was imported already, "
                f"from {getattr(there, '__file__', None)}; "
                "import hivemind_c.as_hivemind before it (in a notebook, restart the kernel first), "
                "or run python -m hivemind_c.as_hivemind PROGRAM.py"
            )
        stubs += [name] if there is not None else []
    sys.meta_path.insert(0, AliasFinder())
    for name in stubs:
        del sys.modules[name]
        importlib.import_module(name)
    if FOLDER not in sys.path:
        sys.path.insert(0, FOLDER)  # processes that multiprocessing spawns take this list over
    behind = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != FOLDER]
    os.environ["PYTHONPATH"] = os.pathsep.join([FOLDER, *behind])
    if os.environ.get(OPEN_ENV) != "1":
        os.environ[OPEN_ENV] = "1"
        for name in TOPS:
            place = _installed(name)
            if place is not None:
                logger.warning(
                    "%s means hivemind_c in this program and not the package at %s, because of hivemind_c.as_hivemind",
                    name,
                    place,
                )
