"""Limits of the operating system."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger("hivemind_c.utils")


def increase_file_limit(new_soft: int = 2**15, new_hard: int = 2**15) -> None:
    """Allows this process so many open files, if the system does; it never lowers a limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    higher_hard = hard if hard == unlimited else max(hard, new_hard)
    higher_soft = soft if soft == unlimited else max(soft, new_soft)
    for wanted in ((higher_soft, higher_hard), (higher_soft if hard == unlimited else min(higher_soft, hard), hard)):
        try:
            return resource.setrlimit(resource.RLIMIT_NOFILE, wanted)
        except (ValueError, OSError) as error:
            cause = error
    logger.warning("the limit of open files stays %d: %s; raise it with ulimit -n", soft, cause)


__all__ = ["increase_file_limit"]
