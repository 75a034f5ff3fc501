"""`make grpc`: a package with three small files in gRPC's place is fetched, checked, compiled, linked and found."""

import hashlib
import http.server
import importlib.util
import io
import json
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

from hivemind_c import _grpc_holes

ROOT = Path(__file__).resolve().parents[3]
NAME = "grpcio-9.9.9"
LISTED = "src/python/grpcio/grpc_core_dependencies.py"
FILES = {
    "PKG-INFO": "",
    "LICENSE": "of gRPC",
    "third_party/zlib/LICENSE": "of zlib",
    "third_party/boringssl-with-bazel/LICENSE": "of BoringSSL",
    "include/grpc/grpc.h": "const char *grpc_version_string(void);\n",
    LISTED: "CORE_SOURCE_FILES = ['src/core/lib/surface/version.cc', 'src/c.c', "
    "'third_party/boringssl-with-bazel/x.c']\n",
    "src/core/lib/surface/version.cc": 'const char *inner() { return "59.8.7"; }\n'
    'extern "C" const char *grpc_version_string() { return inner(); }\n',
    "src/c.c": "int gpr_one(void) { return 1; }\n",
    "third_party/abseil-cpp/absl/log/initialize.cc": "",
}


def archive(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{NAME}/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


@pytest.fixture
def build(monkeypatch, tmp_path):
    """build(files, expected=..., by_hand=...): runs the script for a package with those files."""
    spec = importlib.util.spec_from_file_location("build_grpc", ROOT / "scripts/build_grpc.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def run(files, expected=None, by_hand=True, aside=False):
        data = archive(files)
        work = tmp_path / "grpc/work"
        work.mkdir(parents=True, exist_ok=True)
        if by_hand:
            (work / f"{NAME}.tar.gz").write_bytes(data)
        monkeypatch.setattr(script, "VERSION", "9.9.9")
        monkeypatch.setattr(script, "SHA256", expected or hashlib.sha256(data).hexdigest())
        script.main(["--to", str(tmp_path / "grpc"), "--jobs", "2", *(["--aside"] if aside else [])])
        return tmp_path / "grpc/current"

    run.script = script
    return run


def test_program_finds_the_built_library_by_pkg_config(build, tmp_path):
    current = build(FILES)
    program = tmp_path / "program.c"
    program.write_text('#include <grpc/grpc.h>\n#include <stdio.h>\nint main(void) { puts(grpc_version_string()); }\n')
    asked = ["pkg-config", "--cflags", "--libs", "grpc >= 29"]
    env = {"PATH": "/usr/bin:/bin", "PKG_CONFIG_PATH": str(current / "lib/pkgconfig")}
    options = subprocess.run(asked, env=env, check=True, capture_output=True, text=True).stdout.split()
    subprocess.run(["cc", str(program), *options, "-lgpr", "-o", str(tmp_path / "program")], check=True)
    assert subprocess.run([tmp_path / "program"], capture_output=True, text=True).stdout == "59.8.7\n"


def test_library_exports_nothing_but_the_functions_of_grpc(build):
    library = build(FILES) / "lib/libgrpc.so.59"
    names = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout
    assert sorted(line.split()[-1] for line in names.splitlines()) == ["gpr_one", "grpc_version_string"]


def test_build_aside_is_made_once_and_leaves_current_alone(build, tmp_path, capsys):
    assert not build(FILES, aside=True).exists()
    library = tmp_path / "grpc/9.9.9/lib/libgrpc.so.59"
    before = library.stat().st_mtime_ns
    told = capsys.readouterr().out
    assert told.index("13 minutes") < told.index("9.9.9 is in")
    assert build.script.aside(tmp_path / "grpc") == library.parents[1]
    assert library.stat().st_mtime_ns == before and "13 minutes" not in capsys.readouterr().out


def test_nothing_is_built_aside_where_the_system_is_current(build, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build.script, "CURRENT", "1.0.0")
    build(FILES, aside=True)
    assert "that of the system is current" in capsys.readouterr().out and not (tmp_path / "grpc/9.9.9").exists()


def test_current_core_is_the_first_without_a_known_hole(build):
    core = build.script.CURRENT
    assert _grpc_holes.open_holes(core) == [] != _grpc_holes.open_holes(f"{_grpc_holes.numbers(core)[0] - 1}.0.0")
    assert _grpc_holes.numbers(build.script.VERSION) > _grpc_holes.numbers(_grpc_holes.WITHOUT)


def test_licences_name_each_part_that_is_inside(build):
    text = (build(FILES) / "LICENSE").read_text()
    assert "of gRPC" in text and "of zlib" in text and "BoringSSL" not in text


def test_package_of_another_hash_is_refused_and_removed(build, tmp_path):
    with pytest.raises(SystemExit, match="its SHA-256 is not the expected one"):
        build(FILES, expected="0" * 64)
    assert not list((tmp_path / "grpc/work").glob("*.tar.gz")) and not (tmp_path / "grpc/current").exists()


def test_interrupted_build_keeps_its_compiled_files(build, tmp_path):
    broken = {**FILES, "src/c.c": "int gpr_one(void) { return\n"}
    with pytest.raises(SystemExit, match="src/c.c cannot be compiled"):
        build(broken)
    (tmp_path / f"grpc/work/{NAME}/src/c.c").write_text(FILES["src/c.c"])
    (kept,) = (tmp_path / "grpc/work").glob("objects-9.9.9-*/src/core/lib/surface/version.cc.o")
    before = kept.stat().st_mtime_ns
    assert build(broken).is_dir() and kept.stat().st_mtime_ns == before


def test_files_with_clashing_names_are_compiled_apart(build, tmp_path):
    text = 'static int same() { return 1; }\nextern "C" int gpr_%s() { return same(); }\n'
    listed = FILES[LISTED].replace("'src/c.c'", "'src/c.c', 'src/core/a.cc', 'src/core/b.cc'")
    files = {**FILES, LISTED: listed, "src/core/a.cc": text % "a", "src/core/b.cc": text % "b"}
    library = build(files) / "lib/libgrpc.so.59"
    names = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout
    assert "gpr_a" in names and "gpr_b" in names
    assert sorted(path.name for path in (tmp_path / "grpc/work").glob("objects-*/src/core/*.o")) == ["a.cc.o", "b.cc.o"]


class Index(http.server.BaseHTTPRequestHandler):
    """A package index: its page for grpcio, and the file that it names, if it has one."""

    data = b""

    def do_GET(self):
        listed = [{"filename": f"{NAME}.tar.gz", "url": f"../../files/{NAME}.tar.gz"}] if self.data else []
        page = json.dumps({"files": listed}).encode()
        answer = self.data if self.path == f"/files/{NAME}.tar.gz" else page
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *ignored):
        pass


@pytest.fixture
def index(monkeypatch):
    """Serves an index on loopback, which pip is told to use: the class whose data it serves."""
    served = type("Served", (Index,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), served) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_address[1]}/simple")
        yield served
        server.shutdown()


def test_package_comes_from_the_index_that_pip_uses(build, index):
    index.data = archive(FILES)
    assert build(FILES, hashlib.sha256(index.data).hexdigest(), by_hand=False).is_dir()


def test_index_without_the_package_is_named_with_a_way_out(build, index):
    with pytest.raises(SystemExit, match="put the file at .* by hand"):
        build(FILES, by_hand=False)
