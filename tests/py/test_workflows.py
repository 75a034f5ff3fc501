"""What GitHub runs, and what the Dockerfile copies and calls, exists here by the same names."""

import pathlib
import re
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.M))
TARGETS = {name for line in TARGETS for name in line.split()}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def jobs(path):
    return yaml.safe_load(path.read_text())["jobs"]


def steps(job):
    """The commands of a job; a matrix's word is tried with each of its values."""
    for step in job["steps"]:
        (word,) = {match for match in re.findall(r"\$\{\{ matrix\.(\w+) \}\}", step.get("run", ""))} or {None}
        for value in job["strategy"]["matrix"][word] if word else [""]:
            yield step, re.sub(r"\$\{\{ matrix\.\w+ \}\}", str(value), step.get("run", ""))


def test_there_are_workflows_for_tests_sanitizers_and_wheels_on_both_processors():
    assert [path.stem for path in WORKFLOWS] == ["sanitizers", "tests", "wheels"]
    (test,) = jobs(WORKFLOWS[1]).values()
    wheel = jobs(WORKFLOWS[2])["wheel"]
    for job in (test, wheel):
        assert job["strategy"]["matrix"]["os"] == ["ubuntu-24.04", "ubuntu-24.04-arm"] and job["runs-on"] == "${{ matrix.os }}"
    assert jobs(WORKFLOWS[0])["sanitizer"]["strategy"]["matrix"]["kind"] == ["asan", "tsan"]


def schema_says(path):
    """What GitHub's schema for workflows, which check-jsonschema brings along, has against a file; "" is nothing."""
    done = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", path], capture_output=True, text=True)
    assert (done.returncode == 0) == ("ok -- validation done" in done.stdout) and not done.stderr, done.stderr
    return "" if done.returncode == 0 else done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_they_are_what_github_takes(path, tmp_path):
    assert not schema_says(path)
    for right, wrong in (("timeout-minutes: ", "timeout-minute: "), ("runs-on: ", "run-on: "), ("permissions: { contents: read }", "permissions: { contents: look }")):
        assert right in path.read_text()
        (tmp_path / "wrong.yml").write_text(path.read_text().replace(right, wrong))
        assert "errors were encountered" in schema_says(tmp_path / "wrong.yml"), wrong


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_calls_what_there_is(path):
    for name, job in jobs(path).items():
        assert job["timeout-minutes"] <= 120 and job["steps"][0] == {"uses": "actions/checkout@v4"}, name
        for step, command in steps(job):
            assert set(step) & {"run", "uses"}, step
            if "container" in job and "make " in command and "install" not in command:
                assert job["container"]["image"] == "debian:12" and any("apt-get install -y make" in one.get("run", "") for one in job["steps"]), "it has no make"
            for target in re.findall(r"(?:^|&& |do .*; )make ([a-z-]+)", command):
                assert target in TARGETS, command
            for script in re.findall(r"(scripts/\S+)", command + " " + str(step.get("with", ""))):
                assert (ROOT / script.strip("',)")).exists(), command
            assert "${{" not in command, f"{command}: a name that its matrix does not have"


def test_the_fuzzers_are_found_by_their_files():
    (command,) = [step["run"] for step in jobs(WORKFLOWS[0])["fuzz"]["steps"] if "make fuzz" in step.get("run", "")]
    (pattern,) = re.findall(r"in (\S+); do", command)
    names = {path.stem.removeprefix("fuzz_") for path in ROOT.glob(pattern)}
    assert names and names == {path.name for path in (ROOT / "tests/fuzz/corpus").iterdir()}


def test_the_docker_image_is_made_of_what_there_is():
    ignored = (ROOT / ".dockerignore").read_text().split()
    for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.M):
        for word in words.split()[:-1]:
            assert (ROOT / word).exists() and word.rstrip("/") not in ignored, word
    for script in re.findall(r"(?:/source/)?(scripts/\S+)", DOCKERFILE):
        assert (ROOT / script).exists(), script
    assert (ROOT / "examples" / re.search(r'CMD \["python", "(.+)"\]', DOCKERFILE)[1]).exists()
    assert {".venv*", "csrc/build", "build"} <= set(ignored), "what was built here has no place in there"
