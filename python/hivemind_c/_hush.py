"""Loads the C core with gRPC's own messages off: a current gRPC reads GRPC_VERBOSITY once, when it is loaded."""

import os

_NAME = "GRPC_VERBOSITY"
_asked = _NAME in os.environ
os.environ.setdefault(_NAME, "NONE")
try:
    import _hivemind_c  # noqa: F401
finally:
    if not _asked:
        del os.environ[_NAME]
