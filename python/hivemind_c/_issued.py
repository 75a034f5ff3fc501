"""The invitations of a holder of a swarm's key, and the record of them beside it. docs/howto/private-swarm.md."""

from __future__ import annotations

import getpass
import json
import logging
import math
import os
import re
import socket
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import _hivemind_c
from _hivemind_c import HivemindError, HivemindValueError

from hivemind_c._denials import Denials, denied_in
from hivemind_c._invitation import INVITE_VARIABLE, KEY_VARIABLE, Secret, SecretOrPath, read
from hivemind_c._kept import read_file, write_file

logger = logging.getLogger("hivemind_c.node")
SUFFIX, NAME = ".issued", "the record of invitations"
VERSION = 1
LIMIT = 1 << 24  #: most bytes of a record
DAYS_MAX = 36500
DAY_S = 86400
KEEP_S = 400 * DAY_S  #: after its end an invitation is in the record for so long
ID = re.compile(r"inv-[0-9a-f]{16}")
PEER = re.compile(r"12D3KooW[1-9A-HJ-NP-Za-km-z]{44}")


class Invitation(NamedTuple):
    """An invitation that was made."""

    text: str  #: the secret: a peer that has it can join
    id: str  #: public, such as "inv-3f9a0c1b2d4e5f60"
    name: str
    ends: float  #: seconds since 1970

    def __repr__(self) -> str:
        return f"<hivemind_c.Invitation {self.id} {self.name!r}>"


class Issue(NamedTuple):
    """A line of the record."""

    id: str
    name: str
    issued: int  #: seconds since 1970
    by: str  #: user and machine
    ends: int
    text: str  #: the secret

    def __repr__(self) -> str:
        return f"<issue {self.id} {self.name!r}>"

    @property
    def invitation(self) -> Invitation:
        return Invitation(self.text, self.id, self.name, float(self.ends))


def key_of(given: SecretOrPath) -> Secret:
    """Returns the swarm's key, or raises HivemindValueError if there is none.

    Args:
        given: A path, its text, or None: the variable HIVEMIND_SWARM_KEY.
    """
    key = read(given, "swarm_key", KEY_VARIABLE, os.environ)
    if key is None:
        raise HivemindValueError(
            f"cannot make an invitation: there is no swarm key; give the file that hivemind-invite --new made, or set "
            f"{KEY_VARIABLE}"
        )
    return key


def invite(swarm_key: SecretOrPath = None, *, days: float = 7, name: str = "", renew: bool = False) -> Invitation:
    """Returns an invitation to a closed swarm. A web page with a login can serve its text.

    A name has one invitation: until it ends, the same one is returned again. The record beside the key has all of them.

    Args:
        swarm_key: The swarm's key: a path, or its text. None: the variable HIVEMIND_SWARM_KEY.
        days: Days for which a new invitation counts.
        name: At most 32 letters, digits and "-_." that the monitor shows beside the peers that join by it.
        renew: Give the invitation of this name, or with this ID, another end, `days` from now.
    """
    if isinstance(days, bool) or not isinstance(days, (int, float)) or not 0 < days <= DAYS_MAX:
        raise HivemindValueError(f"cannot make an invitation: days must be above 0 and at most {DAYS_MAX}")
    return Record(key_of(swarm_key)).issue(days, name, renew)


class Record:
    """The invitations and denials of a holder of a swarm's key.

    Args:
        key: The key.
    """

    def __init__(self, key: Secret):
        self._key = key
        self.denials = Denials(key, None)

    def read(self) -> List[Issue]:
        """Returns all lines, the oldest first."""
        found: Dict[Any, Issue] = {}
        for path in self.denials.shelf.paths(SUFFIX):
            for issue in self._of_file(path):
                found[issue.id, issue.issued, issue.ends] = issue
        return sorted(found.values(), key=lambda issue: issue.issued)

    @staticmethod
    def _of_file(path: str) -> List[Issue]:
        start = f"cannot read {NAME}"
        content = read_file(path, start, LIMIT, secret=True)
        try:
            document = json.loads(content)
            if document["version"] != VERSION:
                raise HivemindValueError(f"{start}: a newer release made it; upgrade hivemind_c: {path!r}")
            issues = [Issue(*(one[field] for field in Issue._fields)) for one in document["issued"]]
            right = all(
                isinstance(value, int if field in ("issued", "ends") else str)
                for issue in issues
                for field, value in zip(Issue._fields, issue)
            )
            if right and all(ID.fullmatch(issue.id) for issue in issues):
                return issues
        except (ValueError, TypeError, KeyError) as error:
            if isinstance(error, HivemindValueError):
                raise
        raise HivemindValueError(
            f"{start}: it is empty, cut or damaged; put a copy there, or move it away: {path!r}"
        ) from None

    def newest(self) -> Dict[str, Issue]:
        """Returns the newest line of each invitation by its ID."""
        return {issue.id: issue for issue in self.read()}

    def issue(self, days: float, name: str, renew: bool) -> Invitation:
        """Returns the invitation of a name, which it makes or renews if need be, and records it.

        Args:
            days: Days for which a new invitation counts.
            name: Its name; to renew, a name or an ID.
            renew: Give it another end.
        """
        now = time.time()
        with self.denials.shelf.held() as base:
            before = self._current(name, now, renew)
            if before is not None and not renew:
                return before.invitation
            end = math.ceil(now + days * DAY_S)
            if before is None:
                text, number = _hivemind_c.invite_new(self._key.reveal(), end, name, None)
                made = Issue(number, name, int(now), whoami(), end, text)
            else:
                text, number = _hivemind_c.invite_new(self._key.reveal(), end, before.name, before.text)
                made = before._replace(issued=int(now), by=whoami(), ends=end, text=text)
            issues = [issue for issue in self.read() if issue.ends > now - KEEP_S]
            document = {"version": VERSION, "issued": [issue._asdict() for issue in [*issues, made]]}
            write_file(base + SUFFIX, (json.dumps(document, indent=1) + "\n").encode(), NAME)
        return made.invitation

    def _current(self, name: str, now: float, renew: bool) -> Optional[Issue]:
        """The invitation that a name has. None: there is none, or no name."""
        named = [one for one in self.newest().values() if name and name in (one.name, one.id)]
        same = [one for one in named if renew or one.ends > now]
        if not same:
            if renew:
                raise HivemindValueError(
                    f"cannot renew {name!r}: the record has no invitation of that name or ID; see hivemind-invite "
                    "--list"
                )
            return None
        last = same[-1]
        if last.id in denied_in(self.denials.read()):
            raise HivemindValueError(
                f"cannot invite {name!r}: its invitation {last.id} is denied; take that back with hivemind-invite "
                f"--allow {name}, or give another name"
            )
        return last

    def ends_of(self, word: str) -> Dict[str, Optional[int]]:
        """Returns the IDs that a name, or an ID, means, each with its end. None: no end is known.

        Args:
            word: The name or the ID.
        """
        newest = self.newest()
        if ID.fullmatch(word) or PEER.fullmatch(word):
            return {word: newest[word].ends if word in newest else None}
        named: Dict[str, Optional[int]] = {one.id: one.ends for one in newest.values() if one.name == word}
        return named or {word: None}  # the core says that it is no ID

    def deny(self, word: str) -> List[str]:
        """Denies all invitations of a name, or an ID, and returns their IDs.

        Args:
            word: The name, or the ID of an invitation or of a peer.
        """
        ends = self.ends_of(word)
        self.denials.deny(ends)
        return list(ends)

    def allow(self, word: str) -> List[str]:
        """Takes back the denials of a name, or an ID, and returns their IDs.

        Args:
            word: The name, or the ID of an invitation or of a peer.
        """
        named = list(self.ends_of(word))
        denied = denied_in(self.denials.read())
        numbers = [number for number in named if number in denied] or named[:1]
        self.denials.allow(numbers)
        return numbers


def whoami() -> str:
    """Returns the user and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.geteuid())
    return f"{user}@{socket.gethostname()}"


def to_print(options: Mapping[str, Any], name: str) -> str:
    """Returns the words that invite other peers, "INVITE=hvi1...", or nothing in an open swarm.

    A holder of the key has one invitation of that name for seven days at a time; a guest shows its own.

    Args:
        options: Options of the node, as _invitation.credentials() makes them.
        name: Name of the invitation.
    """
    if options["swarm_key"] is None:
        return "" if options["invite"] is None else f"{INVITE_VARIABLE}={options['invite'].reveal()}"
    fit = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:32]
    try:
        return f"{INVITE_VARIABLE}={invite(options['swarm_key'], name=fit).text}"
    except HivemindError as error:
        logger.warning("no invitation is printed: %s", error)
        return ""
