"""The figures on the monitors' pages against those that real trainers wrote into their logs, with a liar among them,
after a reload and after a restart."""

import html
import json
import re

from support import eventually, free_port, text_of
from test_monitor_page import EVIL, monitors  # noqa: F401  one of them is a fixture

TRAINER = """
    import json, logging, os, re, sys, threading, time
    os.environ["HIVEMIND_NAME"] = sys.argv[3]
    import torch
    import hivemind_c as hivemind

    class Log(logging.Handler):
        lines = []
        def emit(self, record):
            self.lines.append(record.getMessage())

    logging.getLogger("hivemind_c").addHandler(Log())
    logging.getLogger("hivemind_c").setLevel("INFO")
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    dht = hivemind.DHT(sys.argv[1], host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True, wait_timeout=30,
        startup_timeout=90)
    optimizer = hivemind.Optimizer(
        dht=dht, run_id="people", target_batch_size=256, batch_size_per_step=16,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01), matchmaking_time=1, averaging_timeout=6,
        verbose=True, tracker_opts=dict(min_refresh_period=0.1, default_refresh_period=0.1, max_refresh_period=0.5),
    )
    ended, loss, last = threading.Event(), float(sys.argv[2]), 64
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    print(dht.peer_id, flush=True)
    while not ended.is_set() or last:  # when it is told to end: 64 batches more, with another loss
        last -= ended.is_set()
        said = torch.tensor(10 * loss if ended.is_set() else loss)
        optimizer.step(lambda: (optimizer.zero_grad(), model(torch.ones(16, 8)).square().mean().backward(), said)[2])
        time.sleep(0.01)
    optimizer.state_averager.background.take(wait=True)
    failed = set(re.findall(r"^swarm epoch (\\d+): averaging gradients failed", "\\n".join(Log.lines), re.M))
    given = re.findall(r"contributed (\\d+) samples to swarm epoch (\\d+)", "\\n".join(Log.lines))
    print(json.dumps({
        "epoch": optimizer.local_epoch,
        "loss": said.item(),
        "samples": optimizer.local_samples + sum(int(samples) for samples, epoch in given if epoch not in failed),
        "with_kept": optimizer.local_samples + sum(int(samples) for samples, _ in given),
        "rounds": sum(bool(re.match("Averaged (tensors|state) successfully", line)) for line in Log.lines),
        "failures": sum(bool(re.match(r"swarm epoch \\d+: (averaging .*failed|the others made this step "
        "without)", line)) for line in Log.lines),
        "log": Log.lines[-30:],
    }), flush=True)
    threading.Event().wait()
"""

LIAR = """
    import sys, time
    from hivemind_c import DHT, ProgressTracker, get_dht_time
    from hivemind_c.dht import news
    from hivemind_c.dht.values import unpack
    dht = DHT(sys.argv[1], host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True, wait_timeout=30, startup_timeout=90)
    tracker = ProgressTracker(dht, "people", 256, start=True)
    key, subkey = news.key_of("people", dht.peer_id), news.subkey_of(dht.peer_id)
    print(dht.peer_id, flush=True)
    while True:
        tracker.report_local_progress(1_000_000, 1_000_000)
        said = news.News(sys.argv[2], sys.argv[2], "trainer", get_dht_time(), 10.0, 1_000_000, 9, 1 << 47, 1e11, -1e9,
            1 << 40, 0, ((7, sys.argv[2]),))
        dht.store(key, unpack(news.write_news(said)), get_dht_time() + 10, subkey=subkey)
        time.sleep(1)
"""

FIGURES = "epoch", "loss", "samples", "rounds", "failures"
CELLS = (
    *("peer", "name", "role", "version", "epoch", "samples", "share", "speed", "loss", "rounds", "failures", "last"),
    "seen",
)


def rows_of(page):
    """{peer ID: what stands in its row}."""
    found = {}
    for kind, peer, row in re.findall(r'<tr(?: class="(\w+)")? title="(12D3\w+)">(.*?)</tr>', page):
        cells = [html.unescape(re.sub("<.*?>", "", cell)) for cell in re.findall(r"<td>(.*?)</td>", row)]
        found[peer] = {**dict(zip(CELLS, cells)), "kind": kind}
    return found


def points_of(page):
    return int(re.search(r'id="loss-chart"[^>]*data-points="(\d+)"', page)[1])


def test_pages_show_the_trainers_logs_despite_a_liar(monitors, program, browser):  # noqa: F811
    port = free_port()
    first = monitors(port=port)
    second = monitors("--initial_peers", first.peers, folder="other")
    both = f"{first.peers},{second.peers}"
    names = {1.25: "amber", 3.5: EVIL}
    trainers = {loss: program(TRAINER, both, loss, name) for loss, name in names.items()}
    peers = {loss: trainer.line() for loss, trainer in trainers.items()}
    assert eventually(lambda: all(any(point[4] == 2.375 for point in monitor.history()) for monitor in (first, second)))
    liar = program(LIAR, both, EVIL)  # beside one trainer it would be half of all
    lies = liar.line()

    def told(monitor):
        return {peer["peer_id"]: peer for peer in monitor.run().get("peers", [])}

    assert eventually(
        lambda: (
            len(told(first)) == len(told(second)) == 3
            and first.run()["num_peers"] == 3
            and 4 <= first.run()["epoch"] < 1000
        )
    ), first.run()
    for trainer in trainers.values():
        trainer.say()
    logged = {peers[loss]: {**json.loads(trainer.line()), "name": names[loss]} for loss, trainer in trainers.items()}
    assert {said["loss"] for said in logged.values()} == {12.5, 35.0}

    def differs(monitor):
        said = told(monitor)
        return [
            (known["name"], what, said[peer][what], known[what], *known["log"])
            for peer, known in logged.items()
            for what in FIGURES
            if said[peer][what] not in ((known[what], known["with_kept"]) if what == "samples" else (known[what],))
        ]

    for monitor in (first, second):
        assert eventually(lambda: not differs(monitor)), "\n".join(map(str, differs(monitor)))
        page = browser(monitor.web)
        rows = rows_of(page)
        assert set(rows) == {*logged, lies} and "<img" not in page and page.count("<script") == 1
        for peer, known in logged.items():
            shown = {
                name: rows[peer][name] for name in ("name", "epoch", "samples", "loss", "rounds", "failures", "kind")
            }
            # those of a step without the others are averaged once this peer's replica is the swarm's, and lost with it
            seen = {**known, "samples": told(monitor)[peer]["samples"]}
            expected = {name: f"{seen[name]:,}" for name in ("epoch", "samples", "rounds", "failures")}
            assert shown == {**expected, "name": known["name"], "loss": f"{known['loss']:.4f}", "kind": ""}
        assert (
            rows[lies]["kind"] == "doubt"
            and rows[lies]["seen"].startswith("says swarm epoch 1000000")
            and rows[lies]["version"] == EVIL
        )
        assert text_of(page, "loss") == "23.7500", "the middle of the two"
        assert (
            text_of(page, "epoch") == f"{max(known['epoch'] for known in logged.values()):,}"
            and text_of(page, "state") == "live"
        )
        assert eventually(lambda: monitor.history()[-1][4] == 23.75)
        seen = [point[4] for point in monitor.history()]
        assert 2.375 in seen and all(loss is None or 1.25 <= loss <= 35 for loss in seen)

    before, drawn = first.history(), points_of(browser(first.web))
    assert drawn >= len([point for point in before if point[4] is not None]) - 2
    first.process.kill()  # no time for a last word
    first.process.wait()
    again = monitors(port=port)
    assert again.line == first.line and again.history()[: len(before) - 2] == before[:-2]
    assert eventually(lambda: set(told(again)) == {*logged, lies} and not differs(again)), (told(again), differs(again))
    page = browser(again.web)
    assert points_of(page) >= drawn and rows_of(page)[lies]["kind"] == "doubt" and text_of(page, "loss") == "23.7500"
    assert any(EVIL == failure["text"] for failure in again.run()["failures"]) and page.count("<script") == 1
