"""Python is the hands: what decides is the core's, and each object keeps its own fields. Each exception to a rule has
its reason, and none is left over.
"""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "python/hivemind_c"
FOLDERS = "optim", "averaging", "hub"
NAMED = ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
CLOCK = re.compile(
    r"\btime\.(?:sleep|monotonic|time)\b|\bperf_counter\b|\bget_dht_time\(|\basyncio\.sleep\b|\bTimer\("
    r"|\b(?:ended|_ended|event|_cond)\.wait\(|thread\.join\((?:\d|timeout)"
    r"|\bjoin\([A-Z_]+\)|\.(?:result|exception)\([A-Z_]+\)"
)
FIGURES = "ready", "eta", "num_peers", "peers"  # the last is num_peers as the core calls it
MAY_READ_A_CLOCK = {
    "optim/background.py": "whoever waits for a job says how long: at the end of a program shutdown_timeout",
    "optim/clock_check.py": "compares this machine's clock with those of others, for records",
    "optim/rounds.py": "step() takes the moment at which a search ends, and the core gives the seconds until then",
    "optim/epoch_clock.py": "divides the time of a thread among its occupations, for records",
    "optim/forecast.py": "paces lines of the log",
    "optim/layout_report.py": "renews a record of the DHT, for which no step waits",
    "optim/power_sgd_averager.py": "limits the search of PowerSGD's second group, which the machine does not know",
    "optim/progress_tracker.py": "shows the core's seconds as moments, to programs",
    "optim/reach_check.py": "paces questions to the DHT, for which no step waits",
    "optim/reporter.py": "renews a record of the DHT, for which no step waits",
    "optim/setup_watch.py": "the first batch waits for the setups of others, which the machine does not know",
    "optim/speed.py": "measures the speed that progress bars and monitors show",
    "optim/state_offers.py": "paces the offers of a program that has no Optimizer, and so no machine",
    "averaging/averager.py": "step() takes a moment, and the core the seconds until then",
    "averaging/control.py": "tells moments to programs, polls for await, and runs while_waiting in a long wait",
    "averaging/layout_records.py": "draws by the minute which trainers store a record",
    "averaging/on_demand.py": "gives and loads the state of a program that has no Optimizer, and so no machine",
    "averaging/state.py": "divides the time that a program gives to a load among several tries",
    "hub/keeper.py": "waits between two looks as long as the core says, and tells it how long each took",
    "hub/presence.py": "renews a record of the DHT, for which no round waits",
    "hub/receiver.py": "tells the core each second where the trainers are",
    "hub/rounds.py": "paces questions to the DHT for the setup and the layout of a run",
    "hub/run.py": "renews a record of the DHT, and ends the threads of a run",
}
MAY_READ_A_PRIVATE_NAME = {
    "optim/buffer_source.py _walk": "torch says by no public name which buffers a checkpoint has",
    "optim/grad_scaler.py grads_are_finite": "torch says by no public name whether a GradScaler has unscaled gradients",
    "optim/parameters.py Parameters._seen": "torch counts writes into a tensor under this name alone",
    "optim/parameters.py Parameters.pull": "torch counts writes into a tensor under this name alone",
    "optim/setup_fields.py scheduled_by": "torch names the parts of a ChainedScheduler so, and in no other way",
    "optim/torch_interface.py hooked_if_watched.quick": "a module of torch: whether hooks of all optimizers are set",
}
MAY_COMPARE_A_STATUS = {
    "optim/driver.py Driver._offers_not": "a state that is too large for joiners is not made again",
    "optim/step_log.py StepLog._add": "a GPU may have written the values in part",
    "optim/options.py one_of_a_run": "says to a program in its own words that it makes a second optimizer of a run",
    "optim/reporter.py Reporter._run": "its thread ends with the node",
    "averaging/averager.py DecentralizedAverager.step": "of a step that waits, all but a program's mistakes are logged",
    "averaging/control.py StepControl.check_begun": "raises why a step could not begin, not why it found no group",
    "averaging/on_demand.py _ask_and_load": "the donors made offers under several numbers: asks them once more",
    "averaging/on_demand.py OnDemandDonor._run": "its thread ends with the node, which is no news",
    "hub/keeper.py Keeper._load": "says that --memory of the hub is too small",
    "hub/receiver.py Receiver.run": "its thread ends with the node",
}
MAY_READ_A_FIGURE = {
    "optim/epoch_ledger.py EpochLedger._close": "the record of an epoch",
    "optim/epoch_ledger.py EpochLedger.caught_up": "the record of an epoch",
    "optim/hands.py Hands._prepare": "the record of an epoch",
    "optim/epoch_work.py EpochWork.seen": "a record of what the machine was told",
    "optim/forecast.py Forecast.update": "a line of the log",
    "optim/progress_tracker.py ProgressTracker.global_progress": "a public property",
    "optim/progress_tracker.py ProgressTracker.ready_to_update_epoch": "a public property",
    "optim/progress_tracker.py ProgressTracker.estimated_next_update_time": "a public property",
    "optim/speed.py Speed.look": "the speed that progress bars and monitors show",
    "optim/layout_report.py LayoutReport.renew": "in a large run only some trainers store a record",
    "optim/reporter.py Reporter._run": "in a large run each trainer stores its record more rarely",
    "optim/setup_watch.py SetupWatch.check": "waits only where others are, for setups, which the machine does not know",
    "optim/setup_watch.py SetupWatch.check_again": "others that are counted have not told their setup yet",
}


def trees():
    """{file: its code as a tree, without docstrings}."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).glob("*.py")):
            found[f"{folder}/{path.name}"] = without_docstrings(ast.parse(path.read_text()))
    return found


def without_docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, *NAMED)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def within(node, name=""):
    """(class and function, node, the node around it) of each node of a tree."""
    for inner in ast.iter_child_nodes(node):
        place = f"{name}.{inner.name}".lstrip(".") if isinstance(inner, NAMED) else name
        yield place, inner, node
        yield from within(inner, place)


def places(is_one):
    """{file and function: the first such code in it}."""
    found = {}
    for file, tree in trees().items():
        modules = {one.asname or one.name.split(".")[0] for one in imported(tree)}
        for place, node, around in within(tree):
            if is_one(node, around, modules):
                found.setdefault(f"{file} {place}".rstrip(), ast.unparse(node))
    return found


def imported(tree):
    return [one for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]


def is_text(node, pattern):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(re.fullmatch(pattern, node.value))


def asks_by_text(node, pattern):
    """True of getattr(one, "name") and hasattr(one, "name")."""
    asks = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr")
    return asks and is_text(node.args[1], pattern)


def reads_private(node, around, modules):
    """True of a private attribute of another object. A module's private names are its own affair."""
    if asks_by_text(node, "_[^_].*"):
        return True
    if not isinstance(node, ast.Attribute) or not re.fullmatch("_(?!_).*", node.attr):
        return False
    owner = ast.unparse(node.value)
    return owner not in ("self", "cls", "super()") and owner.split(".")[0] not in modules


def compares_status(node, around, modules):
    """True of a comparison of an error's status."""
    if not isinstance(node, ast.Compare):
        return False
    parts = list(ast.walk(node))
    return any(isinstance(one, ast.Attribute) and one.attr == "status" or asks_by_text(one, "status") for one in parts)


def reads_figure(node, around, modules):
    """True of a figure of the swarm; not of a method of that name, nor of an object's own field."""
    if not isinstance(node, ast.Attribute) or node.attr not in FIGURES:
        return False
    return not (isinstance(around, ast.Call) and around.func is node) and ast.unparse(node.value) != "self"


def clock_users():
    """Files that read a clock or wait for a time, with the first such line."""
    lines = {file: ast.unparse(tree).splitlines() for file, tree in trees().items()}
    found = {file: [line.strip() for line in of if CLOCK.search(line)] for file, of in lines.items()}
    return {file: of[0] for file, of in found.items() if of}


def check(found, may):
    assert {place: code for place, code in found.items() if place not in may} == {}
    assert sorted(set(may) - set(found)) == [], "an exception that nothing needs any more"


def test_no_other_file_reads_a_clock():
    check(clock_users(), MAY_READ_A_CLOCK)


def test_no_private_attribute_of_another_object_is_read():
    check(places(reads_private), MAY_READ_A_PRIVATE_NAME)


def test_no_other_code_compares_the_status_of_an_error():
    check(places(compares_status), MAY_COMPARE_A_STATUS)


def test_no_other_code_reads_a_figure_of_the_swarm():
    check(places(reads_figure), MAY_READ_A_FIGURE)


def test_pattern_finds_a_clock_and_a_timed_wait():
    for line in (
        "until = time.monotonic() + 3",
        "time.sleep(0.1)",
        "while not ended.wait(LOOK_S):",
        "Timer(1, f)",
        "await asyncio.sleep(0.1)",
        "thread.join(JOIN_S)",
        "asked.result(LINGER_S)",
        "future.exception(SLICE_S)",
        "now = get_dht_time()",
    ):
        assert CLOCK.search(line), line


def seen_in(code, is_one):
    return [ast.unparse(node) for _, node, around in within(ast.parse(code)) if is_one(node, around, {"torch"})]


def test_reads_are_told_from_methods_modules_and_own_fields():
    private = "a._b; self.a._b; getattr(a, '_b'); self._b; super()._b; torch._b; torch.c._b; a.__doc__; a.b"
    assert seen_in(private, reads_private) == ["a._b", "self.a._b", "getattr(a, '_b')"]
    status = "e.status == 'A'; getattr(e, 'status', '') in x; tell(status=e.status); e.state == 'A'"
    assert seen_in(status, compares_status) == ["e.status == 'A'", "getattr(e, 'status', '') in x"]
    assert seen_in("now.ready; self.ready; tensors.ready(); now.eta + 1", reads_figure) == ["now.ready", "now.eta"]
