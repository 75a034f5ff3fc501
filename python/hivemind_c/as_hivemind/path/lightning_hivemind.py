"""`import lightning_hivemind` in a process that was started by a program under the import hook.

It installs the hook there too, as hivemind.py beside it does.
"""

import hivemind  # noqa: F401
