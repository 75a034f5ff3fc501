"""A schema for records in which peers tell their progress, for SchemaValidator; it needs pydantic."""

from __future__ import annotations

from typing import Dict, Optional

from hivemind_c.dht.schema import BytesWithPublicKey

import pydantic  # isort: skip  # behind the line that says which version is needed


class ProgressRecord(pydantic.BaseModel):
    """How far one peer is, as it tells."""

    peer_id: bytes
    epoch: int = pydantic.Field(ge=0)
    samples_accumulated: int = pydantic.Field(ge=0)
    samples_per_second: float = pydantic.Field(ge=0)
    time: float
    client_mode: bool


class TrainingProgressSchema(pydantic.BaseModel):
    """Under PREFIX_progress each peer stores its own record. ProgressTracker keeps to these bounds by itself and stores
    nothing under that key.
    """

    progress: Dict[BytesWithPublicKey, Optional[ProgressRecord]]
