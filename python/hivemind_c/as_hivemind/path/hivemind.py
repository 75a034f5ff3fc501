"""`import hivemind` in a process that was started by a program under the import hook.

It installs the hook there too, and the hook puts its own module in the place of this one.
"""

import importlib.util
import os
import sys

if importlib.util.find_spec("hivemind_c") is None:  # as where the program was started in the folder that has it
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))

from hivemind_c.as_hivemind.import_hook import install  # noqa: E402

install()
