"""Real processes: trainers that are killed, interrupted, and read their data with forked workers."""

import pathlib
import signal
import sys
import time

import pytest

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "digits"

ALONE = """
    import sys, torch
    import hivemind_c as hivemind
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    dht = hivemind.DHT(host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True)
    optimizer = hivemind.Optimizer(dht=dht, run_id="r", target_batch_size=64, batch_size_per_step=16,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
"""


def test_defect_03_ctrl_c_ends_a_trainer(program):
    running = program(
        ALONE
        + """
    while True:
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if optimizer.local_epoch == 3:
            print("training", flush=True)
    """
    )
    assert running.line() == "training"
    running.process.send_signal(signal.SIGINT)
    for _ in range(1000):
        if running.line() != "training":
            break
    code, _, err = running.finish()
    assert code in (-2, 130), err
    assert err.strip().endswith("KeyboardInterrupt")


def test_defect_03_ctrl_c_ends_a_trainer_that_waits_for_others(program):
    running = program(
        """
    import sys, time, torch
    import hivemind_c as hivemind
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    here = ["/ip4/127.0.0.1/tcp/0"]
    other = hivemind.DHT(host_maddrs=here, start=True)
    dht = hivemind.DHT(other.get_visible_maddrs(), host_maddrs=here, start=True, wait_timeout=30, startup_timeout=90)
    ghost = hivemind.ProgressTracker(other, "r", 16, start=True)
    ghost.report_local_progress(0, 15)
    optimizer = hivemind.Optimizer(
        dht=dht, run_id="r", target_batch_size=16, batch_size_per_step=16,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        matchmaking_time=60, averaging_timeout=120,
    )
    optimizer.tracker.report_local_progress(0, 0)
    while optimizer.tracker.global_progress.num_peers < 2:
        optimizer.tracker.fetch_global_progress()
        time.sleep(0.05)
    try:
        print("about to wait", flush=True)
        while optimizer.local_epoch == 0:
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        print("it came back", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        optimizer.shutdown()
        print("shut down", flush=True)
    """
    )
    assert running.line() == "about to wait"
    time.sleep(2)
    running.process.send_signal(signal.SIGINT)
    assert running.line() == "interrupted"
    assert running.line() == "shut down"
    code, _, err = running.finish()
    assert (code, err) == (0, "")


def test_data_may_be_read_by_forked_workers(program):
    code, out, err = program(
        ALONE
        + """
    data = torch.utils.data.TensorDataset(torch.randn(256, 8))
    for (inputs,) in torch.utils.data.DataLoader(data, batch_size=16, num_workers=2, multiprocessing_context="fork"):
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(optimizer.local_epoch)
    optimizer.shutdown()
    dht.shutdown()
    """
    ).finish(timeout=120)
    assert (code, out.strip()) == (0, "4"), err


def test_a_trainer_that_just_ends_leaves_no_noise(program):
    code, out, err = program(
        ALONE
        + """
    for _ in range(8):
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(optimizer.local_epoch)
    """
    ).finish()
    assert (code, out.strip(), err) == (0, "2", "")


@pytest.mark.parametrize("end", ["returns", "sys.exit", "after shutdown", "Ctrl-C as it begins"])
def test_a_trainer_that_ends_while_a_delayed_step_runs_ends_well(program, end):
    """Python ends daemon threads when they ask for the interpreter, and torch calls std::terminate then: the step is
    waited for."""
    code, out, err = program(
        """
        import sys, threading, time, torch, hivemind_c as hivemind
        torch.set_num_threads(1)
        start = threading.Thread.start

        def interrupted(thread):
            start(thread)
            if thread.name == "hivemind_c optimizer":
                raise KeyboardInterrupt

        if sys.argv[1] == "Ctrl-C as it begins":
            threading.Thread.start = interrupted

        def busy(_):  # as a large optimizer is: in torch's code nearly all the time
            matrix, end = torch.randn(200, 200), time.monotonic() + 1.0
            while time.monotonic() < end:
                matrix @ matrix
            print("stepped", flush=True)

        model = torch.nn.Linear(8, 1)
        dht = hivemind.DHT(start=True)
        optimizer = hivemind.Optimizer(
            dht=dht, run_id="ends", target_batch_size=1, batch_size_per_step=1, matchmaking_time=0.5,
            averaging_timeout=5, shutdown_timeout=0.1,
            optimizer=lambda params: torch.optim.SGD(params, lr=0.1), params=model.parameters(),
            delay_optimizer_step=True, averaged_grad_hook=busy,
        )
        model(torch.ones(1, 8)).sum().backward()
        try:
            optimizer.step()
            assert sys.argv[1] != "Ctrl-C as it begins"
        except KeyboardInterrupt:
            pass
        if sys.argv[1] == "after shutdown":
            optimizer.shutdown()
            dht.shutdown()
        print("ends", flush=True)
        if sys.argv[1] == "sys.exit":
            sys.exit()
        """,
        end,
    ).finish(timeout=120)
    assert (code, out.split()) == (0, ["ends", "stepped"]), err
    assert "shutdown_timeout=0.1 s" in err if end == "after shutdown" else not err


def test_a_trainer_that_ends_while_its_news_are_told_ends_well(program):
    code, out, err = program(
        ALONE
        + """
    import threading, time
    asked = threading.Event()

    class Loss:  # one that is long in torch's code
        def detach(self):
            return self

        def __float__(self):
            matrix, end = torch.randn(200, 200), time.monotonic() + 1.0
            asked.set()
            while time.monotonic() < end:
                matrix @ matrix
            print("told", flush=True)
            return 1.0

    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
    optimizer.report_loss(Loss())
    assert asked.wait(60)
    print("ends", flush=True)
    """
    ).finish(timeout=120)
    assert (code, out.split(), err) == (0, ["ends", "told"], "")


def test_killed_and_restarted_trainers_end_like_the_others():
    """examples/digits, in short: three trainers, six epochs. In each epoch each is killed with probability 0.3."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        import swarm
    finally:
        sys.path.remove(str(EXAMPLES))
    options = ["--target_batch_size", "1536", "--pause", "0.1"]
    clean = swarm.run(3, 6, 0.0, 0, options, timeout=400)
    harsh = swarm.run(3, 6, 0.3, 1, options, timeout=400)
    assert clean["killed"] == 0 and clean["finished"] == 3 and clean["equal_at_the_end"]
    assert harsh["killed"] >= 1 and harsh["finished"] == 3 and harsh["equal_at_the_end"]
    assert abs(harsh["loss"] / clean["loss"] - 1) < 0.05
