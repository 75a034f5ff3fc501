"""The trainer that the recipes start: a peer of a swarm that may be taken away at any time, and goes on where it stood.

The model is small (two spirals, as examples/quickstart.py); put your own module and data in their places. INITIAL_PEERS says where others are."""

import argparse
import pathlib

import lightning as L
import torch

from hivemind_c import HivemindStrategy


def spirals(count):
    which = torch.randint(2, (count,))
    angle = 3 * torch.pi * torch.rand(count).sqrt()
    turned = angle + torch.pi * which
    points = torch.stack([turned.cos(), turned.sin()], 1) * angle[:, None] / 5
    return torch.utils.data.TensorDataset(points + 0.03 * torch.randn(count, 2), which)


class Network(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class StopAt(L.Callback):
    """Ends with the swarm, whoever did how much of it."""

    def __init__(self, epochs):
        self.epochs = epochs

    def on_train_batch_end(self, trainer, *args):
        trainer.should_stop = trainer.strategy.global_epoch >= self.epochs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run_id", default="spirals")
    parser.add_argument("--folder", type=pathlib.Path, default=".", help="this peer's own: its key, and its checkpoint when it is taken away")
    parser.add_argument("--target_batch_size", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=200, help="of the whole swarm")
    parser.add_argument("--host_maddrs", default="/ip4/0.0.0.0/tcp/0", help="a fixed port where a firewall must let others in")
    parser.add_argument("--client_mode", action="store_true", help="only dial out: for machines that nobody can reach")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    strategy = HivemindStrategy(
        run_id=options.run_id,
        target_batch_size=options.target_batch_size,
        host_maddrs=None if options.client_mode else options.host_maddrs,
        client_mode=options.client_mode,
        identity_path=options.folder / "peer.key",
    )
    trainer = L.Trainer(
        strategy=strategy,
        callbacks=[StopAt(options.epochs)],
        max_epochs=-1,
        devices=1,
        default_root_dir=options.folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    stood = options.folder / f"{options.run_id}-preempted.ckpt"  # written on SIGTERM (docs/reference/strategy.md)
    loader = torch.utils.data.DataLoader(spirals(65536), batch_size=256, shuffle=True)
    trainer.fit(Network(), loader, ckpt_path=stood if stood.exists() else None)
    print(f"ended in global epoch {strategy.global_epoch}", flush=True)


if __name__ == "__main__":
    main()
