"""Prints the public names of a wheel of hivemind, module by module: how hivemind_names.txt was made.

    python tests/py/compat/list_names.py hivemind-1.1.12-py3-none-manylinux2014_x86_64.whl

A name is public if it has no leading underscore, and the module defines it, or a package takes it from another module
of hivemind. Mixture of Experts, code that protoc made, the copy of py-multiaddr and loggers do not count.
"""

import ast
import sys
import zipfile

OUTSIDE = "hivemind.moe", "hivemind.proto", "hivemind.utils.multiaddr."


def read(wheel):
    """{module: (its source, whether it is a package)}"""
    with zipfile.ZipFile(wheel) as packed:
        files = [name for name in packed.namelist() if name.startswith("hivemind/") and name.endswith(".py")]
        return {
            name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): (
                packed.read(name).decode(),
                name.endswith("__init__.py"),
            )
            for name in files
        }


def statements(body):
    """Those of a module, of the branches of "if" and "try" too."""
    for one in body:
        yield one
        inner = [*getattr(one, "body", []), *getattr(one, "orelse", [])] if isinstance(one, (ast.If, ast.Try)) else []
        yield from statements([*inner, *(x for handler in getattr(one, "handlers", []) for x in handler.body)])


def names(modules, module):
    source, is_package = modules.get(module, ("", False))
    found = set()
    for one in statements(ast.parse(source).body):
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(one.name)
        elif isinstance(one, (ast.Assign, ast.AnnAssign)):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            found.update(x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name))
        elif isinstance(one, ast.ImportFrom) and is_package and (one.module or "").startswith("hivemind"):
            for name in one.names:
                found |= names(modules, one.module) if name.name == "*" else {name.asname or name.name}
    return {name for name in found if not name.startswith("_") and name != "logger"}


def main(wheel):
    modules = read(wheel)
    for module in sorted(modules):
        if not module.startswith(OUTSIDE) and (found := names(modules, module)):
            print(f"{module}: {' '.join(sorted(found))}")


if __name__ == "__main__":
    main(sys.argv[1])
