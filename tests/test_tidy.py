"""The walls of the design: who may include whom, what may stand where, and how large a file may grow.

Each wall is a function from the files of the tree to complaints. The tree itself must give none; beside each wall stand small
examples that must be refused, and some that must not.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = "csrc", "cuda", "python", "tests", "benchmarks", "examples"
CODE = "csrc/", "cuda/"  # what is built into the libraries
NOT_OURS = {"build", "gen", "corpus", "__pycache__"}
C_FILES = ".c", ".h", ".cpp", ".cu", ".cuh", ".hpp", ".cc", ".cxx"

FILE_LINES, SHIM_LINES, FUNCTION_LINES = 800, 400, 100

# ---- the tree, as {path: text} ----


def tree_of(root):
    tree = {}
    for folder in FOLDERS:
        for here, folders, names in os.walk(root / folder):
            folders[:] = [name for name in folders if name not in NOT_OURS and not name.startswith(".")]
            for name in names:
                if name.endswith(C_FILES + (".py", ".pyi", ".proto")) or name == "Makefile":
                    path = Path(here, name)
                    tree[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return tree


def room_of(path):
    """cuda for a C file of cuda/, and base, kern, core, net, bind, torch or include for one under csrc/; "" for others."""
    parts = path.split("/")
    if not path.startswith(CODE) or not path.endswith(C_FILES):
        return ""
    return "cuda" if parts[0] == "cuda" else parts[1] if len(parts) > 2 else ""


BLANK = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def code_of(text):
    """C without what its comments and strings say; lines stay where they are. Includes keep their names."""
    lines = BLANK.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text).split("\n")
    return "\n".join(before if before.lstrip().startswith("#include") else line for before, line in zip(text.split("\n"), lines))


def find(path, text, pattern, words):
    """A complaint for each place in the C text where the pattern stands."""
    code = code_of(text)
    return [f"{path}:{code.count(chr(10), 0, m.start()) + 1}: {m.group().strip()}: {words}" for m in re.finditer(pattern, code, re.M)]


def calls(*names):
    """A pattern for these names used as functions: not as members, and not as parts of longer names."""
    return r"(?<![\w.>*])(?:" + "|".join(names) + r")\s*\("


WALLS = {}


def wall(bad, good=()):
    """Registers a wall with trees that it must refuse and trees that it must leave alone."""

    def register(check):
        WALLS[check.__name__] = check, list(bad), list(good)
        return check

    return register


# ---- includes ----

ROOMS = {
    "base": {"base"},
    "kern": {"base", "kern"},
    "core": {"base", "kern", "core"},
    "include": {"base", "core", "include"},
    "net": {"base", "kern", "core", "include", "net"},
    "torch": {"base", "kern", "torch"},
    "bind": {"base", "kern", "core", "include", "net", "torch", "cuda", "bind"},
    "cuda": {"base", "kern", "cuda"},
}


@wall(
    bad=[
        {"csrc/base/a.c": '#include "core/b.h"'},
        {"csrc/kern/a.h": '#include "core/peer.h"'},
        {"csrc/core/a.c": '  #  include "net/transport/loop.h"'},
        {"csrc/net/a.c": '#include "bind/module.h"'},
        {"csrc/core/a.c": '#include "hivemind_c.h"'},
        {"csrc/core/a.c": '#include "../net/transport/loop.h"'},
        {"cuda/a.cu": '#include "core/peer.h"', "csrc/core/peer.h": ""},
        {"csrc/core/a.c": '#include "cuda/hv_cuda.h"'},
        {"csrc/net/a.c": '#include "cuda/hv_cuda.h"'},
    ],
    good=[
        {"csrc/base/a.c": '#include "base/b.h"\n#include <string.h>'},
        {"csrc/bind/a.c": '#include "net/transport/loop.h"\n#include "hivemind_c.h"'},
        {"csrc/net/a.c": '#include "hivemind.pb-c.h"\n#include "core/env.h"'},
        {"csrc/core/a.c": '/* #include "net/transport/loop.h" */'},
    ],
)
def includes_go_leftwards_only(tree):
    found = []
    for path, text in tree.items():
        room = room_of(path)
        for m in re.finditer(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', BLANK_COMMENTS.sub("", text), re.M) if room else ():
            name = m.group(1)
            other = "include" if name == "hivemind_c.h" else name.split("/")[0] if "/" in name else room
            if other not in ROOMS.get(room, ()):
                found.append(f"{path}: {room} must not include {name}")
    return found


BLANK_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)

# The folders inside a room, and which of their room's folders each may include. "" is the room's own root: core's is the world below them, and node above.
INNER = {
    "core": {
        "": {"util"},
        "util": set(),
        "peers": {"util"},
        "dht": {"util", "peers"},
        "round": {"util"},
        "agree": {"util", "peers", "round"},
        "reduce": {"util", "peers", "round", "agree"},
        "match": {"util", "peers", "dht", "round"},
        "average": {"util", "peers", "dht", "round", "match", "reduce"},
        "state": {"util", "peers", "dht"},
        "outer": set(), "progress": {"util", "peers", "dht"}, "epoch": {"util", "peers", "dht", "round", "match", "reduce", "average", "state", "progress"},
    },
    "net": {"transport": set(), "sim": set(), "ports": set(), "hive": {"transport", "ports"}},
}
LOWEST = {"util"}  # below the root of their room, which they do not see
ABOVE = {"core/node.h", "core/node.c", "core/notice.c"}  # they see all folders of their room


def inner_folder(path):
    """("core", "dht") for core/dht/ask.h, ("core", "") for core/env.h."""
    parts = path.split("/")
    return parts[0], parts[1] if len(parts) > 2 else ""


@wall(
    bad=[
        {"csrc/core/dht/a.c": '#include "core/match/match.h"'},
        {"csrc/core/util/a.h": '#include "core/peers/peers.h"'},
        {"csrc/core/util/a.h": '#include "core/env.h"'},
        {"csrc/core/msg.h": '#include "core/dht/store.h"'},
        {"csrc/core/peers/a.c": '#include "core/node.h"'},
        {"csrc/net/sim/a.c": '#include "net/transport/loop.h"'},
        {"csrc/core/new/a.c": '#include "core/env.h"'},
    ],
    good=[
        {"csrc/core/match/a.c": '#include "core/dht/dht.h"\n#include "core/env.h"', "csrc/core/env.h": '#include "core/util/heap.h"'},
        {"csrc/core/node.c": '#include "core/match/match.h"'},
        {"csrc/net/hive/a.c": '#include "core/dht/dht.h"'},
    ],
)
def folders_include_those_below_them(tree):
    found = []
    for path, text in tree.items():
        room, folder = inner_folder(path.removeprefix("csrc/")) if path.startswith("csrc/") else ("", "")
        if room not in INNER or path.removeprefix("csrc/") in ABOVE:
            continue
        if folder and folder not in INNER[room]:
            found.append(f"{path}: say in INNER what {room}/{folder} may include")
            continue
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', BLANK_COMMENTS.sub("", text), re.M):
            other_room, other = inner_folder(name)
            allowed = INNER[room].get(folder, set()) | {folder} | (set() if folder in LOWEST else {""})
            if other_room == room and (other not in allowed or name in ABOVE):
                found.append(f"{path}: {room}/{folder or '(root)'} must not include {name}")
    return found


def test_no_folder_includes_itself_by_a_detour():
    for room, folders in INNER.items():
        settled = set()
        while rest := set(folders) - settled:
            ready = {folder for folder in rest if folders[folder] <= settled}
            assert ready, f"a circle of folders in {room}: {sorted(rest)}"
            settled |= ready

LIBC = """arpa/inet.h assert.h ctype.h errno.h float.h inttypes.h limits.h math.h netinet/in.h setjmp.h stdalign.h stdarg.h stdatomic.h
    stdbool.h stddef.h stdint.h stdio.h string.h strings.h""".split()
SIMD = "immintrin.h", "cpuid.h", "arm_neon.h"


@wall(
    bad=[
        {"csrc/core/a.c": "#include <grpc/grpc.h>"},
        {"csrc/kern/a.c": "#include <xxhash.h>"},
        {"csrc/base/a.c": "#include <pthread.h>"},
        {"csrc/core/a.c": "#include <stdlib.h>"},
        {"csrc/core/a.c": "#include <immintrin.h>"},
    ],
    good=[{"csrc/core/a.c": "#include <string.h>"}, {"csrc/kern/a.c": "#include <immintrin.h>"}, {"csrc/net/a.c": "#include <poll.h>"}],
)
def base_kern_and_core_know_only_libc(tree):
    also = {"csrc/base/mem.c": ["stdlib.h"], "csrc/base/log.c": ["pthread.h"]}
    found = []
    for path, text in tree.items():
        if room_of(path) in ("base", "kern", "core"):
            allowed = [*LIBC, *also.get(path, ()), *(SIMD if room_of(path) == "kern" else ())]
            found += [f"{path}: <{name}> is not for this room" for name in re.findall(r"^\s*#\s*include\s+<([^>]+)>", text, re.M) if name not in allowed]
    return found


def only_in(files, pattern, words):
    """A check that the pattern stands in no C file under csrc/ but these (paths, or folders ending in /)."""

    def check(tree):
        found = []
        for path, text in tree.items():
            if path.startswith(CODE) and path.endswith(C_FILES) and not path.startswith(tuple(files)):
                found += find(path, text, pattern, words)
        return found

    return check


@wall(bad=[{"csrc/net/a.c": "#include <Python.h>"}, {"csrc/torch/a.h": "PyObject *x;"}], good=[{"csrc/bind/a.c": "#include <Python.h>\nPyObject *x;"}])
def python_is_known_in_bind_only(tree):
    return only_in(["csrc/bind/"], r"#\s*include\s+<(Python|numpy/[^>]*)\.?h?>|\bPy[A-Z]\w+", "Python stays in bind")(tree)


@wall(
    bad=[{"csrc/net/transport/loop.c": "#include <grpc/grpc.h>"}, {"csrc/net/transport/loop.c": '#include "net/transport/grpc_tls.h"'}, {"csrc/net/a.h": "typedef struct { grpc_call *call; } x;"}, {"csrc/net/a.c": "gpr_now(0);"}],
    good=[{"csrc/net/transport/grpc.c": "#include <grpc/grpc.h>\ngrpc_init();"}, {"csrc/net/a.c": '#include "net/transport/grpc.h"\nhv_grpc_new(); /* grpc_init */'}],
)
def grpc_has_one_door(tree):
    door = ["csrc/net/transport/grpc.c", "csrc/net/transport/grpc_tls.c", "csrc/net/transport/grpc_tls.h", "csrc/net/transport/acceptor.cpp"]
    return only_in(door, r"#\s*include\s+(<grpc[^>]*>|\"net/transport/grpc_tls.h\")|(?<![\w/])(grpc|gpr)_\w+", "gRPC stays in net/transport/grpc.c and its other parts, grpc_tls and acceptor")(tree)


@wall(
    bad=[{"csrc/net/a.c": "#include <protobuf-c/protobuf-c.h>"}, {"csrc/core/a.c": '#include "hivemind.pb-c.h"'}, {"csrc/net/a.h": "ProtobufCAllocator a;"}],
    good=[{"csrc/net/wire.c": '#include "hivemind.pb-c.h"\nProtobufCAllocator a;'}],
)
def protobuf_has_one_door(tree):
    return only_in(["csrc/net/wire.c"], r"#\s*include\s+[<\"][^>\"]*(protobuf-c|pb-c)[^>\"]*[>\"]|\b(ProtobufC|protobuf_c_)\w+", "protobuf stays in net/wire.c")(tree)


@wall(
    bad=[{"csrc/net/a.c": "#include <openssl/evp.h>"}, {"csrc/net/identity.c": "void f(void) { RAND_bytes(a, 32); }"}],
    good=[{"csrc/net/identity.c": "#include <openssl/evp.h>"}],
)
def openssl_has_one_door_and_draws_no_randomness(tree):
    include = only_in(["csrc/net/identity.c"], r"#\s*include\s+<openssl/[^>]*>", "OpenSSL stays in net/identity.c")(tree)
    return include + only_in([], r"\bRAND_\w+", "seeds are handed in")(tree)


@wall(
    bad=[
        {"csrc/kern/a.c": "x = malloc(3);"},
        {"csrc/net/a.c": "char *x = strdup (y);"},
        {"csrc/bind/a.c": "free(x);"},
        {"csrc/base/buf.c": "p = aligned_alloc(64, n);"},
        {"csrc/core/a.c": "table t = {.take = malloc};"},
        {"cuda/a.cu": "posix_memalign(&p, 64, n);"},
    ],
    good=[
        {"csrc/base/mem.c": "x = malloc(3); free(x);"},
        {"csrc/core/a.c": "payload->free(payload); s.free(s); hv_mem_free(x); void (*free)(int); /* malloc(3) */ x = hv_mem_alloc(m, 3);"},
    ],
)
def memory_has_one_door(tree):
    names = "malloc|calloc|realloc|reallocarray|strdup|strndup|aligned_alloc|posix_memalign|memalign|valloc|asprintf|vasprintf|open_memstream"
    return only_in(["csrc/base/mem.c"], rf"(?<![\w.>])(?:{names})\b|" + calls("free"), "memory comes from base/mem.h")(tree)


@wall(
    bad=[
        {"csrc/core/a.c": "clock_gettime(CLOCK_MONOTONIC, &t);"},
        {"csrc/net/identity.c": "now = time(NULL);"},
        {"csrc/net/a.c": "x = rand();"},
        {"csrc/net/transport/pool.c": "getrandom(x, 32, 0);"},
        {"csrc/core/a.c": "nanosleep(&t, 0);"},
        {"csrc/bind/a.c": "mkstemp(path);"},
    ],
    good=[
        {"csrc/net/clock.c": "clock_gettime(CLOCK_MONOTONIC, &t); getrandom(x, 32, 0);"},
        {"csrc/core/a.c": "env->random(env, x, 8); read_time(x); env.time(3); void (*random)(int); /* time(NULL) */"},
    ],
)
def clocks_and_randomness_have_one_door(tree):
    clocks = "clock_gettime|gettimeofday|time|clock|times|timespec_get|ftime|gpr_now|__rdtsc"
    chance = "s?rand|rand_r|s?random|random_r|[dejlmn]rand48|getrandom|getentropy|arc4random\\w*|mk[ds]?temp|mkostemps?|tmpfile"
    told = only_in(["csrc/net/clock.c"], calls(clocks, chance), "time and chance come through hv_env")(tree)
    return told + only_in(["csrc/net/"], calls("sleep|usleep|nanosleep|clock_nanosleep"), "nobody sleeps here")(tree)


THREADS_IN = "csrc/net/transport/loop.c", "csrc/net/transport/pool.c", "csrc/net/transport/door.c", "csrc/net/ports/ports.c"  # the hive thread; the pool; the one that accepts; the one that asks a gateway


@wall(
    bad=[{"csrc/net/transport/grpc.c": "pthread_create(&t, NULL, run, x);"}, {"csrc/core/a.c": "thrd_create(&t, run, x);"}, {"csrc/bind/a.c": "fork();"}],
    good=[{"csrc/net/transport/pool.c": "pthread_create(&t, NULL, run, x);"}],
)
def threads_start_where_the_headers_say_and_processes_never(tree):
    threads = only_in(THREADS_IN, calls("pthread_create", "thrd_create", "timer_create"), "threads are loop's, pool's, door's and ports'")(tree)
    return threads + only_in([], calls("v?fork", "system", "popen", "posix_spawnp?", "execl?[vpe]*", "shm_open", "shmget", "daemon"), "no processes")(tree)


@wall(
    bad=[{"csrc/net/a.c": "abort();"}, {"csrc/core/a.c": "assert(n < 3);"}, {"csrc/core/a.c": "exit(1);"}, {"csrc/net/a.c": 'printf("x");'}],
    good=[{"csrc/core/a.c": '_Static_assert(sizeof(int) == 4, ""); snprintf(x, 3, "y"); hv_mem_exit(x);'}],
)
def a_library_never_ends_the_process_nor_writes_to_the_terminal(tree):
    words = "the user's process and terminal are not ours: return a status, write to the log"
    return only_in(["csrc/bench/"], calls("abort", "exit", "_exit", "quick_exit", "assert", "printf", "vprintf", "fprintf", "puts", "fputs", "perror"), words)(tree)


@wall(
    bad=[
        {"csrc/base/a.c": "static int count;"},
        {"csrc/core/a.c": "void f(void) {\n  static uint8_t seen[3] = {0};\n}"},
        {"csrc/net/a.c": "static _Thread_local int depth;"},
        {"csrc/net/a.c": "static struct node *first = NULL;"},
    ],
    good=[{"csrc/core/a.c": "static const int table[] = {1};\nstatic int f(int x);\nstatic inline void g(void) {\n}\nstatic const char *const x = 0;"}],
)
def nothing_static_changes(tree):
    found = []
    for path, text in tree.items():
        if room_of(path) in ("base", "kern", "core", "net", "cuda"):
            found += find(path, text, r"^[ \t]*(static|_Thread_local|__thread)\b(?![^;{=(]*\b(const|inline)\b)[^;{=()]*[;=]", "no state that is not in a struct")
    return found


CXX = "csrc/torch/lowrank.cpp", "csrc/net/transport/acceptor.cpp"


@wall(bad=[{"csrc/net/a.cpp": ""}, {"csrc/torch/other.cpp": ""}, {"csrc/core/a.hpp": ""}, {"cuda/a.cc": ""}], good=[{"csrc/torch/lowrank.cpp": ""}, {"csrc/net/transport/acceptor.cpp": ""}, {"cuda/codec.cu": ""}])
def cxx_stands_in_its_two_files(tree):
    return [f"{path}: C++ is for {' and '.join(CXX)} only" for path in tree
            if path.endswith((".cpp", ".cc", ".cxx", ".hpp")) and path.startswith(CODE) and path not in CXX]  # fmt: skip


@wall(
    bad=[
        {"csrc/kern/a.cu": ""},
        {"benchmarks/a.cuh": ""},
        {"cuda/a.cu": ""},
        {"cuda/a.c": "#include <cuda_runtime.h>"},
        {"cuda/runtime.c": "void f(void) { cudaFree(p); }"},
        {"cuda/codec.c": "#include <dlfcn.h>"},
        {"cuda/codec.c": 'hv_cuda_driver d; d.launch(f);'},
        {"cuda/driver.h": 'X(wait, "cuStreamSynchronize", (void *stream))'},
        {"csrc/bind/a.c": "cudaMalloc(&p, 3);"},
    ],
    good=[{"cuda/kernels.cu": ""}, {"cuda/driver.h": 'X(wait, "cuEventSynchronize", (void *event))'}, {"cuda/a.c": "world->device_take(world->self, 3, &p, err);"}],
)
def cuda_has_one_door_and_nobody_waits_for_the_whole_device(tree):
    found = [f"{path}: kernels are in cuda/kernels.cu and benchmarks/cuda_ladder" for path in tree
             if path.endswith((".cu", ".cuh")) and path != "cuda/kernels.cu" and not path.startswith("benchmarks/cuda_ladder/")]  # fmt: skip
    found += only_in([], r"#\s*include\s+<(cuda|nvrtc)[^>]*>|\bcuda[A-Z]\w+", "neither CUDA's headers nor its runtime are used")(tree)
    doors = ["cuda/" + name for name in ("driver.h", "driver.c", "runtime.c", "compiler.h", "compiler.c")]
    found += only_in([*doors, "csrc/bind/", "csrc/net/"], r"#\s*include\s+<dlfcn.h>|\bhv_cuda_driver\w*|\bhv_cuda_compile\b", "the driver is runtime.c's, and NVRTC compiler.c's")(tree)
    waits = re.compile(r"\bcu(Ctx|Stream)Synchronize\b")  # the driver's functions stand in strings
    return found + [f"{path}: nobody waits for a device or a stream" for path, text in tree.items() if path.startswith(CODE) and waits.search(text)]


# ---- size and manners ----


@wall(bad=[{"csrc/core/a.c": "x;\n" * 801}, {"tests/unit/test_a.c": "x;\n" * 801}], good=[{"csrc/core/a.c": "x;\n" * 800}])
def a_file_is_read_in_one_sitting(tree):
    return [f"{path}: {n} lines, at most {FILE_LINES}" for path, text in tree.items() if (n := text.count("\n")) > FILE_LINES]


def docstring_lines(text):
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = (node for node in ast.walk(ast.parse(text)) if isinstance(node, places) and ast.get_docstring(node) is not None)
    return sum(node.body[0].end_lineno - node.body[0].lineno + 1 for node in documented)


@wall(
    bad=[{"python/hivemind_c/a.py": "x\n" * 401}, {"python/hivemind_c/a.py": '"""A\nB."""\n' + "x\n" * 401}],
    good=[{"python/hivemind_c/a.py": '"""A\nB."""\n' + "x\n" * 400}, {"benchmarks/a.py": "x\n" * 500}],
)
def the_shim_stays_thin(tree):
    """Docstrings do not count: they are the reference of the options."""
    shim = {path: text for path, text in tree.items() if path.startswith("python/") and path.endswith(".py")}
    return [
        f"{path}: {n} lines without docstrings, at most {SHIM_LINES}: a decision belongs to the core"
        for path, text in shim.items()
        if (n := text.count("\n") - docstring_lines(text)) > SHIM_LINES
    ]


def c_functions(text):
    """(first line, lines) of each C function: from its opening brace, right behind a ')', to the matching one."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), code_of(text), flags=re.M)
    code = re.sub(r"(?m)\bextern\s+\{", lambda m: " " * len(m.group()), code.replace('"C"', "   "))
    depth, start = 0, None
    for m in re.finditer(r"[{}]", code):
        if m.group() == "{":
            if depth == 0 and re.search(r"\)\s*(const|noexcept)?\s*$", code[: m.start()]):
                start = m.start()
            depth += 1
        else:
            depth = max(0, depth - 1)
            if depth == 0 and start is not None:
                yield code.count("\n", 0, start) + 1, code.count("\n", start, m.start()) + 1
                start = None


@wall(
    bad=[
        {"csrc/core/a.c": "int f(void) {\n" + "  x;\n" * 120 + "}\n"},
        {"csrc/core/a.c": "int g(void) {\n  return '{' + 1; /* } */\n}\nint f(void)\n{\n" + "  if (a) {\n  }\n" * 60 + "}\n"},
        {"python/hivemind_c/a.py": "def f():\n" + "    x = 1\n" * 120},
    ],
    good=[{"csrc/core/a.c": "int f(void) {\n" + "  x;\n" * 90 + "}\n" + "int g(void) {\n" + "  x;\n" * 90 + "}\nint t[] = {\n" + "1,\n" * 200 + "};\n"}],
)
def a_function_fits_on_a_screen(tree):
    found = []
    for path, text in tree.items():
        if path.startswith("tests/"):
            continue
        if path.endswith(C_FILES):
            found += [f"{path}:{line}: a function of {n} lines, at most {FUNCTION_LINES}" for line, n in c_functions(text) if n > FUNCTION_LINES]
        elif path.endswith(".py"):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno >= FUNCTION_LINES:
                    found.append(f"{path}:{node.lineno}: {node.name} has more than {FUNCTION_LINES} lines")
    return found


# A header says in a noun phrase what it is, in at most 15 lines. These may still ask a question, or be longer: this list only shrinks.
CONTRACT_NOT_YET = "csrc/core/agree/", "csrc/include/", "csrc/torch/", "cuda/"
CONTRACT_LINES = 15


@wall(
    bad=[
        {"csrc/core/a.h": "#ifndef A\n#endif\n"},
        {"csrc/core/a.h": "/* Stuff. */\n"},
        {"csrc/core/a.h": "/* What is this, and why so, and for whom?\n * Nobody tells. */\n"},
        {"csrc/base/a.h": "/* What is this?\n *\n * Room: base. Any thread.\n */\n"},
        {"csrc/base/a.h": "/* A table.\n *\n * Room: base.\n" + " * More.\n" * 12 + " */\n"},
    ],
    good=[
        {"csrc/core/agree/a.h": "/* What is this?\n *\n * Room: core (uses base). Any thread.\n */\n"},
        {"csrc/base/a.h": "/* A table.\n *\n * Room: base.\n" + " * More.\n" * 11 + " */\n"},
        {"csrc/core/a.c": "int x;"},
    ],
)
def a_header_begins_with_its_contract(tree):
    found = []
    for path, text in tree.items():
        if path.endswith(".h") and path.startswith(CODE):
            comment = re.match(r"/\*.*?\*/", text, re.S)
            if not comment or comment.group().count("\n") < 2 and not re.search(r"Room:|[Pp]rivate to|[Ss]hared by|[Ii]ncluded by", comment.group()):
                found.append(f"{path}: a header begins with its contract (docs/design/style.md)")
            elif not re.search(r"Room:|[Pp]rivate to|[Ss]hared by|[Ii]ncluded by|public", comment.group()):
                found.append(f"{path}: the contract does not tell the room")
            elif not path.startswith(CONTRACT_NOT_YET):
                if "?" in comment.group().split("\n *\n")[0]:
                    found.append(f"{path}: the contract begins with a noun phrase, not with a question")
                if comment.group().count("\n") >= CONTRACT_LINES:
                    found.append(f"{path}: a contract of more than {CONTRACT_LINES} lines: protocol rules stand in docs/")
    return found


def comments_of(text):
    """(line, text) of each comment of C."""
    for m in BLANK.finditer(text):
        if m.group().startswith("/"):
            yield text.count("\n", 0, m.start()) + 1, m.group()


@wall(
    bad=[
        {"csrc/core/a.h": "/* The rule.\n *   epoch    the reference\n */"},
        {"csrc/core/a.h": "/* The rule:\n * one owner claims as much. epoch    the reference of all, and\n * so on. */"},
        {"csrc/core/a.h": "/* clang-format off\n *\n *   epoch: the reference\n *\n * clang-format on */"},
        {"csrc/core/a.h": "// clang-format off\n// clang-format on\n/* epoch    the reference */"},
        {"cuda/a.cu": "// epoch    the reference"},
    ],
    good=[
        {"csrc/core/a.h": "// clang-format off\n/* The rule.\n *   epoch    the reference\n */\n// clang-format on\n"},
        {"csrc/core/a.c": 'int a;   /* one,   */\nint longer; /* and\n               another */\nconst char *s = "a    b"; // c\n'},
    ],
)
def a_table_in_a_comment_stands_where_clang_format_is_off(tree):
    """clang-format joins the rows of a table to running text; three spaces between words show a table, torn or not."""
    found = []
    for path, text in tree.items():
        kept = False
        for line, comment in comments_of(text) if path.endswith(C_FILES) else ():
            words = comment.strip("/* ")
            if words in ("clang-format off", "clang-format on"):
                kept = words == "clang-format off"
            elif "clang-format o" in words:
                found.append(f"{path}:{line}: no effect inside a comment: put // clang-format off before it")
            elif not kept:
                rows = [row.strip(" \t/*") for row in comment.split("\n")]
                tables = [(line + n, row[:60]) for n, row in enumerate(rows) if re.search(r"\S {3,}\S", row)]
                found += [f"{path}:{at}: {row}: a table; put // clang-format off before it" for at, row in tables]
    return found


@wall(
    bad=[
        {"csrc/core/a.h": "/* What?\n *\n * Room: core (uses gone). Pure. */"},
        {"csrc/core/a.h": "/* What?\n *\n * Room: core (uses b, core/gone for\n * its sizes). Pure. */", "csrc/core/b.h": ""},
    ],
    good=[{"csrc/core/a.h": "/* What?\n *\n * Room: core (uses base, b, net/c.h's clock,\n * the DHT). */", "csrc/core/b.h": "", "csrc/net/c.h": ""}],
)
def a_contract_names_modules_that_exist(tree):
    there = {Path(path).stem for path in tree if room_of(path)} | set(ROOMS) | {"grpc"}
    found = []
    for path, text in tree.items():
        for used in re.findall(r"Room: \w+ \(uses ([^)]*)\)", text) if room_of(path) else ():
            words = [one.replace("*", " ").split()[0] for one in used.split(",")]
            names = [re.sub(r"('s|\.h)+$", "", word).split("/")[-1] for word in words if word not in ("the", "everything")]
            found += [f"{path}: there is no module {name!r}" for name in names if name not in there]
    return found


LATER = "TO" + "DO", "FIX" + "ME", "HA" + "CK", "X" * 3


@wall(bad=[{"csrc/core/a.c": f"/* {word}: later */"} for word in LATER], good=[{"csrc/core/a.c": 'mkdtemp("/tmp/XXXXXX"); /* todo el mundo */'}])
def nothing_is_left_for_later(tree):
    return [f"{path}: {m.group()}" for path, text in tree.items() for m in re.finditer(r"\b(" + "|".join(LATER) + r")\b", text)]


def words_of(node, errors):
    """True if the expression is an error's text: str(error), f"{error}", error.args, and what is made of them."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr", "format"):
        return any(isinstance(a, ast.Name) and a.id in errors or words_of(a, errors) for a in node.args)
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) and (isinstance(part.value, ast.Name) and part.value.id in errors or words_of(part.value, errors)) for part in node.values)
    if isinstance(node, ast.Attribute):
        return node.attr == "args" and isinstance(node.value, ast.Name) and node.value.id in errors or words_of(node.value, errors)
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return words_of(node.value, errors)
    return isinstance(node, ast.Call) and words_of(node.func, errors)


def is_english(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()


READS = "startswith", "endswith", "find", "index", "rfind", "count", "partition", "rpartition", "split", "removeprefix", "search", "match", "fullmatch", "findall", "sub"


def decisions_by_words(path, text):
    """The lines that compare or search an error's text; in the doctor, also those that search any text for English."""
    module, doctor = ast.parse(text), path.startswith("python/hivemind_c/doctor/")
    errors = {node.name for node in ast.walk(module) if isinstance(node, ast.ExceptHandler) and node.name}
    errors |= {node.arg for node in ast.walk(module) if isinstance(node, ast.arg) and node.arg in ("error", "exception")}
    for node in ast.walk(module):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            searches = any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops)
            bad = any(words_of(part, errors) for part in parts) or searches and any(isinstance(part, ast.Name) and part.id in errors for part in node.comparators)
            bad |= doctor and searches and is_english(node.left)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READS:
            bad = any(words_of(part, errors) for part in (node.func.value, *node.args)) or doctor and any(map(is_english, node.args))
        else:
            continue
        if bad:
            yield f"{path}:{node.lineno}: {ast.unparse(node)[:60]}: an error's .status and .cause tell, never its words"


@wall(
    bad=[
        {"python/hivemind_c/a.py": "try:\n  f()\nexcept E as e:\n  x = 'refused' in str(e)"},
        {"python/hivemind_c/a.py": "try:\n  f()\nexcept E as e:\n  x = str(e) == 'no'"},
        {"python/hivemind_c/a.py": "try:\n  f()\nexcept E as e:\n  x = e.args[0].startswith('no')"},
        {"python/hivemind_c/a.py": "try:\n  f()\nexcept E as e:\n  x = str(e).lower().find('no')"},
        {"python/hivemind_c/a.py": "def why(error):\n  return re.search('no', f'{error}')"},
        {"python/hivemind_c/a.py": "def why(error):\n  return 'refused' in error"},
        {"python/hivemind_c/doctor/a.py": "def why(text):\n  return 'nobody listens' in text"},
        {"python/hivemind_c/doctor/a.py": "def why(text):\n  return re.search('protocol version', text)"},
    ],
    good=[
        {"python/hivemind_c/a.py": "try:\n  f()\nexcept E as e:\n  x = e.cause in ('refused',) and g(str(e))"},
        {"python/hivemind_c/a.py": "def why(text):\n  return 'x y' in text"},
        {"python/hivemind_c/doctor/a.py": "def why(error):\n  return WORDS[error.cause] if error.cause in WORDS else f'{error}'"},
    ],
)
def errors_are_told_apart_by_their_codes(tree):
    return [found for path, text in tree.items() if path.startswith("python/") and path.endswith(".py") for found in decisions_by_words(path, text)]


@wall(bad=[{"csrc/net/transport/links.c": 'x = strcasestr(text, "refused");'}], good=[{"csrc/net/transport/outage.c": 'x = strcasestr(text, "refused");'}])
def the_words_of_grpc_are_read_in_one_place(tree):
    return only_in(("csrc/net/transport/outage.c",), calls("strcasestr"), "only net/transport/outage.c reads what gRPC says")(tree)


def banned_words(path, text):
    """The expressions of a Python file that may run a stranger's code."""
    modules = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [name.name.split(".")[0] for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")[0]]
            if node.module in ("torch", "torch.serialization") and any(name.name in ("load", "*") for name in node.names):
                yield f"{path}:{node.lineno}: torch.load"
        elif isinstance(node, ast.Attribute) and node.attr == "load" and ast.unparse(node.value) in ("torch", "torch.serialization"):
            yield f"{path}:{node.lineno}: torch.load"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
            yield f"{path}:{node.lineno}: {node.func.id}"
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield f"{path}:{node.value.lineno}: allow_pickle"
        yield from (f"{path}:{node.lineno}: {name}" for name in names if name in modules)


@wall(
    bad=[{"python/hivemind_c/a.py": text} for text in ("import pickle", "from torch import load", "x = torch.load(f)", "eval(x)", "import os, dill as d",
         "np.load(f, allow_pickle=True)", "def f():\n    from pickle import loads")],
    good=[{"python/hivemind_c/a.py": "import torch\nmodel.eval()\nopt.load_state_dict(x)\n'torch.load'"}, {"benchmarks/a.py": "import pickle"}],
)  # fmt: skip
def no_bytes_become_code(tree):
    return [words for path, text in tree.items() if path.startswith("python/") and path.endswith(".py") for words in banned_words(path, text)]


@pytest.mark.parametrize("name", WALLS)
def test_the_tree_keeps_to(name):
    check, _, _ = WALLS[name]
    if found := check(tree_of(ROOT)):
        pytest.fail("\n".join(["see docs/design/style.md and docs/design/architecture.md", *found]), pytrace=False)


@pytest.mark.parametrize("name", WALLS)
def test_a_breach_is_seen_of(name):
    check, bad, good = WALLS[name]
    assert bad
    for tree in bad:
        assert check(tree), f"this should have been refused: {tree}"
    for tree in good:
        assert not check(tree), f"this should have been left alone: {tree}"


def test_the_tree_is_all_there():
    tree = tree_of(ROOT)
    assert {"csrc/base/mem.c", "csrc/core/peer.c", "csrc/net/identity.c", "tests/test_tidy.py", "tests/lib/check.h"} <= set(tree)
    assert not any("/build/" in path or "/gen/" in path for path in tree)


# ---- how C looks ----


def clang_format(*arguments):
    """The version in requirements.txt: another one has other tastes."""
    beside = Path(sys.executable).parent / "clang-format"
    for name in (beside, "clang-format", "clang-format-14"):
        if shutil.which(name) and " 14." in told(name, "--version"):
            return run(name, *arguments)
    pytest.fail("clang-format 14 is not here: pip install -r requirements.txt", pytrace=False)


def not_formatted(paths):
    words = clang_format("--dry-run", *paths).stderr
    return sorted(set(re.findall(r"^(\S+):\d+:\d+: \w+: code should be clang-formatted", words, re.M)))


def test_all_c_looks_as_make_fmt_makes_it(tmp_path):
    found = not_formatted([ROOT / path for path in tree_of(ROOT) if path.endswith((".c", ".h", ".cpp"))])
    assert found == [], "run: make -C csrc fmt"
    (tmp_path / ".clang-format").write_text((ROOT / ".clang-format").read_text())
    (tmp_path / "ugly.c").write_text("int f( int x ){return x;}\n")
    (tmp_path / "neat.c").write_text("int f(int x);\n")
    assert not_formatted([tmp_path / "ugly.c", tmp_path / "neat.c"]) == [str(tmp_path / "ugly.c")]


# ---- what is installed ----


def test_every_package_of_the_shim_is_installed():
    listed = re.search(r"^packages = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)[1]
    there = {".".join(path.parent.relative_to(ROOT / "python").parts) for path in (ROOT / "python/hivemind_c").rglob("__init__.py")}
    assert there <= set(re.findall(r'"([^"]+)"', listed)), "name it under packages in pyproject.toml"


# ---- fuzz targets ----


def without_corpus(fuzz):
    return [path.stem for path in sorted(fuzz.glob("fuzz_*.c")) if not any((fuzz / "corpus" / path.stem[5:]).glob("[!.]*"))]


def test_every_fuzz_target_has_a_corpus(tmp_path):
    assert list((ROOT / "tests/fuzz").glob("fuzz_*.c"))
    assert without_corpus(ROOT / "tests/fuzz") == []
    (tmp_path / "fuzz_x.c").touch()
    (tmp_path / "corpus/x").mkdir(parents=True)
    assert without_corpus(tmp_path) == ["fuzz_x"]
    (tmp_path / "corpus/x/seed").touch()
    assert without_corpus(tmp_path) == []


# ---- the same on what the compiler made of it ----


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


def told(*command):
    """The output of a command; if it fails, an assertion with its errors."""
    done = run(*command)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def objects():
    """{"core/peer": path of its object}, for all of base, kern, core and net, freshly made."""
    clean = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MODE", "CFLAGS")}
    made = run("make", "-s", "-C", ROOT / "csrc", "lib", env=clean)
    assert made.returncode == 0, made.stderr
    sources = [path.relative_to(ROOT / "csrc") for room in ("base", "kern", "core", "net") for path in (ROOT / "csrc" / room).rglob("*.c")]
    return {path.with_suffix("").as_posix(): ROOT / "csrc/build/rel" / path.with_suffix(".o") for path in sources}


def compiled(tmp_path, code):
    (tmp_path / "bad.c").write_text(code)
    told("cc", "-O2", "-fPIC", "-c", tmp_path / "bad.c", "-o", tmp_path / "bad.o")
    return tmp_path / "bad.o"


def needed(path):
    """The symbols that an object wants from elsewhere."""
    return {line.split()[-1].split("@")[0] for line in told("nm", "-u", path).splitlines() if line.strip()}


def mutable(path):
    """Objects in sections that can be written to after loading."""
    found = []
    for line in told("objdump", "-t", path).splitlines():
        m = re.match(r"[0-9a-f]+ .{5}[^d][O ] (\S+)\s+[0-9a-f]+ (.*)", line)
        if m and re.match(r"(\.data(?!\.rel\.ro)|\.bss|\.tdata|\.tbss|\.ldata|\.lbss|\*COM\*)", m.group(1)):
            found.append(m.group(2))
    return found


def test_no_object_holds_state(objects, tmp_path):
    assert {name: state for name, path in objects.items() if (state := mutable(path))} == {}
    bad = compiled(tmp_path, "static int count; int next(void) { return ++count; } int shared = 3; const char *name = \"x\"; static const char *const fixed[] = {\"y\"};\n"
                             "const char *const *get(void) { return fixed; } _Thread_local int mine;")  # fmt: skip
    assert sorted(mutable(bad)) == ["count", "mine", "name", "shared"]


DOORS = {
    r"(m|c|re)alloc|reallocarray|free|strn?dup|aligned_alloc|posix_memalign|memalign|v?asprintf|open_memstream": {"base/mem"},
    r"clock_gettime|gettimeofday|time|clock|timespec_get|s?rand(om)?(_r)?|[dejlmn]rand48|getrandom|getentropy|arc4random\w*|gpr_now": {"net/clock"},
    r"pthread_create|thrd_create": {"net/transport/loop", "net/transport/pool", "net/transport/door", "net/ports/ports"},
    r"(grpc|gpr)_\w+": {"net/transport/grpc", "net/transport/grpc_tls"},
    r"protobuf_c_\w+|hivemind__\w+": {"net/wire"},
    r"(EVP|X509|PEM|BIO|ERR|SHA256|OPENSSL|d2i|i2d|ASN1|OBJ|PKCS8)_\w+": {"net/identity"},
    r"RAND_\w+|_?Py[A-Z_]\w+|abort|exit|_exit|fork|vfork|system|popen|shm_open|stdout|stderr|__assert_fail|_Zn\w+": set(),
}


def through_the_wrong_door(wants):
    """wants: {"room/file": the symbols it needs}."""
    return [f"{name}: {symbol}" for name, symbols in sorted(wants.items()) for symbol in sorted(symbols)
            for pattern, doors in DOORS.items() if re.fullmatch(pattern, symbol) and name not in doors]  # fmt: skip


def test_every_door_is_the_only_one(objects, tmp_path):
    wants = {name: needed(path) for name, path in objects.items()}
    assert {"malloc", "free"} <= wants["base/mem"]
    assert through_the_wrong_door(wants) == []
    bad = compiled(tmp_path, "#include <stdlib.h>\n#include <time.h>\nvoid *f(void) { return time(NULL) ? malloc(3) : NULL; }")
    assert through_the_wrong_door({"core/bad": needed(bad)}) == ["core/bad: malloc", "core/bad: time"]
    assert through_the_wrong_door({"base/mem": {"malloc"}, "net/a": {"grpc_init"}, "core/b": {"PyObject_Call"}}) == ["core/b: PyObject_Call", "net/a: grpc_init"]


def linked_alone(objects, tmp_path):
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    return run("cc", tmp_path / "main.c", *objects, "-o", tmp_path / "main", "-lm")


def test_the_core_links_alone_against_libc(objects, tmp_path):
    core = [path for name, path in objects.items() if not name.startswith("net/")]
    alone = linked_alone(core, tmp_path)
    assert alone.returncode == 0, alone.stderr
    bad = compiled(tmp_path, "void grpc_init(void); void f(void) { grpc_init(); }")
    assert "grpc_init" in linked_alone([*core, bad], tmp_path).stderr
