"""One trainer of the demo: a Lightning run in a swarm, that tells what it sees as JSON, a line for each event."""

import hashlib
import json
import logging
import os
import sys
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several trainers share this machine
import lightning as L
import torch

from hivemind_c import HivemindStrategy

EPOCH_SAMPLES, BATCH, PAUSE_S = 8192, 64, 0.004


def tell(event, **what):
    print(json.dumps({"event": event, "at": time.monotonic(), **what}), flush=True)


class Notes(logging.Handler):
    """The logs of hivemind_c, printed like the rest."""

    def emit(self, record):
        tell("note", text=record.getMessage())


class Pictures(torch.utils.data.IterableDataset):
    """Ten kinds of pictures under noise, without end."""

    def __iter__(self):
        kinds = torch.randn(10, 256, generator=torch.Generator().manual_seed(11))
        while True:
            which = torch.randint(10, (BATCH,))
            yield kinds[which] + 4 * torch.randn(BATCH, 256), which


class Network(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.001)


class Tell(L.Callback):
    """Tells each global epoch with its loss, the peers that are there, and a fingerprint of the weights."""

    epoch, losses = -1, []

    def on_train_start(self, trainer, module):
        tell("started", peer=trainer.strategy.dht.peer_id)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]))
        if trainer.strategy.global_epoch != self.epoch:
            self.epoch = trainer.strategy.global_epoch
            weights = b"".join(parameter.detach().numpy().tobytes() for parameter in module.parameters())
            fingerprint = hashlib.sha256(weights).hexdigest()[:16]
            tell("epoch", epoch=self.epoch, loss=sum(self.losses) / len(self.losses), peers=trainer.strategy.num_peers, weights=fingerprint)
            self.losses = []
        time.sleep(PAUSE_S)  # so that three of them have something to share out


if __name__ == "__main__":
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("hivemind_c").addHandler(Notes(logging.WARNING))
    warnings.filterwarnings("ignore")
    torch.manual_seed(int(sys.argv[1]))
    strategy = HivemindStrategy(target_batch_size=EPOCH_SAMPLES, run_id="demo", matchmaking_time=6, averaging_timeout=30, tracker_opts={"metadata_expiration": 10}, client_mode="--client_mode" in sys.argv)
    trainer = L.Trainer(
        strategy=strategy,
        callbacks=[Tell()],
        max_epochs=-1,
        devices=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=sys.argv[2],  # should it be preempted
    )
    trainer.fit(Network(), torch.utils.data.DataLoader(Pictures(), batch_size=None))
    tell("left")
