"""The tutorials, done as they say: the programs, the kill, and each line of output that a page promises."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from support import eventually

ROOT = pathlib.Path(__file__).resolve().parents[3]
TUTORIALS = ROOT / "docs/tutorial"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
PATIENCE = 300  #: seconds for what takes a second or ten on an idle machine

#: takes the place of the last epoch of own-model.md: the test says when the end is near, on a machine of any speed
UNTIL = """
class Until:
    def __le__(self, epoch):
        return os.path.exists("until") and epoch >= int(open("until").read())

EPOCHS = Until()
"""


def promised(page, who):
    """The lines of output that the page shows after <!-- WHO -->, as patterns: numbers and `...` are free."""
    text = page.read_text()
    block = re.search(rf"<!-- {who} -->\n\n```text\n(.*?)```", text, re.S)[1]
    free = [
        (r"\.\.\.", ".*"),
        (r"\b[0-9a-f]{12}\b", "[0-9a-f]{12}"),
        (r"eta=\S+", r"eta=\\S+"),
        (r"\d+(?:\.\d+)*", r"[0-9.]+"),
    ]
    union = "|".join(f"({pattern})" for pattern, _ in free)

    def pattern_of(line):
        out, at = "", 0
        for found in re.finditer(union, line):
            out += re.escape(line[at : found.start()]) + free[found.lastindex - 1][1].replace("\\\\", "\\")
            at = found.end()
        return out + re.escape(line[at:])

    return [pattern_of(line) for line in block.splitlines()]


class Terminal:
    """A program whose output is kept in a file."""

    def __init__(self, path, *command, folder, **env):
        self.path = path
        with open(path, "w") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, cwd=folder, env={**ENV, **env}, start_new_session=True
            )

    @property
    def text(self):
        return self.path.read_text(errors="replace").replace("\r", "\n")

    def last(self, name):
        """The last value of a figure in the progress bar."""
        return int((re.findall(rf"{name}=(\d+)", self.text) or ["-1"])[-1])

    def shows(self, patterns):
        missing = [pattern for pattern in patterns if not re.search(pattern, self.text)]
        assert not missing, (missing, self.text[-3000:])

    def until(self, condition):
        """Waits for what may be true for a moment only, so it is looked at once a turn."""
        seen = []
        eventually(lambda: seen.append(condition()) or seen[-1] or self.process.poll() is not None, PATIENCE)
        assert seen[-1], self.text[-3000:]


@pytest.fixture
def terminal(tmp_path):
    """terminal(...) runs Python in a folder of the test; what still runs at the end is killed."""
    opened = []

    def start(*arguments, **env):
        path = tmp_path / f"terminal{len(opened)}"
        one = Terminal(path, sys.executable, *map(str, arguments), folder=tmp_path, **env)
        opened.append(one)
        return one

    yield start
    for one in opened:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()


def invitation(first):
    """The address in the line to paste."""
    first.until(lambda: "\nINITIAL_PEERS=" in first.text)
    return re.search(r"(?m)^INITIAL_PEERS=(\S+)", first.text)[1]


@pytest.mark.timeout(900)
def test_first_swarm_shows_the_promised_lines(terminal, tmp_path):
    page, program = TUTORIALS / "first-swarm.md", tmp_path / "quickstart.py"
    text = (ROOT / "examples/quickstart.py").read_text()
    assert "target_batch_size=131072" in text
    program.write_text(text.replace("target_batch_size=131072", "target_batch_size=8192"))
    first = terminal(program, HIVEMIND_COMMAND="make quickstart", INITIAL_PEERS="")
    second = terminal(program, HIVEMIND_COMMAND="make quickstart", INITIAL_PEERS=invitation(first))
    for one in (first, second):
        one.until(lambda one=one: one.last("peers") == 2)
        one.shows(promised(page, "output of all peers"))
    first.shows(promised(page, "output of the first peer"))
    assert "A swarm begins here" not in second.text and second.last("global_epoch") > 0
    first.process.send_signal(signal.SIGINT)
    second.until(lambda: second.last("peers") == 1)
    second.shows(promised(page, "output of the survivors"))
    assert promised(page, "last output of the survivors") == ["accuracy"]  # test_examples.py trains to the end


@pytest.mark.timeout(900)
def test_own_model_survives_a_kill_with_equal_weights(terminal, tmp_path):
    page = TUTORIALS / "own-model.md"
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", page.read_text())
    program = "\n".join(blocks).replace("EPOCHS = 300\n", UNTIL)
    program = program.replace("target_batch_size=16384", "target_batch_size=2048")
    assert "class Until" in program and "=2048" in program and "train.py" in page.read_text()
    (tmp_path / "train.py").write_text(program)
    first = terminal("train.py", HIVEMIND_COMMAND="python train.py", INITIAL_PEERS="")
    address = invitation(first)
    second, third = (terminal("train.py", HIVEMIND_COMMAND="python train.py", INITIAL_PEERS=address) for _ in "23")
    survivors = (first, third)
    for one in (first, second, third):
        one.until(lambda one=one: one.last("peers") == 3)
    os.kill(int(re.search(r"(?m)^process (\d+)$", second.text)[1]), signal.SIGKILL)
    for one in survivors:
        one.until(lambda one=one: one.last("peers") == 2)
    (tmp_path / "near").write_text(str(max(one.last("global_epoch") for one in survivors) + 20))
    (tmp_path / "near").rename(tmp_path / "until")
    for one in survivors:
        assert one.process.wait(PATIENCE) == 0, one.text[-3000:]
        one.shows([line for who in ("all peers", "the survivors") for line in promised(page, f"output of {who}")])
        one.shows(promised(page, "last output of the survivors"))
    first.shows(promised(page, "output of the first peer"))
    ends = {re.search(r"swarm epoch (\d+) weights (\w+)", one.text).groups() for one in survivors}
    assert len(ends) == 1, ends


def test_promised_lines_are_patterns_of_their_numbers():
    (line,) = promised(TUTORIALS / "own-model.md", "last output of the survivors")
    assert re.fullmatch(line, "swarm epoch 12 weights 0123456789ab")
    assert not re.fullmatch(line, "swarm epoch 12 weights x123456789ab")
