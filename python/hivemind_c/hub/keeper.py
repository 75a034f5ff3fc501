"""The keeper of one run's state: downloads each new one as a joiner does, keeps it on disk, and offers it.

The core decides which states it keeps (csrc/core/epoch/keep.h).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import _hivemind_c
from _hivemind_c import HivemindConnectionError, HivemindError, HivemindLookupError

from hivemind_c._record import Recorder
from hivemind_c.averaging.image import EPOCH_MAX, Image
from hivemind_c.hub.files import Checkpoints
from hivemind_c.hub.sizes import in_words

logger = logging.getLogger("hivemind_c.hub")
LOOK_S, LOAD_S = 5.0, 600.0  #: the longest look at the states on offer; the longest a download stands still
DECLARE_MS = 10_000
REFUSED_MAX = 16  #: digests of states that are not downloaded again
FAULTS = {  #: why a state is not of the run that trains now
    "AHEAD": "it is of swarm epoch {epoch}, and the trainers are in {now.epoch}",
    "UNREACHED": f"it is of swarm epoch {{epoch}}, and no run reaches more than {EPOCH_MAX}",
    "SETUP": "its setup is not that of the trainers",
}


class Training(NamedTuple):
    """The trainers of a run at one moment."""

    epoch: int  #: the epoch that they are counted at
    setup: bytes  #: the setup that most of them have


def nobody() -> Optional[Training]:
    """Returns None: no trainer is counted."""
    return None


class Keeper:
    """Follows the state of one run.

    It takes only the state of the run that trains now (docs/design/hub.md).

    Args:
        node: The core's node.
        run_id: Name of the run.
        size_max: Most bytes of a state.
        every: Epochs from one state to the next.
        files: Where states are kept on disk. None: in memory only.
        training: A function that returns the Training of the run. None: no trainer is counted.
    """

    def __init__(
        self,
        node: Any,
        run_id: str,
        size_max: int,
        every: int,
        files: Optional[Checkpoints],
        training: Callable[[], Optional[Training]] = nobody,
    ):
        self.record = Recorder(node.peer_id, run_id, "hub")
        self._node, self._run_id, self._key = node, run_id, f"{run_id}_state_averager".encode()
        self._size_max, self._files, self._training = size_max, files, training
        self._keep = _hivemind_c.Keep(every)
        self.held: Optional[Image] = None  #: the state on offer
        self._in_use: List["weakref.ref[Any]"] = []  # the images that take memory
        self._told = ""
        self._is_unsaved = self._disk_failed = False
        self._refused: List[bytes] = []  # digests of states of another run
        self._turn = threading.Lock()  # of those that change the offer

    def resume(self) -> None:
        """Offers the newest state on disk, if there is one."""
        image = self._files.newest(self._size_max) if self._files is not None else None
        if image is not None:
            self._offer(image)
            logger.info("%s: offering the state of swarm epoch %d from disk", self._run_id, image.epoch)

    def run(self, ended: threading.Event) -> None:
        """Follows the run until ended is set.

        Args:
            ended: The end.
        """
        while not ended.wait(self._keep.pause):
            begun = time.monotonic()
            try:
                found = self._look()
            except HivemindError as error:
                if ended.is_set():
                    return
                self._tell(f"{self._run_id}: could not follow the state, will retry: {error}")
                found = False
            self._keep.looked(found, time.monotonic() - begun)

    @property
    def epoch(self) -> int:
        """The epoch of the state on offer, or 0. A reference to the state itself would keep its memory."""
        return self._keep.epoch

    @property
    def size_max(self) -> int:
        """Most bytes of a state."""
        return self._size_max

    @property
    def every(self) -> int:
        """Epochs from one state to the next."""
        return self._keep.every

    @property
    def least(self) -> int:
        """The oldest epoch whose state is of use."""
        return self._keep.least(self._training())

    @property
    def has_room(self) -> bool:
        """True unless joiners still download the state before the present one."""
        return self._keep.has_room(self._used())

    def _used(self) -> int:
        self._in_use = [use for use in self._in_use if use() is not None]
        return len(self._in_use)

    def take(self, image: Image) -> bool:
        """Keeps a state and offers it. False: it is too old by now.

        Raises ValueError if it is not of the run that trains now.

        Args:
            image: The state.
        """
        with self._turn:
            now = self._training()
            verdict, fault = self._keep.judge(image.epoch, image.setup, now)
            if verdict == "REFUSE":
                reason = FAULTS[fault].format(epoch=image.epoch, now=now)
                self.record("refuse", epoch=image.epoch, mark=image.lineage, why=reason)
                raise ValueError(reason)
            if verdict == "OLD":
                return False
            if verdict == "REPLACE":
                self._give_way(FAULTS[fault].format(epoch=self.epoch, now=now), image.epoch)
            self._offer(image)
            self._is_unsaved, self._told = True, ""
            self.record("keep", epoch=image.epoch, mark=image.lineage, swarm=now.epoch if now else None)
            logger.info("%s: keeping the state of swarm epoch %d, %s", self._run_id, image.epoch, in_words(image.size))
            self._save()
        return True

    def _give_way(self, reason: str, epoch: int) -> None:
        """Sets the checkpoints of another run aside, which begin at that epoch."""
        aside = [] if self._files is None else self._files.set_aside(epoch)
        logger.warning(
            "%s: the state of swarm epoch %d that this hub held gives way to the trainers' of swarm epoch %d: %s%s",
            self._run_id,
            self.epoch,
            epoch,
            reason,
            f"; its checkpoints are set aside, such as {aside[0]}" if aside else "",
        )

    def _tell(self, text: str) -> None:
        """Logs a warning, unless it was the latest one."""
        if text != self._told:
            self._told = text
            logger.warning("%s", text)

    def _look(self) -> bool:
        """Takes the newest state if it is another than the one held. False: there is none."""
        step = self._keep.look(self._training(), self._used())
        try:
            while step == "LOOK":
                step = self._keep.found(self._node.state_look(self._key, LOOK_S, self._keep.known).result())
            if step != "LOAD":
                return False
            digest, image = self._load(self._keep.known)
        except (HivemindLookupError, HivemindConnectionError):
            return False  # nobody offers one, or its donors have gone
        try:
            return image is not None and self.take(image)
        except ValueError as reason:
            self._refused = [*self._refused, digest][-REFUSED_MAX:]
            self._tell(f"{self._run_id}: refusing the state that peers offer: {reason}")
            return False

    def _load(self, least: int) -> Tuple[bytes, Optional[Image]]:
        try:
            loading = self._node.state_load(self._key, LOAD_S, self._size_max, least, b"".join(self._refused))
            epoch, metadata, _, parts, digest, kinds = loading.result()
        except HivemindError as error:
            if error.status != "TOO_LARGE":
                raise
            self._tell(
                f"{self._run_id}: this hub does not keep the state, which is larger than {in_words(self._size_max)}: "
                "give it more --memory; it remains an entrance and a monitor"
            )
            return b"", None
        return digest, Image(epoch, metadata, tuple(parts), tuple(kinds))

    def _offer(self, image: Image) -> None:
        parts = tuple((part, *kind) for part, kind in zip(image.parts, image.kinds))
        self._node.state_offer(
            self._key, image.epoch, image.metadata, parts, _hivemind_c.HUB_PRIORITY, DECLARE_MS, image.lineage
        ).result()
        self.held = image
        self._keep.hold(image.epoch, image.setup)
        if (use := image.last_use()) is not None:
            self._in_use.append(use)

    def _save(self) -> None:
        if self._files is None or self.held is None or not self._is_unsaved:
            return
        self._is_unsaved = False
        try:
            self._files.save(self.held)
            self._disk_failed = False
        except OSError as error:
            if not self._disk_failed:
                logger.warning(
                    "%s: no checkpoint was written: %s; the hub keeps the state in memory, and tries again with the "
                    "next one",
                    self._run_id,
                    error.strerror or error,
                )
            self._disk_failed = True
