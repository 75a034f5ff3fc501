"""A log on stderr for programs that set up none. Those that use logging by themselves need nothing of this: all is said
below the logger "hivemind_c".
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import Optional, Union

from hivemind_c import _stderr

FORMAT = _stderr.FORMAT


class HandlerMode(Enum):
    """Where use_hivemind_log_handler() writes lines."""

    NOWHERE = auto()
    IN_HIVEMIND = auto()  #: what hivemind_c says
    IN_ROOT_LOGGER = auto()  #: what anybody says


def get_logger(name: Optional[str] = None) -> logging.Logger:
    """Returns a logger, as logging.getLogger does.

    Args:
        name: Name of the logger. None: the root logger.
    """
    return logging.getLogger(name)


def use_hivemind_log_handler(where: Union[HandlerMode, str]) -> None:
    """Chooses where lines are written to stderr, in place of an earlier choice.

    The level is INFO, or that of the variable HIVEMIND_LOGLEVEL.

    Args:
        where: "nowhere", "in_hivemind" for lines of hivemind_c, or "in_root_logger" for all lines.
    """
    if isinstance(where, str):
        try:
            where = HandlerMode[where.upper()]
        except KeyError:
            raise ValueError(f"where must be 'nowhere', 'in_hivemind' or 'in_root_logger', not {where!r}") from None
    level = _stderr.wanted_level()
    loggers = {
        HandlerMode.IN_HIVEMIND: logging.getLogger("hivemind_c"),
        HandlerMode.IN_ROOT_LOGGER: logging.getLogger(),
    }
    for logger in loggers.values():
        logger.handlers[:] = [handler for handler in logger.handlers if not isinstance(handler, _stderr.Handler)]
    loggers[HandlerMode.IN_HIVEMIND].propagate = where is not HandlerMode.IN_HIVEMIND
    if where is HandlerMode.NOWHERE:
        return
    loggers[where].addHandler(_stderr.Handler())
    loggers[where].setLevel(logging.INFO if level is None else level)
