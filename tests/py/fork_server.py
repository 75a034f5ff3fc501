"""Forks programs from a process that has imported what they import. tests/py/forking.py starts it, and asks.

    python fork_server.py SOCKET MODULE...

A message is a JSON object, {"source", "arguments", "environment", "folder"}, with the program's standard files. The
answer is the number of its process. Its parent is the process that asked, which is a subreaper meanwhile.
"""

import faulthandler
import gc
import importlib
import json
import os
import signal
import socket
import sys
import types
import warnings

MOST = 1 << 20  #: bytes of a message


def orphan():
    """0 in a new process whose parent has ended, else its number."""
    seen, told = os.pipe()
    between = os.fork()
    if between == 0:
        number = os.fork()
        if number == 0:
            os.close(seen)
            os.close(told)
            return 0
        os.write(told, b"%d" % number)
        os._exit(0)
    os.close(told)
    os.waitpid(between, 0)
    number = int(os.read(seen, 32))
    os.close(seen)
    return number


def serve(asked):
    """Answers until nobody asks any more: None. In a forked process: its request."""
    while True:
        message, files, _, _ = socket.recv_fds(asked, MOST, 3)
        if not message:
            return None
        number = orphan()
        if number == 0:
            asked.close()
            for target, file in enumerate(files):
                os.dup2(file, target)
        for file in files:
            os.close(file)
        if number == 0:
            return json.loads(message)
        asked.send(b"%d" % number)


def become(request):
    """This process is as if it had been started with the request's environment; returns its __main__."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    for name, file in (("stdout", 1), ("stderr", 2)):
        stream = open(file, "w", buffering=1, closefd=False, errors="backslashreplace" if file == 2 else None)
        stream.reconfigure(write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    faulthandler.enable()
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    known = set(sys.path)
    sys.path[0] = ""
    sys.path[1:1] = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and one not in known]
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules and "OMP_NUM_THREADS" in os.environ:
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.argv = ["-c", *request["arguments"]]
    sys.modules["__main__"] = types.ModuleType("__main__")
    return sys.modules["__main__"].__dict__


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who ask
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        asked.send(b"ready")
        return serve(asked)


if __name__ == "__main__":
    asked_for = main()
    if asked_for is not None:  # it ends as any program does
        exec(compile(asked_for["source"], "<string>", "exec"), become(asked_for))
