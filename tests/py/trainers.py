"""A tiny problem, a tiny network and quick Trainers, for the strategy's tests; also run by programs in processes of their own."""

import importlib
import logging
import warnings

import torch

torch.set_num_threads(1)  # tiny work: threads would only wait for each other
NAMESPACES = "lightning.pytorch", "pytorch_lightning"
SAMPLES, BATCH = 64, 16

for noisy in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric"):
    logging.getLogger(noisy).setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning|pytorch_lightning|torch")


def lightning(name=NAMESPACES[0]):
    return importlib.import_module(name)


def data(samples=SAMPLES, batch=BATCH, shuffle=True, **options):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(samples, 8, generator=generator)
    y = (x.sum(1) > 0).long()
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=batch, shuffle=shuffle, **options)


def small(pl=None, scheduler=None, optimizer=None):
    """A new tiny LightningModule. scheduler: what configure_optimizers makes of the optimizer. optimizer: of the parameters."""
    pl = pl or lightning()

    class Small(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

        def training_step(self, batch, batch_idx):
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, batch_idx):
            self.log("val_loss", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def test_step(self, batch, batch_idx):
            self.log("test_loss", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            made = optimizer(self.parameters()) if optimizer else torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
            return ([made], [scheduler(made)]) if scheduler else made

    torch.manual_seed(3)
    return Small()


def trainer(strategy="auto", pl=None, **options):
    pl = pl or lightning()
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1)
    return pl.Trainer(strategy=strategy, **{"accelerator": "cpu", "devices": 1, "max_epochs": 2, **quiet, **options})


def fit(strategy="auto", module=None, loader=None, pl=None, ckpt_path=None, **options):
    """Trains with fixed seeds; the module and its Trainer."""
    module = small(pl) if module is None else module
    made = trainer(strategy, pl, **options)
    torch.manual_seed(5)
    made.fit(module, data() if loader is None else loader, ckpt_path=ckpt_path)
    return module, made


def same(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
