"""The extension itself: other interpreters, other libraries beside it, and its stubs."""

import ast
import inspect
import itertools
import pathlib
import re

import _hivemind_c
import pytest

import hivemind_c

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_the_version_is_the_one_of_the_c_header():
    header = (ROOT / "csrc/include/hivemind_c.h").read_text()
    assert hivemind_c.__version__ == _hivemind_c.__version__ == re.search(r'HV_VERSION_TEXT "(.*)"', header).group(1)


@pytest.mark.parametrize("order", list(itertools.permutations(["torch", "numpy", "hivemind_c"])), ids=", ".join)
def test_module_is_imported_with_torch_and_numpy_in_any_order(program, order):
    code, out, err = program(
        f"""
        import {order[0]}
        import {order[1]}
        import {order[2]}
        from hivemind_c import Node

        first = Node("/ip4/127.0.0.1/tcp/0")
        second = Node("/ip4/127.0.0.1/tcp/0", initial_peers=first.addresses)
        second.wait_for_peers(1, 60)
        sent = torch.arange(1000.0) @ torch.ones(1000, 3)
        second.send(first, (torch.ones(8, 1000) @ torch.ones(1000, 8)).numpy(), timeout=60)
        view = first.receive(60)[1]
        print(numpy.frombuffer(view, numpy.float32).sum())
        """
    ).finish(timeout=120)
    assert (code, out, err) == (0, "64000.0\n", "")


INSIDE = """
import sys
sys.path[:] = PATH
from hivemind_c import HivemindError, Node
with Node("/ip4/127.0.0.1/tcp/0", initial_peers=ADDRESSES) as node:
    node.wait_for_peers(1, 60)
    other = ADDRESSES[0].rsplit("/")[-1]
    assert node.echo(other, b"inside") == b"inside"
    node.send(other, bytearray(100000), timeout=60)
    try:
        node.receive(0.01)
    except HivemindError as error:
        assert error.status == "TIMEOUT"
left = Node("/ip4/127.0.0.1/tcp/0")
"""

OUTSIDE = """
import sys
from hivemind_c import Node
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

own = Node("/ip4/127.0.0.1/tcp/0")
inside = sys.argv[1].replace("PATH", repr(sys.path)).replace("ADDRESSES", repr(own.addresses))
for _ in range(3):
    one = interpreters.create()
    wrong = interpreters.run_string(one, inside)
    assert not wrong, wrong
    interpreters.destroy(one)
    assert own.receive(60)[1].nbytes == 100000
own.shutdown()
print("fine")
"""


def test_other_interpreters_have_nodes_of_their_own(program):
    code, out, err = program(OUTSIDE, INSIDE).finish()
    assert (code, out, err) == (0, "fine\n", "")


def test_stubs_name_all_of_the_module():
    stubs = ast.parse((ROOT / "python/_hivemind_c-stubs/__init__.pyi").read_text())
    told = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stubs.body if isinstance(node, ast.FunctionDef)}
    values = {node.target.id for node in stubs.body if isinstance(node, ast.AnnAssign)}
    there = {name for name in dir(_hivemind_c) if not name.startswith("__")} | {"__version__"}
    assert there == told.keys() | values | functions


def test_every_public_thing_is_explained():
    for name in hivemind_c.__all__:
        thing = getattr(hivemind_c, name)
        if inspect.isclass(thing):
            assert thing.__doc__, name
    for name, member in vars(hivemind_c.Node).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            assert member.__doc__, name
