"""Swarm keys and invitations: where a peer's come from, and how a new one is made. docs/howto/private-swarm.md."""

from __future__ import annotations

import base64
import math
import os
import re
import stat
import time
from typing import Any, Dict, Mapping, NamedTuple, Optional, Union

import _hivemind_c
from _hivemind_c import HivemindOSError, HivemindPermissionError, HivemindValueError

from hivemind_c import _variables

KEY_VARIABLE, INVITE_VARIABLE = "HIVEMIND_SWARM_KEY", "INVITE"
#: text with a key or an invitation in it, or a part of one, and no path: no error shows it
SECRET = re.compile(r"""^[\s"']*(hv[ki]\d|[\w-]{40,}[\s"']*$)|hv[ki]\d[\w-]{8,}""")
#: how people write a secret: as a line of a shell or of a .env file, and in quotes
WRITTEN = re.compile(r"""(?:export[ ]+)?(?:[A-Z_]+=)?(["']?)(.*)\1""", re.DOTALL)
DENIALS, DENIALS_LIMIT = b"hvd1", 65536  #: how the file with a list begins; its most bytes
FILE_LIMIT = 1024  #: bytes of a file with one of them
DAYS_MAX = 36500
DAY_S = 86400


class Secret:
    """A swarm key or an invitation in memory. No text of it, and no pickle, holds what it is.

    Args:
        text: The key or the invitation. None: it was lost, because it went through a pickle.
        path: The file that it was read from. None: it was no file.
    """

    __slots__ = ("_text", "path")

    def __init__(self, text: Optional[str], path: Optional[str] = None):
        self._text, self.path = text, path

    def reveal(self) -> str:
        """Returns the text."""
        if self._text is None:
            raise HivemindValueError(
                "cannot start a node: its swarm key or invitation is not in the pickle that it came from; give it again"
            )
        return self._text

    def __repr__(self) -> str:
        return "<secret>"

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: Any) -> "Secret":
        return self

    def __reduce__(self) -> Any:
        return Secret, (None,)


SecretOrPath = Union[str, os.PathLike, Secret, None]


class Invitation(NamedTuple):
    """An invitation that was made."""

    text: str  #: the secret: a peer that has it can join
    id: str  #: public, such as "inv-3f9a0c1b2d4e5f60"
    name: str
    ends: float  #: seconds since 1970

    def __repr__(self) -> str:
        return f"<hivemind_c.Invitation {self.id} {self.name!r}>"


def invite(swarm_key: SecretOrPath = None, *, days: float = 7, name: str = "") -> Invitation:
    """Makes an invitation to a closed swarm. A web page with a login can serve its text.

    Args:
        swarm_key: The swarm's key: a path, or its text. None: the variable HIVEMIND_SWARM_KEY.
        days: Days for which the invitation counts.
        name: At most 32 letters, digits and "-_." that the monitor shows beside the peers that join by it.
    """
    key = read(swarm_key, "swarm_key", KEY_VARIABLE, os.environ)
    if key is None:
        raise HivemindValueError(
            f"cannot make an invitation: there is no swarm key; give the file that hivemind-invite --new made, or set "
            f"{KEY_VARIABLE}"
        )
    if isinstance(days, bool) or not isinstance(days, (int, float)) or not 0 < days <= DAYS_MAX:
        raise HivemindValueError(f"cannot make an invitation: days must be above 0 and at most {DAYS_MAX}")
    end = math.ceil(time.time() + days * DAY_S)
    text, number = _hivemind_c.invite_new(key.reveal(), end, name)
    return Invitation(text, number, name, float(end))


def new_key(path: Union[str, os.PathLike]) -> None:
    """Makes a swarm key in a new file that its owner alone can read.

    Args:
        path: The file. It is an error if it exists.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise HivemindOSError(
            f"cannot make a swarm key: {os.fspath(path)!r} exists, and a key is never overwritten; give another path"
        ) from None
    except OSError as error:
        raise HivemindOSError(f"cannot make a swarm key: {error.strerror}: {os.fspath(path)!r}") from None
    with os.fdopen(file, "w", encoding="ascii") as out:
        os.fchmod(out.fileno(), 0o600)
        out.write(_hivemind_c.swarm_key_new() + "\n")
        out.flush()
        os.fsync(out.fileno())


def deny(swarm_key: SecretOrPath, number: str) -> None:
    """Adds an ID to the list of denials beside a swarm key. A node that reads the key there spreads the list.

    Args:
        swarm_key: Path of the swarm's key.
        number: ID of an invitation, or of a peer.
    """
    key = read(swarm_key, "swarm_key", KEY_VARIABLE, os.environ)
    path = denials_path(key, None)
    if key is None or path is None:
        raise HivemindValueError("cannot deny: give the file with the swarm's key, beside which the list is kept")
    write_denials(path, _hivemind_c.denials_new(key.reveal(), read_denials(path), number))


def denials_path(key: Optional[Secret], identity_path: Union[str, os.PathLike, None]) -> Optional[str]:
    """Returns the file where a node keeps the list of denials: beside its swarm key, or beside its identity.

    Args:
        key: The swarm key. None: it has none.
        identity_path: File of its identity. None: it has none.
    """
    beside = key.path if key is not None and key.path is not None else identity_path
    return None if beside is None else os.fsdecode(beside) + ".denied"


def read_denials(path: str) -> bytes:
    """Returns the list of denials in a file; empty: there is no such file, or it holds none.

    Args:
        path: The file.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(DENIALS_LIMIT).strip()
        return base64.urlsafe_b64decode(content[len(DENIALS) :]) if content.startswith(DENIALS) else b""
    except (OSError, ValueError):
        return b""


def write_denials(path: str, denials: bytes) -> None:
    """Replaces the list of denials in a file.

    Args:
        path: The file.
        denials: The list.
    """
    draft = f"{path}.{os.getpid()}.new"
    try:
        with open(draft, "wb") as file:
            file.write(DENIALS + base64.urlsafe_b64encode(denials) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise HivemindOSError(
            f"cannot keep the list of denials: {error.strerror}; check the folder's permissions: {path!r}"
        ) from None


def credentials(
    swarm_key: SecretOrPath,
    invitation: SecretOrPath,
    closed: bool = False,
    environment: Optional[Mapping[str, str]] = None,
) -> Dict[str, Any]:
    """Returns the options swarm_key and invite of a node, each a Secret or None, after a check of both.

    Args:
        swarm_key: The option swarm_key: a path, a text, a Secret or None.
        invitation: The option invite: a text, a path, a Secret or None.
        closed: It is an error if both are None.
        environment: The variables that count where an option is None. None: those of this process.
    """
    environment = os.environ if environment is None else environment
    key = read(swarm_key, "swarm_key", KEY_VARIABLE, environment)
    guest = read(invitation, "invite", INVITE_VARIABLE, environment)
    _hivemind_c.membership_of(key and key.reveal(), guest and guest.reveal())
    _variables.warn(environment)
    if closed and key is None and guest is None:
        others = " ".join(f"({_variables.sentence(name)})" for name in _variables.unknown(environment))
        raise HivemindValueError(
            "cannot start a node: it has neither a swarm key nor an invitation, and is to be in a closed swarm; set "
            f"{INVITE_VARIABLE} or {KEY_VARIABLE}, or give invite= or swarm_key= {others}".rstrip()
        )
    return {"swarm_key": key, "invite": guest}


def read(given: SecretOrPath, option: str, variable: str, environment: Mapping[str, str]) -> Optional[Secret]:
    """Returns the secret that an option or, if that is None, a variable names. None: neither is there.

    Args:
        given: The option.
        option: Its name.
        variable: Name of the variable.
        environment: The variables.
    """
    if isinstance(given, Secret):
        return given
    source = option
    if given is None:
        given, source = environment.get(variable), f"the variable {variable}"
        if given is None:
            return None
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"{option}: give a path or a text, not {type(given).__name__}")
    text = os.fsdecode(given)
    if not text.strip("\"' \t\r\n"):
        raise HivemindValueError(
            f"cannot start a node: {source} is empty; give a value, or remove it for an open swarm"
        )
    if isinstance(given, str) and SECRET.search(text) and not os.path.isfile(text):
        return Secret(_bare(text))
    path = text if os.path.lexists(text) else _bare(text)
    return Secret(_of_file(path, source), path)


def kept(swarm_key: SecretOrPath, invitation: SecretOrPath, closed: bool = False) -> Dict[str, Any]:
    """Returns the options swarm_key, invite and closed for a node that starts later, after a check of them.

    An option that is None stays None, so that the node reads the variable again.

    Args:
        swarm_key: The option swarm_key.
        invitation: The option invite.
        closed: The option closed.
    """
    found = credentials(swarm_key, invitation, closed)
    return {
        "swarm_key": None if swarm_key is None else found["swarm_key"],
        "invite": None if invitation is None else found["invite"],
        "closed": closed,
    }


def of_command(swarm_key: Optional[str], invitation: Optional[str], closed: bool = False) -> Dict[str, Any]:
    """Returns the options swarm_key, invite and closed of a node, from the options of a command, which are paths.

    Args:
        swarm_key: The option --swarm_key.
        invitation: The option --invite.
        closed: The option --closed.
    """
    return kept(path_only(swarm_key, KEY_VARIABLE), path_only(invitation, INVITE_VARIABLE), closed)


def path_only(given: Optional[str], variable: str) -> Optional[str]:
    """Returns a path from a command line, or raises HivemindValueError if it is a secret itself.

    Args:
        given: The word. None: there is none.
        variable: Name of the variable that may have the secret.
    """
    if given is not None and SECRET.search(given) and not os.path.isfile(given):
        raise HivemindValueError(
            "a secret on a command line is seen by all users of this machine: give the path of a file with it, or set "
            f"the variable {variable}"
        )
    return given


def to_print(options: Mapping[str, Any], name: str) -> str:
    """Returns the words that invite other peers, "INVITE=hvi1...", or nothing in an open swarm.

    A holder of the key makes an invitation for seven days; a guest shows its own.

    Args:
        options: Options of the node, as credentials() makes them.
        name: Name of an invitation that is made.
    """
    if options["swarm_key"] is not None:
        fit = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:32]
        return f"{INVITE_VARIABLE}={invite(options['swarm_key'], name=fit).text}"
    return "" if options["invite"] is None else f"{INVITE_VARIABLE}={options['invite'].reveal()}"


def _bare(text: str) -> str:
    """Without the one line end that files, and Kubernetes, put there, and without a name and quotes around it."""
    text = text[:-2] if text.endswith("\r\n") else text[:-1] if text.endswith("\n") else text
    written = WRITTEN.fullmatch(text)
    return written[2] if written else text


def _shown(path: str) -> str:
    """A path for an error."""
    return "(its name is not shown, because it looks like a secret)" if SECRET.search(path) else repr(path)


def _of_file(path: Any, source: str) -> str:
    start = f"cannot read the file of {source}"
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise HivemindOSError(f"{start}: {why}; give the path of a file, or the whole text: {_shown(path)}") from None
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode):
        os.close(file)
        raise HivemindOSError(f"{start}: it is not a regular file; give the path of a file: {_shown(path)}")
    with os.fdopen(file, "rb") as opened:
        if about.st_mode & 0o077:
            raise HivemindPermissionError(
                f"{start}: other users may read it (mode {about.st_mode & 0o7777:04o}); run chmod 600 {_shown(path)}"
            )
        if about.st_uid not in (0, os.geteuid()) and os.geteuid() != 0:
            raise HivemindPermissionError(
                f"{start}: another user (number {about.st_uid}) owns it and can change it; give a file of your own: "
                f"{_shown(path)}"
            )
        content = opened.read(FILE_LIMIT + 1)
    try:
        text = content.decode("ascii") if len(content) <= FILE_LIMIT else ""
    except UnicodeDecodeError:
        text = ""
    if not text.strip():
        raise HivemindValueError(f"{start}: it holds no swarm key and no invitation: {_shown(path)}")
    return _bare(text)
