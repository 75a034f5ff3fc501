"""Machines that cannot build or install: each says so in one sentence with its remedy, before anything long begins.

The conditions are real: file systems that are full or read-only and a missing network, each in a namespace of the
test's own.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = [sys.executable, "setup.py", "-q", "build_ext"]
LONG = "installing requirements.txt"  # setup.sh says so before it


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, **options)


def last(done):
    """The last line that a command which failed wrote to stderr; it is not in the middle of a traceback."""
    assert done.returncode not in (0, 9), done.stderr
    assert "Traceback" not in done.stderr and LONG not in done.stderr, done.stderr
    return done.stderr.strip().split("\n")[-1]


def apart(script, *arguments, net=False):
    """Runs it with mounts of its own, and without a network if net."""
    return run(
        "unshare",
        "-rmn" if net else "-rm",
        "sh",
        "-c",
        script,
        "sh",
        *arguments,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull, "LC_ALL": "C"},
    )


def tools(folder, *without):
    """A PATH with all programs of the system but some."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in pathlib.Path(place).glob("*"):
            if program.name not in without:
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program)
    return {**os.environ, "PATH": str(folder)}


@pytest.fixture
def checkout(tmp_path):
    """The files of the repository that setup.sh needs, with one small requirement."""
    (tmp_path / "checkout/scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/setup.sh", tmp_path / "checkout/scripts")
    lines = (ROOT / "requirements.txt").read_text().split("\n")
    (tmp_path / "checkout/requirements.txt").write_text(
        next(line for line in lines if line.startswith("msgpack")) + "\n"
    )
    return tmp_path / "checkout"


# ---- a missing compiler ----


def test_build_names_a_missing_compiler(tmp_path):
    told = last(run(*BUILD, cwd=ROOT, env=tools(tmp_path / "bin", "cc")))
    assert (
        told.startswith("hivemind_c cannot be built: this machine has no cc; ")
        and "run apt-get install build-essential" in told
    )


def test_build_names_the_compiler_that_was_chosen():
    told = last(run(*BUILD, cwd=ROOT, env={**os.environ, "CC": "no-such-cc -O2"}))
    assert told.startswith("hivemind_c cannot be built: this machine has no no-such-cc; ")


@pytest.mark.parametrize("libraries, is_told", [("", True), ("-lminiupnpc -lnatpmp", False)])
def test_build_without_the_port_libraries_says_so(tmp_path, libraries, is_told):
    """The C library is replaced, so the build ends where it would link it; it has spoken before that."""
    (tmp_path / "csrc/include").mkdir(parents=True)
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copy(ROOT / "csrc/include/hivemind_c.h", tmp_path / "csrc/include")
    (tmp_path / "csrc/Makefile").write_text(f"lib lowrank cuda:\nport-libs:\n\t@echo {libraries}\n")
    told = run(*BUILD, cwd=tmp_path).stderr
    sentence = "peers ask no router to open their port; on Debian and Ubuntu, run apt-get install libminiupnpc-dev"
    assert (sentence in told) == is_told, told


def test_setup_names_the_package_of_a_missing_compiler(checkout, tmp_path):
    told = last(run(checkout / "scripts/setup.sh", "venv", env=tools(tmp_path / "bin", "cc", "apt-get")))
    assert told == "setup: this system has no apt-get: install what Debian calls build-essential, then run this again"


# ---- a folder that cannot be written ----

READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1" || exit 9; shift; exec "$@"'


def test_build_refuses_a_read_only_folder(tmp_path):
    shutil.copy(ROOT / "setup.py", tmp_path)
    for folder in ("csrc", "pyproject.toml", "README.md", "LICENSE", "python"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    told = last(apart(READ_ONLY, tmp_path, *BUILD))
    assert (
        told == f"hivemind_c cannot be built: the folder {tmp_path} cannot be written; copy the sources to one that can"
    )


def test_setup_refuses_a_read_only_checkout(checkout):
    told = last(apart(READ_ONLY, checkout, "scripts/setup.sh", "venv"))
    assert (
        told
        == "setup: could not make .venv: the folder . cannot be written; clone the repository to a folder that can "
        "be written"
    )


def test_setup_names_a_read_only_cache_before_the_download(checkout, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    done = apart(
        READ_ONLY.replace("exec", f"cd {checkout}; PIP_CACHE_DIR={cache}/pip exec"),
        cache,
        "scripts/setup.sh",
        "venv",
        net=True,
    )
    said = (
        f"setup: pip keeps no downloads: its cache {cache}/pip cannot be written; set PIP_CACHE_DIR to a folder "
        f"that can be, or download again each time"
    )
    assert said in done.stderr.split("\n") and "the network does not answer" in last(done)


# ---- a full disk ----

SMALL = 'mount -t tmpfs -o "$1" tmpfs "$2" && cp -r "$3"/. "$2" && cd "$2" || exit 9; shift 3; exec "$@"'


def test_build_refuses_a_full_disk(tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "sources").mkdir()
    shutil.copy(ROOT / "setup.py", tmp_path / "sources")
    for folder in ("csrc", "pyproject.toml", "README.md", "LICENSE", "python"):
        (tmp_path / "sources" / folder).symlink_to(ROOT / folder)
    told = last(apart(SMALL, "size=8m", tmp_path / "small", tmp_path / "sources", *BUILD))
    assert (
        told.startswith(f"hivemind_c cannot be built: the disk of {tmp_path / 'small'} has ")
        and "free some space" in told
    )


@pytest.mark.parametrize("size", ["size=20m", "size=3g,nr_inodes=60"])
def test_setup_refuses_a_full_disk(checkout, tmp_path, size):
    (tmp_path / "small").mkdir()
    told = last(apart(SMALL, size, tmp_path / "small", checkout, "scripts/setup.sh", "venv"))
    assert told.startswith("setup: could not make .venv: the disk ") and "free some space" in told


def test_setup_refuses_a_full_temporary_folder(checkout, tmp_path):
    (tmp_path / "small").mkdir()
    script = 'mount -t tmpfs -o size=4m tmpfs "$1" && cd "$2" || exit 9; TMPDIR=$1 exec scripts/setup.sh venv'
    told = last(apart(script, tmp_path / "small", checkout))
    assert (
        told.startswith(f"setup: could not install requirements.txt: the disk of {tmp_path / 'small'} has ")
        and "set TMPDIR" in told
    )


# ---- no network ----


def test_setup_says_that_there_is_no_network(checkout):
    told = last(apart('cd "$1" && exec scripts/setup.sh venv', checkout, net=True))
    assert (
        told
        == "setup: could not install requirements.txt: the network does not answer; connect this machine (behind a "
        "proxy, set HTTPS_PROXY), then run this again"
    )


def test_setup_says_that_apt_has_no_network(checkout, tmp_path):
    (tmp_path / "lists/partial").mkdir(parents=True)
    (tmp_path / "apt.conf").write_text(
        f'APT::Sandbox::User "root"; Dir::State::lists "{tmp_path}/lists";\n'
    )  # a namespace has no other user
    script = 'cd "$1" && APT_CONFIG=$2 PATH=$3 exec scripts/setup.sh venv'
    told = last(apart(script, checkout, tmp_path / "apt.conf", tools(tmp_path / "bin", "cc")["PATH"], net=True))
    assert told.startswith("setup: could not install build-essential") and "the network does not answer" in told


def test_setup_needs_no_network_if_all_is_there(checkout):
    (checkout / "requirements.txt").write_text("pip\n")
    done = apart('cd "$1" && exec scripts/setup.sh venv', checkout, net=True)
    assert done.returncode == 0 and (checkout / ".venv/stamp").exists(), done.stderr
