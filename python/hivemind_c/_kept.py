"""Files that must not be lost, beside a key or an identity: one writer at a time, and the old content or the new."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import stat
import time
from typing import Iterator, List, Optional, Sequence, Tuple, Union

from _hivemind_c import HivemindOSError, HivemindPermissionError

WAIT_S = 10.0  #: longest wait for another process that writes
#: errors of a folder in which nothing can be written
NO_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)
Mark = Tuple[int, int, int, int]  #: of a file: its number, size and times of its content and its permissions


def state_folder() -> pathlib.Path:
    """Where commands keep what must outlive them: $XDG_STATE_HOME/hivemind_c."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    folder = pathlib.Path(base, "hivemind_c")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def read_file(
    path: Union[str, os.PathLike], start: str, limit: int, secret: bool, shown: Optional[str] = None
) -> bytes:
    """Returns the content of a file; errors begin with `start`.

    Args:
        path: The file.
        start: Beginning of errors, such as "cannot read the file of invite".
        limit: Most bytes; one more is returned of a larger file.
        secret: True if other users may not read it.
        shown: The path as errors name it. None: as it is.
    """
    shown = repr(path) if shown is None else shown
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise HivemindOSError(f"{start}: {why}; give the path of a file, or the whole text: {shown}") from None
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode):
        os.close(file)
        raise HivemindOSError(f"{start}: it is not a regular file; give the path of a file: {shown}")
    with os.fdopen(file, "rb") as opened:
        if secret and about.st_mode & 0o077:
            raise HivemindPermissionError(
                f"{start}: other users may read it (mode {about.st_mode & 0o7777:04o}); run chmod 600 {shown}"
            )
        if secret and about.st_uid not in (0, os.geteuid()) and os.geteuid() != 0:
            raise HivemindPermissionError(
                f"{start}: another user (number {about.st_uid}) owns it and can change it; give a file of your own: "
                f"{shown}"
            )
        return opened.read(limit + 1)


def mark_of(path: str) -> Optional[Mark]:
    """Returns a mark that changes with the content and the permissions of a file. None: there is no file.

    Args:
        path: The file.
    """
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


class Shelf:
    """A place for files: the first one of several that can be written.

    Args:
        bases: The places, such as the path of a key: a file's name is that of a place and a suffix.
    """

    def __init__(self, bases: Sequence[str]):
        self._bases = list(bases)
        self.base = next((base for base in self._bases if self._can_write(base)), None)

    @staticmethod
    def _open_lock(base: str) -> int:
        return os.open(f"{base}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _can_write(self, base: str) -> bool:
        try:
            os.close(self._open_lock(base))
        except OSError as error:
            if error.errno not in NO_PLACE:
                raise HivemindOSError(
                    f"cannot write beside {base!r}: {error.strerror}; make room, or give another path"
                ) from None
            return False
        return True

    def paths(self, suffix: str) -> List[str]:
        """Returns the files of all places that are there.

        Args:
            suffix: Suffix of the file.
        """
        return [base + suffix for base in self._bases if os.path.lexists(base + suffix)]

    @contextlib.contextmanager
    def held(self, wait: float = WAIT_S) -> Iterator[str]:
        """Holds the place: no other process writes there meanwhile. Gives the place.

        Args:
            wait: Longest wait in seconds.
        """
        if self.base is None:
            raise HivemindOSError(
                "cannot keep anything beside the swarm's key: no folder of it can be written; use a copy of the key in "
                f"a folder of yours (tried: {', '.join(map(repr, self._bases))})"
            )
        lock = self._open_lock(self.base)
        try:
            deadline = time.monotonic() + wait
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() >= deadline:
                        raise HivemindOSError(
                            f"cannot write beside {self.base!r}: another process holds {self.base + '.lock'!r}; try "
                            "again"
                        ) from None
                    time.sleep(0.02)
            yield self.base
        finally:
            os.close(lock)


def write_file(path: str, content: bytes, name: str) -> None:
    """Replaces a file that its owner alone can read. After an error the old content is there.

    Args:
        path: The file.
        content: Its new content.
        name: How errors name it, such as "the list of denials".
    """
    draft = f"{path}.{os.getpid()}.new"
    start = f"cannot keep {name}"
    if os.path.islink(path):
        raise HivemindOSError(
            f"{start}: {path!r} is a link, and the file to which it leads would not change; put the file there"
        )
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "wb") as out:
                os.fchmod(out.fileno(), 0o600)
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            os.replace(draft, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise HivemindOSError(
            f"{start}: {error.strerror}; check the disk and the folder's permissions: {path!r}"
        ) from None
