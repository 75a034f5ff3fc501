"""Puts _hivemind_small in the place of _hivemind_c, for machines without the network's libraries.

All other names are empty classes.

As a plugin of pytest: ``-p small``. Before a module: ``python -m small MODULE [ARGUMENT...]``.
"""

import runpy
import sys

import _hivemind_small

_hivemind_small.__getattr__ = lambda name: type(name, (), {})
sys.modules["_hivemind_c"] = _hivemind_small

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
