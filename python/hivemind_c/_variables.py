"""The environment variables that hivemind_c reads, and a warning for those that begin like them and are none."""

from __future__ import annotations

import difflib
import logging
import re
from typing import Iterable, List, Mapping, Set

#: all that this package reads
OURS = frozenset(
    "HIVEMIND_SWARM_KEY INVITE INITIAL_PEERS PL_INITIAL_PEERS HIVEMIND_CACHE HIVEMIND_COMMAND HIVEMIND_FIRST_RANK "
    "HIVEMIND_GPU_STAND_IN HIVEMIND_INTERNET HIVEMIND_LOGLEVEL HIVEMIND_NAME HIVEMIND_RECORD "
    "HIVEMIND_TARGET_BATCH_SIZE HIVEMIND_C_AS_HIVEMIND".split()
)
#: of hivemind, whose programs may set them
THEIRS = frozenset(
    "HIVEMIND_ALWAYS_LOG_CALLER HIVEMIND_COLORS HIVEMIND_DHT_NUM_WORKERS HIVEMIND_MEMORY_SHARING_STRATEGY "
    "HIVEMIND_SHM_BUFFER_SIZE".split()
)
BEGINNINGS = ("HIVEMIND", "INVIT", "INITIAL_PEER")
#: Kubernetes and Docker name these by a service that is called like this package
OF_A_SERVICE = re.compile(r"_(SERVICE_(HOST|PORT.*)|PORT(_.*)?|ENV_.*)$")

_told: Set[str] = set()
logger = logging.getLogger("hivemind_c.settings")


def unknown(names: Iterable[str]) -> List[str]:
    """Returns those of these names that begin like a variable of this package and are none, in order.

    Args:
        names: Names of variables.
    """
    return sorted(
        name
        for name in names
        if name.upper().startswith(BEGINNINGS) and name not in OURS | THEIRS and not OF_A_SERVICE.search(name)
    )


def sentence(name: str) -> str:
    """Returns the warning for a variable that is none of this package's. It shows no value.

    Args:
        name: Its name.
    """
    near = difflib.get_close_matches(name.upper(), sorted(OURS), 1)
    remedy = f"is {near[0]} meant?" if near else "remove it if it is meant for hivemind_c"
    return f"the variable {name[:64]!r} is set, and hivemind_c reads no such variable: {remedy}"


def warn(environment: Mapping[str, str]) -> None:
    """Logs a warning for each such variable, once in a process.

    Args:
        environment: The variables.
    """
    for name in unknown(environment):
        if name not in _told:
            _told.add(name)
            logger.warning("%s", sentence(name))
