"""Cells of a notebook that run again: things that the run before made are replaced. Outside of IPython nothing is replaced."""

from __future__ import annotations

import gc
import logging
import sys
import traceback
import weakref
from typing import Any, Callable, List, Optional

from hivemind_c import _log

logger = logging.getLogger("hivemind_c")
END_S = 5.0  #: for a node to end, if a program's own handler of logs keeps it longer
_cells: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()  # things that were made in a cell, and the number of its run


def _shell() -> Any:
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def cell() -> Optional[int]:
    """The number of the run of a cell that is under way; None outside of IPython."""
    return getattr(_shell(), "execution_count", None)


def made_here(thing: Any) -> None:
    """Remembers in which run of a cell a thing was made."""
    if (number := cell()) is not None:
        _cells[thing] = number


def earlier(condition: Callable[[Any], bool]) -> List[Any]:
    """The things that earlier runs of cells made, that are still there, and for which the condition holds."""
    now = cell()
    return [] if now is None else [thing for thing, number in list(_cells.items()) if number < now and condition(thing)]


def replace(condition: Callable[[Any], bool], what: str) -> None:
    """Shuts the things down that earlier runs of cells made and for which the condition holds: this run makes another in their place."""
    for thing in earlier(condition):
        _cells.pop(thing, None)
        if getattr(thing, "is_alive", lambda: True)():
            thing.shutdown()
            logger.warning("%s of an earlier cell is shut down, because this cell makes another in its place", what)


def drop_unused(condition: Callable[[Any], bool]) -> None:
    """Collects things that earlier runs of cells made and no variable holds any more, and waits until their nodes have ended.

    The frames of a cell that failed or was interrupted hold such things, too: their variables are cleared."""
    for clear_frames in (lambda: None, _clear_frames):
        if earlier(condition):
            clear_frames()
            gc.collect()
    _log.let_go(END_S)  # without it, a node that was just being listened to would still give its state


def _clear_frames() -> None:
    error = getattr(getattr(_shell(), "last_execution_result", None), "error_in_exec", None)
    for last in (getattr(error, "__traceback__", None), getattr(sys, "last_traceback", None)):
        if last is not None:
            traceback.clear_frames(last)
