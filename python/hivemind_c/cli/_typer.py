"""typer and rich for hivemind-monitor, and the words of its command line."""

from __future__ import annotations

import sys
from typing import Any, List, Sequence

try:
    import rich
    import rich.text
    import typer
except ImportError as missing:
    raise SystemExit(f"this program needs {missing.name}, which is not installed: install hivemind_c's wheel with [monitor]") from None

__all__ = ["expand", "rich", "run", "typer"]


def expand(arguments: Sequence[str], several: Sequence[str], switches: Sequence[str] = ()) -> List[str]:
    """--initial_peers A B, as programs of swarms have it, becomes --initial_peers A --initial_peers B; a switch may have a word: --use_ipfs False."""
    result: List[str] = []
    option, given = None, 0
    for last, word in zip(["", *arguments], arguments):
        if last in switches and word.lower() in ("true", "false"):
            if word.lower() == "false":
                result[-1] = last.replace("--", "--no_", 1)
        elif word.startswith("--"):
            name = word.split("=")[0]
            option, given = (name, 0) if name in several and "=" not in word else (None, 0)
            if option is None:
                result.append(word)
        elif option is not None:
            result += [option, word]
            given += 1
        else:
            result.append(word)
    return result


def run(app: Any, several: Sequence[str], switches: Sequence[str] = ()) -> int:
    """Its exit code."""
    command = typer.main.get_command(app)
    try:
        code = command.main(args=expand(sys.argv[1:], several, switches), standalone_mode=False)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        return 130
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):  # click's own: a wrong option, say
            error.show()
            return int(error.exit_code)
        raise
    return int(code or 0)
