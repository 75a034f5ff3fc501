"""import and start of a node against starting one DHT node of hivemind

Each time in a fresh process. `start` sets our import and start together against the other's start alone (which excludes its import and spawns
a daemon); `start_alone` and `with_import` compare like with like.
"""

from benchmarks import peers
from benchmarks.frame import column
from benchmarks.programs import our_python

GOALS = {"start": 10.0}
ROUNDS = 9

TIMED = """
import json, time
begun = time.perf_counter()
{imports}
imported = time.perf_counter()
node = {start}
started = time.perf_counter()
node.shutdown()
stopped = time.perf_counter()
print(json.dumps({{"import_s": imported - begun, "start_s": started - imported, "whole_s": started - begun, "stop_s": stopped - started}}))
"""
OURS = TIMED.format(imports="import hivemind_c", start="hivemind_c.Node('/ip4/127.0.0.1/tcp/0')")
THEIRS = TIMED.format(imports="import hivemind", start="hivemind.DHT(start=True)")


def measure(run):
    samples = run.interleave({"ours": lambda: our_python(OURS), "hivemind": lambda: peers.python(THEIRS)})
    ours, theirs = samples["ours"], samples["hivemind"]
    run.ratio("start", column(theirs, "start_s"), column(ours, "whole_s"))
    run.ratio("start_alone", column(theirs, "start_s"), column(ours, "start_s"))
    run.ratio("with_import", column(theirs, "whole_s"), column(ours, "whole_s"))
    run.figures_of(samples)
