"""Limits of the operating system."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger("hivemind_c.utils")


def increase_file_limit(new_soft: int = 2**15, new_hard: int = 2**15) -> None:
    """Raises the limit of open files, if the system allows it. It never lowers a limit.

    Args:
        new_soft: Soft limit that is wanted.
        new_hard: Hard limit that is wanted.
    """
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
