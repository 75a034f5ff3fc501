"""HivemindStrategy's option buffers: which buffers of the LightningModule the swarm has in common."""

from __future__ import annotations

import logging
from typing import Optional

import torch

from hivemind_c.optim.buffer_source import LOCAL, local_sentence, persistent

logger = logging.getLogger("hivemind_c.strategy")
AVERAGE = "average"


def known(value: str) -> str:
    """The value. ValueError: there is no such one."""
    if value not in (AVERAGE, LOCAL):
        raise ValueError(f'buffers must be "{AVERAGE}" or "{LOCAL}", not {value!r}')
    return value


def chosen(value: str, module: torch.nn.Module) -> Optional[torch.nn.Module]:
    """The module whose buffers the swarm has in common. None: each peer has its own, which one line says."""
    if value == AVERAGE:
        return module
    if names := list(persistent(module)):
        logger.warning("%s", local_sentence(names))
    return None
