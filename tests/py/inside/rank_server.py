"""Forks ranks that run functions of rank_programs.py, so that a test imports Lightning once and not for each rank.

It reads one JSON object a line: {"call": name, "arguments": {}, "environment": {}, "out": path}. It answers with
{"pid": pid}, and with {"pid": pid, "code": code} once that process has ended. The output of a rank is in its file.
"""

import json
import os
import select
import sys
import traceback


def run(asked):
    out = os.open(asked["out"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, to in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, to)
    sys.stdin = open(0)
    os.environ.update(asked["environment"])
    import rank_programs

    getattr(rank_programs, asked["call"])(**asked["arguments"])


def main():
    import rank_programs  # noqa: F401

    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps({"ready": True}), file=say)
    left, rest = set(), b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.02)
        while left:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            left.discard(pid)
            print(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}), file=say)
        if not readable:
            continue
        read = os.read(0, 1 << 16)
        if not read:
            return
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                return json.loads(line)
            left.add(pid)
            print(json.dumps({"pid": pid}), file=say)


if __name__ == "__main__":
    asked = main()
    if asked is not None:  # in a rank: it ends as any program does
        try:
            run(asked)
        except Exception:
            traceback.print_exc()
            sys.exit(1)
