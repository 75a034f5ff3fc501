#!/usr/bin/env python3
"""Builds a current gRPC core, because that of Debian 12 has had no security fix since 2022. `make grpc` calls this.

    .venv/bin/python scripts/build_grpc.py [--aside] [--jobs N] [--to FOLDER]

It takes the C core alone from the source package of grpcio, which it checks by its hash, and the system's OpenSSL.
Library, headers and pkg-config file come into .grpc/VERSION, and each later build takes what .grpc/current points to.
With --aside it is built once, and .grpc/current stays as it is: `make wheel` and `make test-grpc` call that.
An interrupted run continues where it was. To go back to the system's gRPC: rm .grpc/current && make clean build
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZE_MAX = 64 << 20  # of the package: it has 13 MB
VERSION = "1.85.3"
CURRENT = "44.0.0"  # the first core without a known hole, of release 1.67 (python/hivemind_c/_grpc_holes.py)
SHA256 = "8e18f15d1b09b8771edbf59d634b26cbe4903bc2577cb667264934a6655eb8b4"
CARES = "", "/cares", "/cares/include", "/cares/src/lib", "/cares/src/lib/include", "/config_linux"
OTHERS = "abseil-cpp", "address_sorting/include", "cel-c", "re2", "upb", "utf8_range", "xxhash", "zlib"
THIRD = *(f"cares{name}" for name in CARES), *OTHERS
FOLDERS = ".", "include", "src/core/ext/upb-gen", "src/core/ext/upbdefs-gen", *(f"third_party/{name}" for name in THIRD)
DEFINES = "NDEBUG", "HAVE_CONFIG_H", "__STDC_FORMAT_MACROS"
FLAGS = "-O2", "-fPIC", "-fno-semantic-interposition", "-w", "-pthread", *(f"-D{name}" for name in DEFINES)
OPTIONS = *FLAGS, *(f"-I{folder}" for folder in FOLDERS)
TOGETHER = 12
INDEX_ANSWER = "application/vnd.pypi.simple.v1+json"
EXPORTS = "{ global: grpc_*; gpr_*; local: *; };\n"
PKG_CONFIG = """prefix={prefix}

Name: grpc
Description: gRPC core {version}, built by make grpc
Version: {core}
Cflags: -I${{prefix}}/include
Libs: -L${{prefix}}/lib -Wl,-rpath,${{prefix}}/lib -lgrpc
"""


def fail(what):
    sys.exit(f"grpc: {what}")


def index():
    """The package index that pip uses."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    found = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return (os.environ.get("PIP_INDEX_URL") or found or "https://pypi.org/simple").rstrip("/")


def fetch(target):
    """Puts grpcio's source package there."""
    page = urllib.request.Request(f"{index()}/grpcio/", headers={"Accept": INDEX_ANSWER})
    try:
        with urllib.request.urlopen(page, timeout=60) as answer:
            listed = {file["filename"]: file["url"] for file in json.load(answer)["files"]}
        with urllib.request.urlopen(urllib.parse.urljoin(page.full_url, listed[target.name]), timeout=300) as answer:
            data = answer.read(SIZE_MAX)
    except (OSError, ValueError, KeyError) as error:
        fail(f"cannot fetch {target.name} from the package index: {error!r}; put the file at {target} by hand")
    target.write_bytes(data)


def unpack(work):
    source = work / f"grpcio-{VERSION}"
    archive = work / f"grpcio-{VERSION}.tar.gz"
    if not archive.exists():
        fetch(archive)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        archive.unlink()
        fail(f"{archive.name} is refused: its SHA-256 is not the expected one; run it again")
    if not (source / "PKG-INFO").exists():
        with tarfile.open(archive) as packed:
            packed.extractall(work, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return source


def sources(source):
    """The files of the core, without BoringSSL's."""
    listed = runpy.run_path(str(source / "src/python/grpcio/grpc_core_dependencies.py"))["CORE_SOURCE_FILES"]
    return [*(name for name in listed if "boringssl" not in name), "third_party/abseil-cpp/absl/log/initialize.cc"]


def compile_file(source, name, target):
    """Compiles one file. Returns the compiler's errors, or nothing."""
    compiler = ["c++", "-std=c++17", "-fno-exceptions"] if name.endswith(".cc") else ["cc"]
    draft = target.with_suffix(".draft")
    command = [*compiler, *OPTIONS, "-c", name, "-o", str(draft)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    if done.returncode:
        return done.stderr[-3000:] or f"the compiler ended with {done.returncode}"
    draft.rename(target)


def compile_group(source, objects, names):
    """Objects of these files: of all together, or, where their names clash, of each half."""
    alone, middle = len(names) == 1, len(names) // 2
    target = objects / (names[0] + (".o" if alone else f".{len(names)}.o"))
    if target.exists():
        return [target]
    target.parent.mkdir(parents=True, exist_ok=True)
    together = target.with_suffix(".cc")
    if not alone:
        together.write_text("".join(f'#include "{name}"\n' for name in names))
    refused = compile_file(source, names[0] if alone else str(together), target)
    if not refused:
        return [target]
    if alone:
        fail(f"{names[0]} cannot be compiled:\n{refused}")
    return [part for half in (names[:middle], names[middle:]) for part in compile_group(source, objects, half)]


def groups(names):
    """The names in groups that are compiled together: a file of gRPC's C++ is 5.5 s of headers and 1 s of its own."""
    shared = [name for name in names if name.startswith("src/core/") and name.endswith(".cc")]
    alone = [[name] for name in names if name not in set(shared)]
    return [*(shared[n : n + TOGETHER] for n in range(0, len(shared), TOGETHER)), *alone]


def compile_all(source, objects, jobs):
    work = groups(sources(source))
    began = last = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        parts = [pool.submit(compile_group, source, objects, names) for names in work]
        for n, part in enumerate(concurrent.futures.as_completed(parts), 1):
            if error := part.exception():
                pool.shutdown(cancel_futures=True)
                raise error
            if time.monotonic() - last > 30 or n == len(parts):
                last = time.monotonic()
                print(f"grpc: {n} of {len(parts)} parts after {(last - began) / 60:.1f} minutes", flush=True)
    return [object for part in parts for object in part.result()]


def licences(source):
    """The licences of gRPC and of all that it brings along."""
    third = source / "third_party"
    found = [source / "LICENSE", *sorted(third.glob("**/LICENSE*")), *sorted(third.glob("**/COPYING*"))]
    told = [path for path in found if path.is_file() and "boringssl" not in path.as_posix()]
    return "\n\n".join(f"==== {path.relative_to(source)}\n\n{path.read_text(errors='replace')}" for path in told)


def install(source, parts, work, prefix):
    (prefix / "lib/pkgconfig").mkdir(parents=True, exist_ok=True)
    core = re.search(r'"(\d+\.\d+\.\d+)"', (source / "src/core/lib/surface/version.cc").read_text()).group(1)
    exports, objects = work / "exports", work / "objects.txt"
    exports.write_text(EXPORTS)
    objects.write_text("\n".join(str(part) for part in parts))
    name = f"libgrpc.so.{core.split('.')[0]}"
    linker = [f"-soname,{name}", f"--version-script={exports}", "--gc-sections", "-z,defs", "--strip-all"]
    command = ["c++", "-shared", *(f"-Wl,{option}" for option in linker), f"@{objects}"]
    libraries = ["-lssl", "-lcrypto", "-lrt", "-lm", "-pthread"]
    linked = subprocess.run([*command, *libraries, "-o", prefix / "lib" / name], capture_output=True, text=True)
    if linked.returncode:
        fail(f"the library cannot be linked:\n{linked.stderr[-3000:]}")
    for alias in ("libgrpc.so", "libgpr.so"):  # gpr's functions are in the same library
        point(prefix / "lib" / alias, name)
    shutil.copytree(source / "include/grpc", prefix / "include/grpc", dirs_exist_ok=True)
    (prefix / "LICENSE").write_text(licences(source))
    (prefix / "lib/pkgconfig/grpc.pc").write_text(PKG_CONFIG.format(prefix=prefix, version=VERSION, core=core))


def point(link, target):
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def prefix_in(folder):
    return folder.resolve() / VERSION


def is_built(prefix):
    return (prefix / "lib/pkgconfig/grpc.pc").exists()  # written last


def build(folder, jobs):
    work = folder.resolve() / "work"
    work.mkdir(parents=True, exist_ok=True)
    print(f"grpc: building {VERSION}, which takes about 13 minutes on two cores, once", flush=True)
    source = unpack(work)
    alike = hashlib.sha256(" ".join(OPTIONS).encode()).hexdigest()[:8]  # objects of other options are of no use
    parts = compile_all(source, work / f"objects-{VERSION}-{alike}", jobs)
    install(source, parts, work, prefix_in(folder))


def aside(folder=ROOT / ".grpc", jobs=os.cpu_count() or 1):
    """The folder of a current gRPC, built if it is missing. None: the system's is current."""
    if subprocess.run(["pkg-config", f"--atleast-version={CURRENT}", "grpc"], env=of_system()).returncode == 0:
        return None
    prefix = prefix_in(folder)
    if not is_built(prefix):
        build(folder, jobs)
    return prefix


def of_system():
    """The environment in which pkg-config finds what the system has."""
    return {name: value for name, value in os.environ.items() if name != "PKG_CONFIG_PATH"}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--aside", action="store_true", help="leave .grpc/current as it is")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at a time")
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / ".grpc", help="the folder for it")
    options = parser.parse_args(arguments)
    if options.aside:
        prefix = aside(options.to, options.jobs)
        print(f"grpc: {VERSION} is in {prefix}" if prefix else "grpc: that of the system is current")
        return
    build(options.to, options.jobs)
    prefix = prefix_in(options.to)
    point(prefix.parent / "current", prefix.name)
    print(f"grpc: {VERSION} is in {prefix}; each later build takes it")


if __name__ == "__main__":
    main()
