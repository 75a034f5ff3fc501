"""The list of denials of a closed swarm in files: beside the swarm's key or an identity. docs/design/denials.md."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
from typing import Dict, List, Optional, Union

import _hivemind_c
from _hivemind_c import HivemindError, HivemindOSError, HivemindValueError

from hivemind_c._invitation import Secret
from hivemind_c._kept import Mark, Shelf, mark_of, read_file, state_folder, write_file

logger = logging.getLogger("hivemind_c.node")
SUFFIX, NAME = ".denied", "the list of denials"
PREFIX, OLDER = b"hvd2", b"hvd1"  #: how a file begins; how one of an older release does
CHECK = 4  #: bytes of a hash, by which a cut file is noticed
LIMIT = 1 << 18  #: most bytes of a file


def shelf_of(key: Optional[Secret], identity_path: Union[str, os.PathLike, None]) -> Shelf:
    """Returns where a peer keeps its list: beside its swarm key, or its identity, or, with a key, in the state folder.

    Args:
        key: The swarm key. None: it has none.
        identity_path: File of its identity. None: it has none.
    """
    bases = [os.fsdecode(path) for path in (key and key.path, identity_path) if path is not None]
    if key is not None:
        try:
            bases.append(str(state_folder() / f"swarm-{key.swarm}"))
        except OSError:
            logger.debug("there is no state folder for the list of denials")
    return Shelf(bases)


class Denials:
    """The list of a peer in its files.

    Args:
        key: The swarm key. None: the peer is a guest.
        guest: Its invitation. None: it is a holder.
        identity_path: File of its identity. None: it has none.
    """

    def __init__(
        self, key: Optional[Secret], guest: Optional[Secret], identity_path: Union[str, os.PathLike, None] = None
    ):
        self._key, self._guest = key, guest
        self.shelf = shelf_of(key, identity_path)
        self._marks: Dict[str, Optional[Mark]] = {}

    def unite(self, one: bytes, other: bytes) -> bytes:
        """Returns the union of two lists of this swarm.

        Args:
            one: A list.
            other: Another one.
        """
        key, guest = (secret and secret.reveal() for secret in (self._key, self._guest))
        return _hivemind_c.denials_union(key, guest, one, other)

    def read(self) -> bytes:
        """Returns the union of the lists in all files, or nothing. A file that cannot be read is an error."""
        found = b""
        for path in self.shelf.paths(SUFFIX):
            self._marks[path] = mark_of(path)
            found = self.unite(found, self._of_file(path))
        return found

    def _of_file(self, path: str) -> bytes:
        start = "cannot read the list of denials"
        content = read_file(path, start, LIMIT, secret=False).strip()
        why = "it is empty, cut or damaged"
        try:
            if content.startswith(OLDER):
                return self._of_older(base64.urlsafe_b64decode(content[len(OLDER) :]), path)
            whole = base64.urlsafe_b64decode(content[len(PREFIX) :]) if content.startswith(PREFIX) else b""
            bytes_, check = whole[:-CHECK], whole[-CHECK:]
            if whole and check == hashlib.sha256(PREFIX + bytes_).digest()[:CHECK]:
                return self.unite(b"", bytes_)
        except binascii.Error:
            pass
        except HivemindValueError as error:
            why = str(error)
        raise HivemindValueError(
            f"{start}: {why}; put a copy there, or remove the file, and the members give the list back: {path!r}"
        )

    def _of_older(self, old: bytes, path: str) -> bytes:
        if self._key is not None:
            return _hivemind_c.denials_convert(self._key.reveal(), old)
        logger.warning(
            "the list of denials in %r is of an older release, which only a holder of the swarm's key can convert; "
            "this peer gets the new list from the members",
            path,
        )
        return b""

    def has_changed(self) -> bool:
        """True if a file is another one than when it was read or written."""
        return any(self._marks.get(path) != mark_of(path) for path in self.shelf.paths(SUFFIX))

    def write(self, denials: bytes, wait: float = 0.0) -> bytes:
        """Adds a list to the file, and returns what is there then.

        Args:
            denials: The list.
            wait: Longest wait in seconds for another process that writes.
        """
        with self.shelf.held(wait) as base:
            return self._put(base, self.unite(self.read(), denials))

    def _put(self, base: str, denials: bytes) -> bytes:
        path = base + SUFFIX
        check = hashlib.sha256(PREFIX + denials).digest()[:CHECK]
        write_file(path, PREFIX + base64.urlsafe_b64encode(denials + check) + b"\n", NAME)
        self._marks[path] = mark_of(path)
        return denials

    def deny(self, ends: Dict[str, Optional[int]]) -> bytes:
        """Denies IDs, and returns the list then.

        Args:
            ends: The end of each invitation by its ID, in seconds since 1970. None: not known, or it is a peer.
        """
        with self.shelf.held() as base:
            now = self.read()
            denied = denied_in(now)
            for number, end in ends.items():
                if number not in denied:
                    now = _hivemind_c.denials_new(self._reveal(), now, number, end)
            return self._put(base, now)

    def allow(self, numbers: List[str]) -> bytes:
        """Takes back the denials of IDs, and returns the list then.

        Args:
            numbers: The IDs.
        """
        with self.shelf.held() as base:
            now = self.read()
            for number in numbers:
                now = _hivemind_c.denials_take_back(self._reveal(), now, number)
            return self._put(base, now)

    def _reveal(self) -> str:
        if self._key is None:
            raise HivemindValueError("cannot deny: only a holder of the swarm's key can; give the file with the key")
        return self._key.reveal()

    def say_if_not_kept(self) -> None:
        """Warns if this peer is a holder of the key and can keep no list."""
        if self._key is not None and self.shelf.base is None:
            logger.warning(
                "this holder of the swarm's key can keep no list of denials, and forgets it at its end: no folder "
                "beside the key, the identity or the state can be written; give identity_path in a folder of its own"
            )

    def keep(self, denials: bytes) -> Optional[bytes]:
        """Called now and then: brings the file and a node's list together. Returns what the node lacks; None: nothing.

        Args:
            denials: The node's list.
        """
        if self.shelf.base is None:
            return None
        try:
            there = self.read() if self.has_changed() else self._last
            both = self.unite(there, denials)
            self._last = self.write(both) if both != there else there
            return self._last if self._last != denials else None
        except (HivemindError, HivemindOSError) as error:
            logger.warning("%s", error)
            return None

    _last = b""  #: the list in the files, as they were read last


def denied_in(denials: bytes) -> Dict[str, Optional[int]]:
    """Returns the IDs that a list denies, each with its end in seconds since 1970, or None.

    Args:
        denials: The list.
    """
    return {number: end for number, is_denied, end in _hivemind_c.denials_read(denials) if is_denied}
