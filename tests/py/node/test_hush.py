"""gRPC's own messages are off while its library is loaded, unless the program asks for them."""

import os
import subprocess
import sys

WATCHED = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "_hivemind_c":
            print("loaded", os.environ.get("GRPC_VERBOSITY"))

sys.meta_path.insert(0, Watch())
import hivemind_c
print("later", os.environ.get("GRPC_VERBOSITY"))
"""


def lines_of(**more):
    env = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    said = subprocess.check_output([sys.executable, "-c", WATCHED], env={**env, **more}, text=True)
    return said.splitlines()


def test_messages_are_off_only_while_the_library_is_loaded():
    assert lines_of() == ["loaded NONE", "later None"]


def test_program_that_asks_for_messages_gets_them():
    assert lines_of(GRPC_VERBOSITY="INFO") == ["loaded INFO", "later INFO"]
