"""Several GPUs as one peer: torch's DistributedDataParallel inside, the swarm outside.

    INITIAL_PEERS=... torchrun --standalone --nproc-per-node 4 peer.py

The processes of one machine sum their gradients by DDP; the first of them is the peer, and counts for all. When the swarm has made a step, the others take
its parameters over. Without GPUs it runs on the CPU."""

import argparse
import os
import sys

import torch
import torch.distributed as dist

import hivemind_c as hivemind


class Peer:
    """The first process's part in the swarm; at the others it does nothing but follow."""

    def __init__(self, model, options, world):
        self.model, self.first, self.optimizer, self.dht = model, dist.get_rank() == 0, None, None
        self.seen = torch.zeros(2, dtype=torch.int64, device=next(model.parameters()).device)
        if self.first:
            self.dht = hivemind.DHT(os.environ.get("INITIAL_PEERS"), start=True, host_maddrs=options.host_maddrs, ensure_bootstrap_success=False)
            print("INITIAL_PEERS=" + ",".join(self.dht.get_visible_maddrs()), flush=True)
            self.optimizer = hivemind.Optimizer(
                dht=self.dht,
                run_id=options.run_id,
                target_batch_size=options.target_batch_size,
                batch_size_per_step=options.batch_size * world,
                optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
                delay_state_averaging=False,  # the model changes within step(), and nowhere else
            )

    def versions(self):
        """They change with each write to the parameters: a step, an average, a state that was loaded."""
        return sum(p._version for p in self.model.parameters())

    def step(self, loss):
        """Counts the batch; afterwards all processes have the same parameters. Returns the swarm's epoch."""
        if self.first:
            before = self.versions()
            self.optimizer.report_loss(loss)
            self.optimizer.step()
            self.seen[0], self.seen[1] = self.optimizer.local_epoch, int(self.versions() != before)
        dist.broadcast(self.seen, 0)
        epoch, changed = self.seen.tolist()
        if changed:
            for p in self.model.parameters():
                dist.broadcast(p.data, 0)
        self.model.zero_grad()
        return epoch

    def shutdown(self):
        if self.first:
            self.optimizer.shutdown()
            self.dht.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run_id", default="torchrun")
    parser.add_argument("--batch_size", type=int, default=64, help="of one process")
    parser.add_argument("--target_batch_size", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=20, help="of the whole swarm")
    parser.add_argument("--host_maddrs", default="/ip4/0.0.0.0/tcp/0")
    options = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4)).to(device)
    parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
    peer = Peer(model, options, dist.get_world_size())
    torch.manual_seed(int.from_bytes(os.urandom(4), "big"))  # each process reads data of its own
    epoch = 0
    while epoch < options.epochs:
        inputs = torch.randn(options.batch_size, 16, device=device)
        loss = torch.nn.functional.cross_entropy(parallel(inputs), inputs[:, :4].argmax(1))
        loss.backward()
        epoch = peer.step(loss.detach())
    said = sum(p.double().sum() for p in model.parameters()).item()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: epoch {epoch}, loss {loss.item():.3f}, parameters {said!r}\n", end="", flush=True)  # in one piece: ranks print at once
    peer.shutdown()
    dist.barrier()  # none leaves before the peer has taken its leave of the swarm
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Where DistributedDataParallel was used, gloo's threads outlive destroy_process_group; one that lets go of a tensor while Python is ending aborts the
    # process ("terminate called without an active exception"), and torchrun calls a training failed that was done.
    sys.stdout.flush()
    os._exit(0)
