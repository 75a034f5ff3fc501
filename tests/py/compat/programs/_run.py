"""Runs the programs whose paths come on standard input, and answers each with one line in JSON: None, or what went
wrong."""

import json
import runpy
import sys
import traceback

for path in sys.stdin:
    error = None
    try:
        runpy.run_path(path.strip(), run_name="__main__")
    except BaseException:
        error = traceback.format_exc()
    print("\n@" + json.dumps(error), flush=True)
