"""Swarm keys and invitations: where a peer's come from, and how a new key is made. docs/howto/private-swarm.md."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Mapping, Optional, Union

import _hivemind_c
from _hivemind_c import HivemindOSError, HivemindValueError

from hivemind_c import _variables
from hivemind_c._kept import read_file

KEY_VARIABLE, INVITE_VARIABLE = "HIVEMIND_SWARM_KEY", "INVITE"
#: text with a key or an invitation in it, or a part of one, and no path: no error shows it
SECRET = re.compile(r"""^[\s"']*(hv[ki]\d|[\w-]{40,}[\s"']*$)|hv[ki]\d[\w-]{8,}""")
#: how people write a secret: as a line of a shell or of a .env file, and in quotes
WRITTEN = re.compile(r"""(?:export[ ]+)?(?:[A-Z_]+=)?(["']?)(.*)\1""", re.DOTALL)
FILE_LIMIT = 1024  #: bytes of a file with one of them


class Secret:
    """A swarm key or an invitation in memory. No text of it, and no pickle, holds what it is.

    Args:
        text: The key or the invitation. None: it was lost, because it went through a pickle.
        path: The file that it was read from. None: it was no file.
    """

    __slots__ = ("_text", "path", "_swarm")

    def __init__(self, text: Optional[str], path: Optional[str] = None):
        self._text, self.path = text, path
        self._swarm: Optional[str] = None

    def reveal(self) -> str:
        """Returns the text."""
        if self._text is None:
            raise HivemindValueError(
                "cannot start a node: its swarm key or invitation is not in the pickle that it came from; give it again"
            )
        return self._text

    @property
    def swarm(self) -> str:
        """Digits that name the swarm of this key, and are no secret."""
        if self._swarm is None:
            self._swarm = _hivemind_c.membership_of(self.reveal(), None)[1]
        return self._swarm

    def renew(self, text: str) -> None:
        """Replaces the invitation by its renewed one, for the nodes that start later.

        Args:
            text: The invitation.
        """
        self._text = text

    def __repr__(self) -> str:
        return "<secret>"

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: Any) -> "Secret":
        return self

    def __reduce__(self) -> Any:
        return Secret, (None,)


SecretOrPath = Union[str, os.PathLike, Secret, None]


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
    swarm = _hivemind_c.membership_of(key and key.reveal(), guest and guest.reveal())[1]
    if key:
        key._swarm = swarm
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
    return Secret(of_file(path, source), path)


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


def _bare(text: str) -> str:
    """Without the one line end that files, and Kubernetes, put there, and without a name and quotes around it."""
    text = text[:-2] if text.endswith("\r\n") else text[:-1] if text.endswith("\n") else text
    written = WRITTEN.fullmatch(text)
    return written[2] if written else text


def shown(path: str) -> str:
    """Returns a path for an error.

    Args:
        path: The path, which may be a secret.
    """
    return "(its name is not shown, because it looks like a secret)" if SECRET.search(path) else repr(path)


def _of_output(text: str) -> str:
    """The secret in what hivemind-invite and hivemind-hub print: comments, and words such as INVITE=hvi1..."""
    words = [word for line in text.splitlines() if not line.lstrip().startswith("#") for word in line.split()]
    given = [word.partition("=")[2] for word in words if word.startswith((f"{INVITE_VARIABLE}=", f"{KEY_VARIABLE}="))]
    return given[0] if given else text


def of_file(path: Any, source: str) -> str:
    """Returns the text of the secret in a file.

    Args:
        path: The file.
        source: Name of the option or variable that named it.
    """
    start = f"cannot read the file of {source}"
    name = shown(path)
    content = read_file(path, start, FILE_LIMIT, secret=True, shown=name)
    try:
        text = content.decode("ascii") if len(content) <= FILE_LIMIT else ""
    except UnicodeDecodeError:
        text = ""
    if not text.strip():
        raise HivemindValueError(f"{start}: it holds no swarm key and no invitation: {name}")
    return _bare(_of_output(text))
