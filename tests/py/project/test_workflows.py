"""The files that GitHub runs, and that the Dockerfile copies and calls, exist here by the same names."""

import itertools
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from hivemind_c import _needs
from support import module_of

ROOT = pathlib.Path(__file__).resolve().parents[3]
WORKFLOWS = {path.stem: path for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
TARGETS = set(re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.M))
TARGETS = {name for line in TARGETS for name in line.split()}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def jobs(path):
    return yaml.safe_load(path.read_text())["jobs"]


def steps(job):
    """The commands of a job; the words of a matrix are replaced by each of their values."""
    for step in job["steps"]:
        words = sorted(set(re.findall(r"\$\{\{ matrix\.(\w+) \}\}", step.get("run", ""))))
        for values in itertools.product(*(job["strategy"]["matrix"][word] for word in words)):
            command = step.get("run", "")
            for word, value in zip(words, values):
                command = command.replace(f"${{{{ matrix.{word} }}}}", str(value))
            yield step, command


def test_workflows_cover_tests_sanitizers_and_wheels():
    assert list(WORKFLOWS) == ["release", "sanitizers", "tests", "wheels"]
    for job in (jobs(WORKFLOWS["tests"])["test"], jobs(WORKFLOWS["wheels"])["wheel"]):
        assert (
            job["strategy"]["matrix"]["os"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
            and job["runs-on"] == "${{ matrix.os }}"
        )
    assert jobs(WORKFLOWS["sanitizers"])["sanitizer"]["strategy"]["matrix"]["kind"] == ["asan", "tsan"]


def schema_says(path):
    """The objections to a file of GitHub's schema for workflows, from check-jsonschema; "" if there are none."""
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", path],
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) == ("ok -- validation done" in done.stdout) and not done.stderr, done.stderr
    return "" if done.returncode == 0 else done.stdout


@pytest.mark.parametrize("path", WORKFLOWS.values(), ids=lambda path: path.stem)
def test_workflows_fit_githubs_schema(path, tmp_path):
    assert not schema_says(path)
    for right, wrong in (
        ("timeout-minutes: ", "timeout-minute: "),
        ("runs-on: ", "run-on: "),
        ("permissions: { contents: read }", "permissions: { contents: look }"),
    ):
        assert right in path.read_text()
        (tmp_path / "wrong.yml").write_text(path.read_text().replace(right, wrong))
        assert "errors were encountered" in schema_says(tmp_path / "wrong.yml"), wrong


@pytest.mark.parametrize("path", WORKFLOWS.values(), ids=lambda path: path.stem)
def test_each_step_calls_an_existing_target(path):
    for name, job in jobs(path).items():
        if "uses" in job:
            assert "workflow_call" in yaml.safe_load((ROOT / job["uses"]).read_text())[True], (
                name
            )  # YAML reads on as True
            continue
        assert job["timeout-minutes"] <= 120 and job["steps"][0] == {"uses": "actions/checkout@v4"}, name
        for step, command in steps(job):
            assert set(step) & {"run", "uses"}, step
            if "container" in job and "make " in command and "install" not in command:
                assert job["container"]["image"] == "debian:12" and any(
                    "apt-get install -y make" in one.get("run", "") for one in job["steps"]
                ), "it has no make"
            for target in re.findall(r"(?:^|&& |do .*; )make ([a-z-]+)", command):
                assert target in TARGETS, command
            for script in re.findall(r"(scripts/\S+)", command + " " + str(step.get("with", ""))):
                assert (ROOT / script.strip("',)")).exists(), command
            assert "${{" not in command, f"{command}: a name that its matrix does not have"


def test_the_fuzzers_are_found_by_their_files():
    (command,) = [
        step["run"] for step in jobs(WORKFLOWS["sanitizers"])["fuzz"]["steps"] if "make fuzz" in step.get("run", "")
    ]
    (pattern,) = re.findall(r"in (\S+); do", command)
    names = {path.stem.removeprefix("fuzz_") for path in ROOT.glob(pattern)}
    assert names and names == {path.name for path in (ROOT / "tests/fuzz/corpus").iterdir()}


def test_docker_image_copies_existing_files():
    ignored = (ROOT / ".dockerignore").read_text().split()
    for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.M):
        for word in words.split()[:-1]:
            assert (ROOT / word).exists() and word.rstrip("/") not in ignored, word
    for script in re.findall(r"(?:/source/)?(scripts/\S+)", DOCKERFILE):
        assert (ROOT / script).exists(), script
    assert (ROOT / "examples" / re.search(r'CMD \["python", "(.+)"\]', DOCKERFILE)[1]).exists()
    assert {".venv*", "csrc/build", "build"} <= set(ignored), "what was built here has no place in there"


# ---- versions and releases ----


def test_versions_that_are_claimed_are_tested():
    """Each Python of the classifiers with the newest torch and Lightning, and the lowest at both ends that NumPy's
    lowest version has."""
    claimed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    matrix = jobs(WORKFLOWS["tests"])["versions"]["strategy"]["matrix"]
    assert (
        matrix["python"] == claimed
        and matrix["with"] == ["newest"]
        and {"python": claimed[0], "with": "lowest"} in matrix["include"]
    )
    (found,) = [
        step["with"]["python-version"] for step in jobs(WORKFLOWS["tests"])["pythons"]["steps"] if "with" in step
    ]
    assert found.split() == claimed


@pytest.fixture(scope="module")
def script():
    """script(name) is the module of scripts/NAME.py."""
    return lambda name: module_of(ROOT / f"scripts/{name}.py")


def test_lowest_versions_are_those_that_are_checked(script):
    versions = script("versions")
    numbers = {name: ".".join(map(str, lowest)) for name, lowest in _needs.LOWEST.items()}
    assert versions.requirements(["lowest"]) == [
        f"{name}=={numbers[name]}.*" for name in ("torch", "numpy", "lightning", "pytorch-lightning")
    ]
    assert versions.requirements(["torch==2.13.0", "lightning==2.4.0"]) == [
        "torch==2.13.0",
        "lightning==2.4.0",
        "numpy",
        "pytorch-lightning==2.4.0",
    ]
    assert all((ROOT / test).exists() for test in versions.TESTS)


def test_versions_says_if_nothing_was_tested(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/versions.py", "--python", "/bin/false", "lowest"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and "nothing was tested" in done.stderr


def test_release_is_built_attested_and_published_by_a_person():
    release = yaml.safe_load(WORKFLOWS["release"].read_text())
    assert set(release[True]) == {"release", "workflow_dispatch"} and release[True]["release"] == {
        "types": ["published"]
    }  # YAML reads on as True
    assert release["permissions"] == {"contents": "read"}
    publish = release["jobs"]["publish"]
    assert publish["needs"] == "build" and publish["environment"] == "pypi"
    assert publish["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}
    used = [step.get("uses", step.get("run", "")).split("@")[0] for step in publish["steps"]]
    assert used == [
        "actions/checkout",
        "actions/download-artifact",
        'python3 scripts/release.py dist "$GITHUB_REF"',
        "actions/attest-build-provenance",
        "pypa/gh-action-pypi-publish",
    ]
    assert not re.search(r"password|secrets\.|token:", WORKFLOWS["release"].read_text().replace("id-token: write", ""))


RELEASED = [
    "hivemind_c-1.2.3-cp310-abi3-manylinux_2_34_aarch64.whl",
    "hivemind_c-1.2.3-cp310-abi3-manylinux_2_34_x86_64.whl",
    "hivemind_c-1.2.3.tar.gz",
]
CHANGES = "# Changes\n\n## Unreleased\n\n## 1.2.3 - 2027-01-31\n\n- It works.\n"


@pytest.mark.parametrize(
    ("names", "ref", "changes", "words"),
    [
        (RELEASED, "refs/tags/v1.2.3", CHANGES, None),
        (RELEASED, "refs/heads/main", CHANGES, "is not the tag of version 1.2.3"),
        (RELEASED, "refs/tags/v1.2.4", CHANGES, "is not the tag of version 1.2.3"),
        (RELEASED, "refs/tags/v1.2.3", CHANGES.replace("1.2.3", "1.2.2"), "has no section"),
        (
            RELEASED,
            "refs/tags/v1.2.3",
            CHANGES.replace("Unreleased\n", "Unreleased\n\n### Fixed\n\n- More.\n"),
            "under 'Unreleased'",
        ),
        (RELEASED[:2], "refs/tags/v1.2.3", CHANGES, "0 files match"),
        ([*RELEASED, "hivemind_c-1.2.2.tar.gz"], "refs/tags/v1.2.3", CHANGES, "is no file of this release"),
    ],
)
def test_release_is_checked(script, names, ref, changes, words):
    found = list(script("release").complaints(names, ref, "1.2.3", changes))
    assert found == [] if words is None else len(found) == 1 and words in found[0]


def test_release_that_is_wrong_is_refused(tmp_path):
    (tmp_path / "hivemind_c-9.9.9.tar.gz").touch()
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/release.py", tmp_path, "refs/heads/main"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and "release: cannot publish" in done.stderr and "9.9.9" in done.stderr
