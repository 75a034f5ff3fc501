"""Takes the pictures of terminals and of the monitor's page that docs/ shows, of the real programs at work: the demos, one of them in a browser; a swarm of three quickstarts, the monitor and the doctor that look at it.

    .venv/bin/python scripts/pictures.py [folder]     some minutes; docs/pictures by default"""

import fcntl
import io
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

from rich.console import Console
from rich.text import Text

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 400.0  # seconds for any one thing to be seen
QUICKSTART = "examples/quickstart.py"


class Terminal:
    """A program in a terminal of so many columns, and all that it has written."""

    def __init__(self, *command, columns=132, **environment):
        self.columns, self.text = columns, ""
        here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "HIVEMIND_COMMAND": "make quickstart", **environment}
        self.process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=env, stdin=there, stdout=there, stderr=subprocess.STDOUT, start_new_session=True)
        os.close(there)
        threading.Thread(target=self._read, args=(here,), daemon=True).start()

    def _read(self, here):
        try:
            while words := os.read(here, 1 << 16):
                self.text += words.decode(errors="replace").replace("\r\n", "\n")
        except OSError:  # a terminal without a program is an error
            pass

    def until(self, pattern):
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.text, re.M)):
            if time.monotonic() > end:
                sys.exit(f"pictures: {pattern} was not seen in\n{self.text[-3000:]}")
            time.sleep(0.2)
        return found

    def ended(self):
        self.process.wait(PATIENCE)
        time.sleep(0.5)
        return self.text

    def kill(self):
        self.process.kill()
        self.process.wait()


def keep(folder, name, title, columns, text):
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text.rstrip()), soft_wrap=False)
    picture = re.sub(r"@font-face \{.*?\}\n", "", console.export_svg(title=title), flags=re.S)  # nothing is fetched from elsewhere
    (folder / f"{name}.svg").write_text(re.sub(r"terminal-\d+", f"terminal-{name}", picture))
    print(folder / f"{name}.svg", flush=True)


#: a dozen of the demo's hundred lines: its turns, as the peer that is there from beginning to end reports them
TURNS = re.compile(
    r"two trainers|trains, as peer|joins late|is killed|amber.*one (more|less)|equal to the bit|all of it worked"
)


def shorten(folder, name, program, turns):
    """Keeps the lines of a demo that report its turns."""
    shown = [line for line in Terminal(program).ended().splitlines() if turns.search(line)]
    widest = max(len(Text.from_ansi(line).plain) for line in shown)
    keep(folder, name, f"make {name}, shortened", widest + 1, "\n".join(shown))


#: the same of the demo with NATs; trainers start in any order, so only one of them is shown
NAT_TURNS = re.compile(
    r"a hub, and|the hub has|is at home|amber.*(trains, as peer|one (more|less))|is killed|equal to the bit|all of it worked"
)


def still_gathers(bar):
    """True if the progress bar shows three peers, and fewer samples than a step takes."""
    count = re.search(r"swarm=(\d+)/(\d+) .*peers=3", bar)
    return bool(count) and int(count[1]) < int(count[2])


def swarm(folder):
    running = [Terminal(QUICKSTART, HIVEMIND_NAME="amber")]
    try:
        line = running[0].until(r"^INITIAL_PEERS=(\S+) make quickstart$")
        running += [Terminal(QUICKSTART, HIVEMIND_NAME=name, INITIAL_PEERS=line[1]) for name in ("blue", "coral")]
        options = "--run_id", "lightning_run", "--initial_peers", line[1]
        monitor = Terminal("-m", "hivemind_c.cli.monitor", *options, "--host_maddrs", "/ip4/0.0.0.0/tcp/0", "--history", "none", "--web", "0", columns=140)
        running.append(monitor)
        for one in running[:3]:
            one.until(r"peers=3")
        monitor.until(r"3 peers")
        time.sleep(15)
        frames = monitor.text
        bar = [part for part in re.split(r"[\r\n]", running[0].text) if still_gathers(part)][-1]
        doctor = Terminal("-m", "hivemind_c.cli.doctor", *options).ended()
        keep(folder, "quickstart", "make quickstart", 132, f"A swarm begins here. To join it, run this on other machines, any number of them:\n\n{line[0]}\n\n{bar}")
        frame = re.split(r"\x1b\[2K", frames)[-2 if frames.endswith("\x1b[2K") else -1].lstrip("\r\n")
        keep(folder, "terminal", "hivemind-monitor --run_id lightning_run", 140, frame)
        keep(folder, "doctor", "hivemind-doctor --run_id lightning_run --initial_peers ...", 132, doctor)
    finally:
        for one in running:
            one.kill()


def page(folder):
    """The monitor's page in a browser, while the demo's third trainer trains."""
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    if browser is None:
        sys.exit("pictures: no chromium is here: run scripts/setup.sh browser")
    demo, profile = Terminal("examples/demo/demo.py", WEB="0"), tempfile.mkdtemp(dir=os.environ["XDG_STATE_HOME"])
    try:
        address = demo.until(r"shows all of it at (\S+?)(?:\x1b|$)")[1]
        demo.until(r"coral.*epoch .*3 peers")
        flags = "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"
        shot = f"--screenshot={folder / 'monitor.png'}", "--window-size=1200,900", "--virtual-time-budget=3000"
        subprocess.run([browser, *flags, *shot, f"--user-data-dir={profile}", address], check=True, capture_output=True)
        print(folder / "monitor.png", flush=True)
    finally:
        demo.process.send_signal(signal.SIGINT)
        demo.ended()


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/pictures")
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        swarm(target)
        page(target)
        shorten(target, "demo", "examples/demo/demo.py", TURNS)
        shorten(target, "demo-nat", "examples/demo/nat.py", NAT_TURNS)
