"""A first swarm: run this, then paste the line that it prints on other machines.

Everybody trains one small network to tell two spirals apart; whenever the swarm has gone through 131,072 points, the network takes a step.
Alone that takes 1 to 2 s. It trains for some minutes, so that there is time to join; Ctrl-C ends it sooner, and so does a number: quickstart.py 20"""

import os
import sys

import lightning as L
import torch

from hivemind_c import HivemindStrategy, SwarmProgressBar

HOSTED = "COLAB_RELEASE_TAG" in os.environ or "KAGGLE_KERNEL_RUN_TYPE" in os.environ  # nobody can dial a machine there
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
torch.set_num_threads(1)  # enough for this network, and several peers may share a machine


def spirals(count):
    """Points on two spirals, and which of the two each lies on."""
    which = torch.randint(2, (count,))
    angle = 3 * torch.pi * torch.rand(count).sqrt()
    turned = angle + torch.pi * which
    points = torch.stack([turned.cos(), turned.sin()], 1) * angle[:, None] / 5
    return torch.utils.data.TensorDataset(points + 0.03 * torch.randn(count, 2), which)


class Network(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)
        )

    def training_step(self, batch, batch_idx):
        points, which = batch
        loss = torch.nn.functional.cross_entropy(self.layers(points), which)
        self.log("loss", loss, prog_bar=True)
        return loss

    def test_step(self, batch, batch_idx):
        points, which = batch
        self.log("accuracy", (self.layers(points).argmax(1) == which).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.03)


if __name__ == "__main__":
    trainer = L.Trainer(
        strategy=HivemindStrategy(target_batch_size=131072, client_mode=HOSTED),  # this line makes it a swarm
        callbacks=[SwarmProgressBar()],
        max_epochs=EPOCHS,
        devices=1,
        logger=False,
        enable_checkpointing=False,
    )
    network = Network()
    trainer.fit(network, torch.utils.data.DataLoader(spirals(131072), batch_size=256, shuffle=True))
    trainer.test(network, torch.utils.data.DataLoader(spirals(4096), batch_size=1024))
