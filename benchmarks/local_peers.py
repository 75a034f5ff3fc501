"""Trainers in processes of their own, for the rows `storms` and `scaling`: their events, and how they are stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import package
from benchmarks.frame import BenchmarkError
from benchmarks.programs import ROOT

START_S = 120.0


def command(events, options):
    """Returns the words that start a trainer (benchmarks/local_trainer.py), and its environment.

    Args:
        events: Path of the file for its events.
        options: A dict of its options.
    """
    words = [sys.executable, "-W", "ignore", "-m", "benchmarks.local_trainer", str(events), json.dumps(options)]
    return words, {**os.environ, "PYTHONPATH": package.path(str(ROOT))}


def read(path):
    """Returns the events of a file, without a last one that is not whole.

    Args:
        path: The file.
    """
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


class Trainer:
    """A place in which a trainer runs, is killed, and runs again with the same identity.

    Args:
        folder: Path for its files.
        number: Of the place.
        options: Options of all its lives.
    """

    def __init__(self, folder, number, **options):
        self.folder, self.number, self.lives, self._options = Path(folder), number, 0, options
        self.start()

    def start(self, **options):
        """Begins a life.

        Args:
            **options: Options that differ from now on.
        """
        self.lives += 1
        self._options.update(options)
        own = {"seed": 1000 * self.number + self.lives, "identity": str(self.folder / f"{self.number}.key")}
        words, env = command(self.path, {**self._options, **own})
        with (self.folder / f"errors{self.number}").open("a") as errors:
            ends = dict(stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)
            self.process = subprocess.Popen(words, env=env, cwd=ROOT, **ends)

    @property
    def path(self):
        return self.folder / f"events{self.number}.{self.lives}"

    def events(self, what=None):
        """Returns the events of this life.

        Args:
            what: Their kind. None: all.
        """
        return [event for event in read(self.path) if what is None or event["what"] == what]

    def first(self, what):
        """Waits for an event of this life, and returns it.

        Args:
            what: Its kind.
        """
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if found := self.events(what):
                return found[0]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        errors = (self.folder / f"errors{self.number}").read_text()[-400:]
        raise BenchmarkError(f"trainer {self.number} did not come to {what!r}: {errors}")

    def kill(self):
        """Ends this life at once."""
        self.process.kill()
        self.process.wait()

    def stop(self, seconds):
        """Stands still for so many seconds.

        Args:
            seconds: How long.
        """
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        """Leaves politely."""
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
