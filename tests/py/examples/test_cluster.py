"""The recipes of examples/cluster: their manifests are sound, and what they start runs here."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

from support import eventually

CLUSTER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "cluster"
SBATCH = set("job-name ntasks cpus-per-task mem time requeue array gpus-per-task open-mode signal".split())


def program(path, *lines):
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


@pytest.fixture
def start(tmp_path):
    """start(command, **environment) runs it with what a machine of a cluster has: python and hivemind-monitor on the
    PATH."""
    tools, running = tmp_path / "bin", []
    tools.mkdir()
    for name, words in (("hivemind-monitor", "-m hivemind_c.cli.monitor"), ("python", "")):
        program(tools / name, f'exec {sys.executable} {words} "$@"')
    about = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "XDG_STATE_HOME": str(tmp_path),
        "INITIAL_PEERS": "",
    }

    def run(*command, cwd=tmp_path, **environment):
        process = subprocess.Popen(
            list(map(str, command)), cwd=cwd, env={**os.environ, **about, **environment}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True
        )  # fmt: skip
        running.append(process)
        return process

    yield run
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ended(process, timeout=280):
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, out + err
    return out


def directives(path):
    return dict((m[1], m[2]) for m in re.finditer(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", path.read_text(), re.M))


def test_slurm_an_array_is_preempted_and_comes_back(start, tmp_path):
    shared, batch = tmp_path / "shared", {}
    for name in ("monitor", "trainers"):
        batch[name] = CLUSTER / "slurm" / f"{name}.sbatch"
        assert subprocess.run(["bash", "-n", batch[name]]).returncode == 0
        assert set(directives(batch[name])) <= SBATCH and "requeue" in directives(batch[name])
        assert batch[name].read_text().count("#SBATCH") == len(directives(batch[name])), "each on a line of its own"
        assert not any(
            name.endswith("-per-task") and name.startswith("gpus") for name in directives(batch[name])
        ) or "ntasks" in directives(batch[name]), "sbatch refuses it"
    assert re.fullmatch(r"\d+-\d+", directives(batch["trainers"])["array"]) and directives(batch["trainers"])[
        "signal"
    ].startswith("B:TERM@")
    about = dict(
        SWARM_DIR=str(shared),
        RUN_ID="slurm",
        LISTEN="/ip4/127.0.0.1/tcp/0",
        WEB="0",
        SLURM_JOB_ID="17",
        SLURM_SUBMIT_DIR=str(CLUSTER / "slurm"),
    )
    options = "--host_maddrs /ip4/127.0.0.1/tcp/0 --target_batch_size 8192 --epochs"

    def task(index, epochs):
        return start(
            "bash", batch["trainers"], **about, SLURM_ARRAY_TASK_ID=str(index), TRAINER_OPTIONS=f"{options} {epochs}"
        )

    waited = tmp_path / "waited"
    program(tmp_path / "bin" / "sleep", f"touch {waited}", f'exec {shutil.which("sleep")} "$@"')
    taken = task(0, 100_000)
    assert eventually(waited.exists), "the trainer waits for a monitor that Slurm starts later"
    monitor = start("bash", batch["monitor"], **about)
    log = shared / "monitor-17.out"
    assert eventually(lambda: log.exists() and "INITIAL_PEERS=/ip4/127.0.0.1/" in log.read_text()), (
        monitor.stderr.read()
    )
    web = re.search(r"WEB=(\S+)", log.read_text())[1] if eventually(lambda: "WEB=" in log.read_text()) else ""
    assert eventually(lambda: epoch_of(web) >= 2, 240), taken.communicate()
    taken.terminate()
    assert taken.wait(120) is not None
    assert (shared / "peer-0" / "slurm-preempted.ckpt").exists() and (
        shared / "peer-0" / "peer.key"
    ).stat().st_mode & 0o777 == 0o600
    stood = epoch_of(web)
    again = task(0, stood + 4)
    assert int(re.search(r"ended in global epoch (\d+)", ended(again))[1]) >= stood + 4
    monitor.terminate()
    ended(monitor)


def epoch_of(web):
    import json
    import urllib.request

    with urllib.request.urlopen(web + "api/run", timeout=20) as answer:
        return json.load(answer).get("epoch", 0)


def manifests(name):
    return list(yaml.safe_load_all((CLUSTER / "kubernetes" / name).read_text()))


def test_kubernetes_manifests_fit_together():
    service, monitor = manifests("monitor.yaml")
    (job,) = manifests("trainers.yaml")
    assert [(m["apiVersion"], m["kind"]) for m in (service, monitor, job)] == [
        ("v1", "Service"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
    ]
    pod = monitor["spec"]["template"]
    assert service["spec"]["selector"] == monitor["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert monitor["spec"]["serviceName"] == service["metadata"]["name"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {(port["port"], ports[port["targetPort"]]) for port in service["spec"]["ports"]} == {
        (31337, 31337),
        (8080, 8080),
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        claim["metadata"]["name"] for claim in monitor["spec"]["volumeClaimTemplates"]
    }
    spec = job["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "podFailurePolicy asks for it"
    assert (
        spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["type"] == "DisruptionTarget"
        and spec["completions"] == spec["parallelism"]
    )
    for one in (pod, spec["template"]):
        assert one["spec"]["securityContext"]["runAsNonRoot"] and all(
            "requests" in c["resources"] for c in one["spec"]["containers"]
        )
    (trainer,) = spec["template"]["spec"]["containers"]
    (peers,) = [entry["value"] for entry in trainer["env"] if entry["name"] == "INITIAL_PEERS"]
    assert peers == f"/dns4/{service['metadata']['name']}/tcp/31337"
    assert "COPY examples/quickstart.py examples/cluster/train.py" in (CLUSTER.parents[1] / "Dockerfile").read_text()


@pytest.mark.parametrize("version", ["1.28", "1.32", "1.37"])
def test_kubernetes_accepts_the_manifests(version):
    for manifest in (*manifests("monitor.yaml"), *manifests("trainers.yaml")):
        kubernetes_validate.validate(manifest, version, strict=True)
        manifest["spec"]["replica"] = 1  # a field that there is not
        with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
            kubernetes_validate.validate(manifest, version, strict=True)


def words_of(container, **other):
    """The container's command, with some options' values changed."""
    words = [*container["command"], *container["args"]]
    for option, value in other.items():
        words[words.index(f"--{option}") + 1] = str(value)
    return words


def test_kubernetes_containers_run_programs_of_the_tree(start, tmp_path):
    (monitor,), (trainer,) = (
        m["spec"]["template"]["spec"]["containers"] for m in (manifests("monitor.yaml")[1], *manifests("trainers.yaml"))
    )
    watching = start(*words_of(monitor, host_maddrs="/ip4/127.0.0.1/tcp/0", web=0))
    peers = watching.stdout.readline().strip().removeprefix("INITIAL_PEERS=")
    short = "--host_maddrs", "/ip4/127.0.0.1/tcp/0", "--target_batch_size", "1024", "--epochs", "3"
    training = start(
        *words_of(trainer, folder=tmp_path / "peer"),
        *short,
        cwd=CLUSTER,
        INITIAL_PEERS=re.sub("^/ip4/127.0.0.1(/tcp/[0-9]+).*", r"/dns4/localhost\1", peers),
    )
    assert "ended in global epoch" in ended(training)
    watching.terminate()
    ended(watching)


def test_torchrun_two_processes_are_one_peer(start):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        CLUSTER / "torchrun" / "peer.py",
    ]
    out = ended(
        start(*command, "--epochs", "5", "--target_batch_size", "1024", "--host_maddrs", "/ip4/127.0.0.1/tcp/0")
    )
    said = dict(re.findall(r"rank (\d) of 2: epoch 5, loss [0-9.]+, parameters (-?[0-9.]+(?:e-?\d+)?)", out))
    assert set(said) == {"0", "1"} and said["0"] == said["1"], out
    assert "INITIAL_PEERS=/ip4/127.0.0.1/" in out


STAND_IN = '''
"""The four calls of Ray that the recipe makes, with threads; a task that fails is started again."""
import concurrent.futures, sys, types
pool = concurrent.futures.ThreadPoolExecutor(8)
init = lambda: None
get = lambda futures: [future.result() for future in futures]
def wait(futures):
    done, rest = concurrent.futures.wait(futures, return_when="FIRST_COMPLETED")
    return list(done), list(rest)
def remote(num_gpus, num_cpus, max_retries, retry_exceptions):
    assert max_retries == -1 and retry_exceptions
    def retried(function, *arguments):
        while True:
            try:
                return function(*arguments)
            except Exception as error:
                sys.stdout.write(f"again: {error.stderr.strip()[-500:]}\\n")  # a line of one thread in one piece
    return lambda function: types.SimpleNamespace(remote=lambda *arguments: pool.submit(retried, function, *arguments))
'''


TAKEN_ONCE = """
import os, pathlib, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder = pathlib.Path(words["--folder"])
print("it was", os.environ["INITIAL_PEERS"], os.environ["HIVEMIND_NAME"], words["--run_id"], words["--epochs"])
if not folder.exists():
    folder.mkdir(parents=True)
    sys.exit("taken away")
print("ended", folder.name)
"""


def test_ray_starts_trainers_anew_and_waits_for_them(start, tmp_path):
    (tmp_path / "ray.py").write_text(STAND_IN)
    (tmp_path / "taken_once.py").write_text(TAKEN_ONCE)
    search = os.pathsep.join([str(tmp_path), *sys.path])
    command = [
        sys.executable,
        CLUSTER / "ray" / "swarm.py",
        "--trainers",
        "2",
        "--epochs",
        "2",
        "--folder",
        tmp_path / "ray",
        "--listen",
        "/ip4/127.0.0.1/tcp/0",
    ]
    out = ended(start(*command, PYTHONPATH=search, TRAINER=str(tmp_path / "taken_once.py"))).splitlines()
    assert out[0].startswith("INITIAL_PEERS=/ip4/127.0.0.1/tcp/") and out.count("again: taken away") == 2
    assert sorted(line for line in out if line.startswith("ended")) == ["ended peer-0", "ended peer-1"]


def test_ray_starts_the_trainer_with_options_it_has():
    program, trainer = (CLUSTER / "ray" / "swarm.py").read_text(), (CLUSTER / "train.py").read_text()
    options = re.findall(r'"(--[a-z_]+)"', program[program.index("command = ") : program.index("environment = ")])
    assert options == ["--run_id", "--folder", "--epochs"] and all(
        f'add_argument("{option}"' in trainer for option in options
    )
