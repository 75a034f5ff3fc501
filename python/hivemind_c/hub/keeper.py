"""The keeper of one run's state: downloads each new one as a joiner does, keeps it on disk, and offers it."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any, List, Optional

from _hivemind_c import HivemindConnectionError, HivemindError, HivemindLookupError

from hivemind_c.averaging.image import Image
from hivemind_c.hub.files import Checkpoints
from hivemind_c.hub.sizes import in_words

logger = logging.getLogger("hivemind_c.hub")
LOOK_S, LOAD_S = 5.0, 600.0  #: the longest look at the states on offer, and the longest download
FIRST_S, MOST_S = 1.0, 5.0  #: between two looks: at first, and while nothing new is there
PRIORITY = 1.0  #: a joiner asks a hub before the trainers, which have other work
DECLARE_MS = 10_000


class Keeper:
    """Follows the state of one run.

    Args:
        node: The core's node.
        run_id: Name of the run.
        size_max: Most bytes of a state.
        every: Epochs from one state to the next.
        files: Where states are kept on disk. None: in memory only.
    """

    def __init__(self, node: Any, run_id: str, size_max: int, every: int, files: Optional[Checkpoints]):
        self._node, self._run_id, self._key = node, run_id, f"{run_id}_state_averager".encode()
        self._size_max, self._every, self._files = size_max, every, files
        self.held: Optional[Image] = None  #: the state on offer
        self._in_use: List["weakref.ref[Any]"] = []  # the images that take memory
        self._pause, self._told = FIRST_S, ""
        self._is_unsaved = self._disk_failed = False
        self._turn = threading.Lock()  # of those that change the offer

    def resume(self) -> None:
        """Offers the newest state on disk, if there is one."""
        image = self._files.newest(self._size_max) if self._files is not None else None
        if image is not None:
            self._offer(image)
            logger.info("%s: offering the state of epoch %d from disk", self._run_id, image.epoch)

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
        return 0 if self.held is None else self.held.epoch + self._every

    @property
    def has_room(self) -> bool:
        """True unless joiners still download the state before the present one."""
        self._in_use = [use for use in self._in_use if use() is not None]
        return len(self._in_use) < 2

    def take(self, image: Image) -> bool:
        """Keeps a state and offers it. False: it is too old by now.

        Args:
            image: The state.
        """
        with self._turn:
            if image.epoch < self.least:
                return False
            self._offer(image)
            self._is_unsaved, self._told = True, ""
            logger.info("%s: keeping the state of epoch %d, %s", self._run_id, image.epoch, in_words(image.size))
            self._save()
        return True

    def _tell(self, text: str) -> None:
        """Logs a warning, unless it was the latest one."""
        if text != self._told:
            self._told = text
            logger.warning("%s", text)

    def _look(self) -> bool:
        """Takes the newest state if it is another than the one held. False: there is none."""
        if not self.has_room:
            return False
        least = self.least
        try:
            self._node.state_look(self._key, LOOK_S, least).result()
        except (HivemindLookupError, HivemindConnectionError):
            return False  # nobody offers one, or its donors have gone
        image = self._load(least)
        return image is not None and self.take(image)

    def _load(self, least: int) -> Optional[Image]:
        try:
            loading = self._node.state_load(self._key, LOAD_S, self._size_max, least)
            epoch, metadata, _, parts, _, kinds = loading.result()
        except HivemindError as error:
            if error.status != "TOO_LARGE":
                raise
            self._tell(
                f"{self._run_id}: this hub does not keep the state, which is larger than {in_words(self._size_max)}: "
                "give it more --memory; it remains an entrance and a monitor"
            )
            return None
        return Image(epoch, metadata, tuple(parts), tuple(kinds))

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
