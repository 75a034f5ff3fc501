"""Programs in processes of their own, forked from one that has imported torch or Lightning already.

Of the processor's seconds of a program of a test, such imports take most: 1.3 for torch, 4.5 with Lightning.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

SERVER = Path(__file__).with_name("fork_server.py")
SUBREAPER = 36  #: of prctl(): orphans below this process become its children
WAIT_S = 120  #: for the imports
#: modules of programs that may be forked: such a program tests nothing of how it imports them
TORCH = "torch", "hivemind_c", "optim_support"
LIGHTNING = "hivemind_c", "trainers", "lightning.pytorch"


class Server:
    """A process that has imported some modules, and forks."""

    _running = {}
    _lock = threading.Lock()

    def __init__(self, modules):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(WAIT_S)
        with theirs:
            subprocess.Popen(
                [sys.executable, SERVER, str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip
        assert self._socket.recv(16) == b"ready", f"cannot fork: no server with {modules}"

    def fork(self, request, files):
        """The number of a process, which is a child of this one."""
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        with self._lock:
            prctl(SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], files)
                return int(self._socket.recv(32))
            finally:
                prctl(SUBREAPER, 0, 0, 0, 0)

    @classmethod
    def of(cls, modules):
        """The server with these modules in this process."""
        with cls._lock:
            if modules not in cls._running:
                cls._running[modules] = cls(modules)
            return cls._running[modules]


class Forked:
    """A process, as subprocess.Popen shows one.

    Args:
        source: Its program.
        arguments: Of sys.argv.
        environment: Its variables.
        modules: TORCH or LIGHTNING, or others that a test names.
        output: File to which all that it says is added; its input is empty then. None: each standard file is a pipe.
    """

    stdin = stdout = stderr = None

    def __init__(self, source, arguments, environment, modules, output=None):
        self.returncode, self._lock = None, threading.Lock()
        if output is None:
            ends = [os.pipe() for _ in range(3)]
            theirs, ours = [ends[0][0], ends[1][1], ends[2][1]], [ends[0][1], ends[1][0], ends[2][0]]
        else:
            told = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            theirs, ours = [os.open(os.devnull, os.O_RDONLY), told, os.dup(told)], []
        request = dict(source=source, arguments=arguments, environment=environment, folder=os.getcwd())
        try:
            self.pid = Server.of(modules).fork(request, theirs)
        finally:
            for file in theirs:
                os.close(file)
        if ours:
            self.stdin, self.stdout, self.stderr = (open(file, mode) for file, mode in zip(ours, "wrr"))

    def poll(self):
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout=None):
        until = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("a forked program", timeout)
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(9)

    def terminate(self):
        self.send_signal(15)


def start(source, arguments, environment, imports=None, before=()):
    """A Python program in a process of its own, with pipes for its standard files.

    Args:
        source: Its program.
        arguments: Of sys.argv.
        environment: Its variables.
        imports: TORCH or LIGHTNING: it is forked. None: it is a new interpreter, which imports by itself.
        before: Words before the command of a new interpreter.
    """
    if imports is not None and not before:
        return Forked(source, arguments, environment, imports)
    flags = ["-u", "-W", "ignore:This process:DeprecationWarning", "-X", "faulthandler"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    command = [*before, sys.executable, *flags, "-c", source, *arguments]
    return subprocess.Popen(command, text=True, env=environment, **pipes)
