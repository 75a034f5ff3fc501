"""The file of an invitation, read again when it changes. docs/design/invitations.md, "Renewal"."""

from __future__ import annotations

import os
import time
from typing import Optional, Tuple

from _hivemind_c import HivemindOSError

from hivemind_c._invitation import Secret, of_file, shown
from hivemind_c._kept import Mark, mark_of

STILL_S = 2.0  #: a file that has changed is read when nobody has written to it for so long
SOURCE = "invite"  #: name of the option in errors


class Renewal:
    """The file that an invitation came from.

    Args:
        guest: The invitation.
    """

    def __init__(self, guest: Secret):
        self._path = os.path.abspath(guest.path) if guest.path is not None else None
        self._text = guest.reveal()
        self._is_link = self._path is not None and os.path.islink(self._path)
        self._read: Optional[Tuple[Optional[Mark], bool]] = None  # the file that was read last
        self._seen, self._since = self._now(), time.monotonic()

    def _now(self) -> Tuple[Optional[Mark], bool]:
        if self._path is None:
            return None, False
        return mark_of(self._path), os.path.islink(self._path)

    def look(self) -> Optional[str]:
        """Called now and then: returns another invitation if the file has one. None: there is none, or no file.

        A file that cannot be read is an error, once.
        """
        found = self._now()
        if found != self._seen:
            self._seen, self._since = found, time.monotonic()
        if found == self._read or time.monotonic() < self._since + STILL_S:
            return None
        self._read = found
        mark, is_link = found
        if is_link and not self._is_link:
            raise HivemindOSError(
                f"cannot read the file of {SOURCE}: it has become a link; put the file there: {shown(str(self._path))}"
            )
        if self._path is None or mark is None:
            return None
        text = of_file(self._path, SOURCE)
        return None if text == self._text else text

    def took(self, text: str) -> None:
        """Notes that the node uses this invitation.

        Args:
            text: The invitation.
        """
        self._text = text
