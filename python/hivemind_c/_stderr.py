"""Lines on stderr for programs that set up no logging: for verbose=True, and for HIVEMIND_LOGLEVEL. A program that sets logging up gets the lines there and nowhere else."""

from __future__ import annotations

import logging
import os
import sys
from typing import Optional

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
VARIABLE = "HIVEMIND_LOGLEVEL"


class Handler(logging.StreamHandler):
    """A handler of ours, known by its class. It writes to the stderr of the moment, which notebooks and tests replace."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter(FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _UnlessOthersDo(Handler):
    """Writes only lines for which the program has set up no handler, now or later."""

    def filter(self, record: logging.LogRecord):  # type: ignore[no-untyped-def]  # what it returns depends on the version of Python
        logger: Optional[logging.Logger] = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return super().filter(record)


def wanted_level() -> Optional[int]:
    """The level that HIVEMIND_LOGLEVEL names; None without it. ValueError: it names none."""
    text = os.environ.get(VARIABLE, "").strip()
    level = int(text) if text.isdigit() else logging.getLevelName(text.upper()) if text else None
    if level is not None and not isinstance(level, int):
        raise ValueError(f"{VARIABLE} must be a level of logging, not {text!r}: set it to DEBUG, INFO, WARNING or ERROR")
    return level


def show(level: int) -> None:
    """From this level on, or the one that HIVEMIND_LOGLEVEL names, lines are seen on stderr, unless the program sets logging up."""
    logger, wanted = logging.getLogger("hivemind_c"), wanted_level()
    set_up = [handler for handler in logging.getLogger().handlers + logger.handlers if not isinstance(handler, _UnlessOthersDo)]
    if wanted is not None:
        logger.setLevel(wanted)
    elif not set_up and logger.level == logging.NOTSET:
        logger.setLevel(level)
    if not set_up and not any(isinstance(handler, _UnlessOthersDo) for handler in logger.handlers):
        logger.addHandler(_UnlessOthersDo())
