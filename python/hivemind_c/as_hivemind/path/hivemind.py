"""`import hivemind` in a process that a program behind the door started: opens the door there, too, which puts its own
module in the place of this one."""

import importlib.util
import os
import sys

if importlib.util.find_spec("hivemind_c") is None:  # as where the program was started in the folder that has it
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))

from hivemind_c.as_hivemind.door import open_door  # noqa: E402

open_door()
