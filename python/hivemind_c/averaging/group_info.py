"""The members of one averaging."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

from hivemind_c.p2p import PeerID


class GroupInfo(NamedTuple):
    """A group that has averaged, as StepControl.group has it."""

    group_id: bytes  #: equal in members that hold the same averages
    peer_ids: Tuple[PeerID, ...]
    gathered: Tuple[Any, ...]  #: what each of them gave to be gathered

    @property
    def group_size(self) -> int:
        return len(self.peer_ids)

    def __contains__(self, peer_id: Any) -> bool:
        return peer_id in self.peer_ids


__all__ = ["GroupInfo"]
