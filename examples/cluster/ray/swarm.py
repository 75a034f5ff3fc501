"""A swarm on Ray: each trainer is a task that Ray starts again when its machine goes away.

    python swarm.py --trainers 8 --gpus 1"""

import argparse
import os
import pathlib
import subprocess
import sys

import ray

TRAINER = os.environ.get("TRAINER") or pathlib.Path(__file__).resolve().parents[1] / "train.py"


def train(index, peers, options):
    """Runs in a worker; ends with the swarm's last epoch. An error makes Ray start it again (max_retries)."""
    command = [sys.executable, str(TRAINER), "--run_id", options["run_id"], "--folder", f"{options['folder']}/peer-{index}", "--epochs", str(options["epochs"])]
    environment = {**os.environ, "INITIAL_PEERS": peers, "HIVEMIND_NAME": f"ray-{index}"}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trainers", type=int, default=4)
    parser.add_argument("--gpus", type=float, default=0, help="of each trainer")
    parser.add_argument("--cpus", type=float, default=1)
    parser.add_argument("--run_id", default="spirals")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--folder", default="/tmp/swarm")
    parser.add_argument("--listen", default="/ip4/0.0.0.0/tcp/31337", help="where the driver's node listens, which is the swarm's entrance")
    options = parser.parse_args()

    from hivemind_c import DHT

    ray.init()
    with DHT(host_maddrs=options.listen, start=True) as entrance:
        peers = ",".join(entrance.get_visible_maddrs())
        print(f"INITIAL_PEERS={peers}", flush=True)
        task = ray.remote(num_gpus=options.gpus, num_cpus=options.cpus, max_retries=-1, retry_exceptions=True)(train)
        waiting = [task.remote(index, peers, vars(options)) for index in range(options.trainers)]
        while waiting:
            done, waiting = ray.wait(waiting)
            for one in ray.get(done):
                print(one, flush=True)


if __name__ == "__main__":
    main()
