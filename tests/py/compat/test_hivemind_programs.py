"""Programs in the manner of hivemind's documentation (tests/py/compat/programs), through the import hook as they stand and
with hivemind_c's name in their imports."""

import json
import os
import pathlib
import re
import runpy
import subprocess
import sys

import pytest

PROGRAMS = sorted(path for path in (pathlib.Path(__file__).parent / "programs").glob("[a-z]*.py"))


@pytest.fixture(scope="module")
def hook(tmp_path_factory):
    """hook(path) runs a program in a process that began as python -m hivemind_c.as_hivemind; what went wrong, or
    None."""
    folder = tmp_path_factory.mktemp("hook")
    with open(folder / "errors", "w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "hivemind_c.as_hivemind", PROGRAMS[0].parent / "_run.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip

        def run(path):
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            for line in process.stdout:
                if line.startswith("@"):
                    return json.loads(line[1:])
            return (folder / "errors").read_text()

        yield run
        process.stdin.close()
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.stdout.close()


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program_runs_through_the_import_hook(hook, path):
    error = hook(path)
    assert error is None, error


def renamed(source):
    """The one change that docs/howto/migrate-from-hivemind.md asks for without the import hook."""
    source = re.sub(r"^import hivemind$", "import hivemind_c as hivemind", source, flags=re.M)
    return re.sub(r"^from hivemind([. ])", r"from hivemind_c\1", source, flags=re.M)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program_runs_with_the_name_changed(path, tmp_path):
    source = path.read_text()
    other = tmp_path / path.name
    other.write_text(renamed(source))
    assert other.read_text() != source and not re.search(r"^(import|from) hivemind\b(?!_c)", other.read_text(), re.M)
    runpy.run_path(str(other), run_name="__main__")
    assert "hivemind" not in sys.modules
