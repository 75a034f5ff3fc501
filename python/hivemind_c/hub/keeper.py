"""The keeper of one run's state: downloads each new one as a joiner does, keeps it on disk, and offers it."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from _hivemind_c import HivemindConnectionError, HivemindError, HivemindLookupError

from hivemind_c._record import Recorder
from hivemind_c.averaging.image import EPOCH_MAX, Image
from hivemind_c.hub.files import Checkpoints
from hivemind_c.hub.sizes import in_words

logger = logging.getLogger("hivemind_c.hub")
LOOK_S, LOAD_S = 5.0, 600.0  #: the longest look at the states on offer, and the longest download
FIRST_S, MOST_S = 1.0, 5.0  #: between two looks: at first, and while nothing new is there
PRIORITY = 1.0  #: a joiner asks a hub before the trainers, which have other work
DECLARE_MS = 10_000
AHEAD = 2  #: epochs that trainers may be ahead of their count, which is of a moment ago
REFUSED_MAX = 16  #: digests of states that are not downloaded again


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
        self._size_max, self._every, self._files, self._training = size_max, every, files, training
        self.held: Optional[Image] = None  #: the state on offer
        self._in_use: List["weakref.ref[Any]"] = []  # the images that take memory
        self._pause, self._told = FIRST_S, ""
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
        while not ended.wait(self._pause):
            begun = time.monotonic()
            try:
                found = self._look()
            except HivemindError as error:
                if ended.is_set():
                    return
                self._tell(f"{self._run_id}: could not follow the state, will retry: {error}")
                found = False
            # a state that takes long to download is not downloaded all of the time
            self._pause = max(FIRST_S, time.monotonic() - begun) if found else min(1.5 * self._pause, MOST_S)

    @property
    def epoch(self) -> int:
        """The epoch of the state on offer, or 0. A reference to the state itself would keep its memory."""
        return self.held.epoch if self.held is not None else 0

    @property
    def size_max(self) -> int:
        """Most bytes of a state."""
        return self._size_max

    @property
    def every(self) -> int:
        """Epochs from one state to the next."""
        return self._every

    @property
    def least(self) -> int:
        """The oldest epoch whose state is of use."""
        return self._least(self._training())

    def _least(self, now: Optional[Training]) -> int:
        if self.held is None:
            return 0
        # the state of trainers that have ended an epoch without the one held takes its place
        return 1 if _foreign(self.held, now) else self.held.epoch + self._every

    @property
    def has_room(self) -> bool:
        """True unless joiners still download the state before the present one."""
        self._in_use = [use for use in self._in_use if use() is not None]
        return len(self._in_use) < 2

    def take(self, image: Image) -> bool:
        """Keeps a state and offers it. False: it is too old by now.

        Raises ValueError if it is not of the run that trains now.

        Args:
            image: The state.
        """
        with self._turn:
            now = self._training()
            if reason := _foreign(image, now):
                self.record("refuse", epoch=image.epoch, mark=image.lineage, why=reason)
                raise ValueError(reason)
            if image.epoch < self._least(now):
                return False
            if self.held is not None and image.epoch < self.held.epoch + self._every:
                self._give_way(_foreign(self.held, now), image.epoch)
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
            self.held.epoch if self.held is not None else 0,
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
        now = self._training()
        least = self._least(now)
        # nobody else makes a newer state than the trainers; the first one may be left from trainers that have gone
        if not self.has_room or (self.held is not None if now is None else now.epoch + AHEAD < least):
            return False
        # trainers that are counted there are what a joiner knows of an epoch: a smaller majority is enough
        known = least if now is not None and now.epoch >= least else 0
        try:
            epoch = self._node.state_look(self._key, LOOK_S, known).result()
            if known and not _is_reached(epoch, now):
                known = 0
                epoch = self._node.state_look(self._key, LOOK_S, known).result()
            if epoch < least or not _is_reached(epoch, now):
                return False
            digest, image = self._load(known)
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
            self._key, image.epoch, image.metadata, parts, PRIORITY, DECLARE_MS, image.lineage
        ).result()
        self.held = image
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


def _is_reached(epoch: int, now: Optional[Training]) -> bool:
    return epoch <= (EPOCH_MAX if now is None else now.epoch + AHEAD)


def _foreign(image: Image, now: Optional[Training]) -> str:
    """Why a state is not of the run that trains now. "": it may be."""
    if not _is_reached(image.epoch, now):
        return f"it is of swarm epoch {image.epoch}, and " + (
            f"the trainers are in {now.epoch}" if now is not None else f"no run reaches more than {EPOCH_MAX}"
        )
    if now is not None and now.setup and image.setup != now.setup:
        return "its setup is not that of the trainers"
    return ""
