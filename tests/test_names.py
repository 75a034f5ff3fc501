"""Each type of the C code, and each include guard, has a name of its own.

One name for two types reads well in each file, and stops the first file that includes both.
"""

import re

import pytest

from test_tidy import C_FILES, CODE, ROOT, code_of, tree_of

TYPE = re.compile(
    r"\b(?:struct|enum|union)\s+(hv_\w+)\s*\{|\btypedef\s+(?:struct|enum|union)\s*\{[^{}]*\}\s*(hv_\w+)\s*;"
)
GUARD = re.compile(r"\A\s*#ifndef\s+(\w+)\s*\n\s*#define\s+\1\b")


def shared_names(tree):
    """{name: the files that define it} of types and guards with more than one definition, of {path: text}."""
    places = {}
    for path, text in tree.items():
        if path.startswith(CODE) and path.endswith(C_FILES):
            code = code_of(text)
            for found in TYPE.finditer(code):
                places.setdefault(found[1] or found[2], []).append(path)
            for found in GUARD.finditer(code):
                places.setdefault(found[1], []).append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def guarded(text):
    return f"/* what it is */\n#ifndef HV_CORE_X_H\n#define HV_CORE_X_H\n{text}\n#endif"


def test_types_and_guards_have_names_of_their_own():
    assert shared_names(tree_of(ROOT)) == {}


@pytest.mark.parametrize(
    "name, one, other",
    [
        ("hv_x", "typedef struct hv_x { int a; } hv_x;", "typedef struct hv_x { int b; } hv_x;"),
        ("hv_x", "struct hv_x {\n  int a;\n};", "typedef enum hv_x { A, B } hv_x;"),
        ("hv_x", "typedef struct {\n  int a;\n} hv_x;", "union hv_x { int a; };"),
        ("HV_CORE_X_H", guarded(""), guarded("int f(void);")),
    ],
)
def test_second_type_or_guard_of_one_name_is_seen(name, one, other):
    assert set(shared_names({"csrc/core/a/x.h": one, "csrc/net/x.h": other})) == {name}


@pytest.mark.parametrize(
    "one, other",
    [
        ("typedef struct hv_x hv_x;\nstruct hv_x { int a; };\nhv_x *f(struct hv_x *x);", "/* struct hv_x { } */"),
        (guarded(""), "#ifndef HV_CORE_X_H\n#define OTHER\n#endif"),
        ("struct work { int a; };", "struct work { int b; };"),
    ],
)
def test_uses_and_private_types_are_left_alone(one, other):
    assert shared_names({"csrc/core/a/x.h": one, "csrc/net/y.c": other}) == {}
