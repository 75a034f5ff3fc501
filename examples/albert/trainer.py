"""A peer that trains ALBERT on masked words with a swarm, by Hugging Face's Trainer.

    INITIAL_PEERS=... python trainer.py --folder data --output_dir out --per_device_train_batch_size 4 --gradient_accumulation_steps 8

All of TrainingArguments are taken; those that the swarm decides (the scheduler, clipping, when to step) go to hivemind_c.Optimizer."""

import dataclasses
import os
import signal
import sys
from typing import Optional

import numpy as np
import torch
import transformers
from tqdm.auto import tqdm
from transformers import AlbertConfig, AlbertForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ProgressCallback

import hivemind_c as hivemind
from old_flags import translated

TINY = dict(embedding_size=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, max_position_embeddings=64)

TRACKER = "batch_size_lead", "min_refresh_period", "max_refresh_period", "default_refresh_period", "expected_drift_peers", "expected_drift_rate", "metadata_expiration"


@dataclasses.dataclass
class Swarm:
    """The swarm's options; the same at all peers but for the addresses."""

    folder: str = dataclasses.field(default="data", metadata={"help": "what prepare.py made"})
    config: str = dataclasses.field(default="albert/albert-large-v2", metadata={"help": "whose shape the model has; 'tiny': a small one"})
    run_id: str = dataclasses.field(default="albert", metadata={"help": "the run's name"})
    target_batch_size: int = dataclasses.field(default=4096, metadata={"help": "samples from all peers for one step"})
    swarm_epochs: int = dataclasses.field(default=125_000, metadata={"help": "steps of the whole swarm"})
    swarm_warmup: int = dataclasses.field(default=5_000, metadata={"help": "of them, in which the learning rate rises"})
    matchmaking_time: float = 15.0
    averaging_timeout: float = 60.0
    initial_peers: str = dataclasses.field(default="", metadata={"help": "where others are, with commas; by default INITIAL_PEERS"})
    host_maddrs: str = "/ip4/0.0.0.0/tcp/0"
    client_mode: bool = dataclasses.field(default=False, metadata={"help": "only dial out"})
    identity_path: str = ""
    announce_maddrs: str = dataclasses.field(default="", metadata={"help": "what others are told instead of host_maddrs, with commas"})
    tokenizer: str = dataclasses.field(default="", metadata={"help": "where the tokenizer lies; by default in the folder"})
    target_group_size: Optional[int] = dataclasses.field(default=None, metadata={"help": "a larger swarm averages in groups of so many"})
    bandwidth: Optional[float] = dataclasses.field(default=None, metadata={"help": "bytes per second, if known"})
    batch_size_lead: int = dataclasses.field(default=0, metadata={"help": "a group is looked for so many samples before the target"})
    min_refresh_period: float = 0.5
    max_refresh_period: float = 10.0
    default_refresh_period: float = 3.0
    expected_drift_peers: float = 3.0
    expected_drift_rate: float = 0.2
    metadata_expiration: float = 60.0


class Blocks(torch.utils.data.Dataset):
    """The rows of tokens.npy, read from the disk as they are needed."""

    def __init__(self, folder):
        self.rows = np.load(os.path.join(folder, "tokens.npy"), mmap_mode="r")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": torch.from_numpy(self.rows[index].astype(np.int64))}


class Peer(Trainer):
    """The Trainer, with the loss told to whoever watches the run."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False  # each batch's loss is its mean, and accumulated batches weigh alike

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        self.optimizer_of_swarm.report_loss((loss[0] if isinstance(loss, tuple) else loss).mean())  # of several GPUs it has one for each
        return loss


class Shown(torch.optim.lr_scheduler.LambdaLR):
    """Where the Trainer looks for a scheduler: it shows the learning rate, and the swarm's epochs change it."""

    def __init__(self, optimizer):
        self.shown = optimizer
        super().__init__(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.0), lambda epoch: 1.0)

    def step(self, *ignored):
        pass

    def get_last_lr(self):
        return [group["lr"] for group in self.shown.param_groups]


class WithSwarm(TrainerCallback):
    """Tells each epoch of the swarm, and ends with it; a bar of swarm epochs shows how long that takes."""

    def __init__(self, optimizer, epochs, has_bar):
        self.optimizer, self.epochs, self.told, self.has_bar, self.bar = optimizer, epochs, -1, has_bar, None

    def on_step_end(self, args, state, control, **kwargs):
        epoch = self.optimizer.local_epoch
        if epoch != self.told:
            self.told = epoch
            loss = self.optimizer.reporter.news(60.0).loss
            if self.bar is None:  # a peer that joins begins where the swarm is
                self.bar = tqdm(total=self.epochs, initial=epoch, desc="swarm epochs", disable=not self.has_bar)
            self.bar.update(epoch - self.bar.n)
            self.bar.refresh()
            tqdm.write(f"epoch {epoch}: {self.optimizer.tracker.global_progress.num_peers} peers, loss {loss or float('nan'):.3f}")
            sys.stdout.flush()
        if epoch >= self.epochs:
            control.should_training_stop = True  # or --max_steps has said so already


def make_model(swarm, tokenizer):
    if swarm.config == "tiny":
        config = AlbertConfig(vocab_size=len(tokenizer), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **TINY)
    else:
        config = AlbertConfig.from_pretrained(swarm.config, vocab_size=len(tokenizer))
    return AlbertForMaskedLM(config)


def make_optimizer(swarm, args, model, dht):
    """The optimizer's options from TrainingArguments, in the swarm's epochs."""
    parameters = torch.optim.AdamW(
        model.parameters(), lr=args.learning_rate, betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_epsilon, weight_decay=args.weight_decay
    )  # fmt: skip
    return hivemind.Optimizer(
        dht=dht,
        run_id=swarm.run_id,
        target_batch_size=swarm.target_batch_size,
        batch_size_per_step=args.train_batch_size * args.gradient_accumulation_steps,  # train_batch_size is that of all GPUs here
        optimizer=parameters,
        scheduler=lambda optimizer: transformers.get_linear_schedule_with_warmup(optimizer, swarm.swarm_warmup, swarm.swarm_epochs),
        max_grad_norm=args.max_grad_norm or None,
        matchmaking_time=swarm.matchmaking_time,
        averaging_timeout=swarm.averaging_timeout,
        grad_compression=hivemind.Float16Compression(),
        averager_opts=dict(target_group_size=swarm.target_group_size, bandwidth=swarm.bandwidth),
        tracker_opts={name: getattr(swarm, name) for name in TRACKER},
        verbose=True,
    )


def check_data(swarm):
    """Before anything long begins: is there something to train on?"""
    if not os.path.exists(os.path.join(swarm.folder, "tokens.npy")):
        raise SystemExit(
            f"{swarm.folder} has no tokens.npy, which prepare.py makes: run `python prepare.py --folder {swarm.folder}` first, or with --tiny for a small text without a network"
        )


def main(defaults=None):
    parser = HfArgumentParser((Swarm, TrainingArguments))
    parser.set_defaults(**(defaults or {}))
    swarm, args = parser.parse_args_into_dataclasses(translated(sys.argv[1:]))
    check_data(swarm)
    if args.fp16:
        raise SystemExit("--fp16 needs a scaler that knows of swarms, which Hugging Face's Trainer does not take: use --bf16, or Lightning with 16-mixed (docs/reference/strategy.md)")
    tokenizer = AutoTokenizer.from_pretrained(swarm.tokenizer or swarm.folder)
    transformers.set_seed(args.seed)
    model = make_model(swarm, tokenizer).to(args.device)
    transformers.set_seed(int.from_bytes(os.urandom(4), "big"))  # the same model at all peers, the data in another order at each
    args.data_seed = int.from_bytes(os.urandom(4), "big")
    dht = hivemind.DHT(
        swarm.initial_peers or os.environ.get("INITIAL_PEERS"),
        start=True,
        host_maddrs=swarm.host_maddrs,
        announce_maddrs=swarm.announce_maddrs or None,
        client_mode=swarm.client_mode,
        identity_path=swarm.identity_path or None,
        ensure_bootstrap_success=False,
    )
    optimizer = make_optimizer(swarm, args, model, dht)
    if not swarm.client_mode:
        print("INITIAL_PEERS=" + ",".join(dht.get_visible_maddrs()), flush=True)
    args.max_grad_norm, args.dataloader_drop_last, args.save_strategy = 0.0, True, "no"  # the swarm clips; the monitor saves
    by_epochs = args.max_steps <= 0  # then the swarm's epochs end it
    args.max_steps = 1 << 40 if by_epochs else args.max_steps
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    peer = Peer(model, args, train_dataset=Blocks(swarm.folder), data_collator=collator, optimizers=(optimizer, Shown(optimizer)), callbacks=[WithSwarm(optimizer, swarm.swarm_epochs, by_epochs and not args.disable_tqdm)])
    if by_epochs:
        peer.remove_callback(ProgressCallback)  # it would show the hours of 2^40 batches
    peer.optimizer_of_swarm = optimizer
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a preempted machine says goodbye
    try:
        peer.train()
        model.save_pretrained(args.output_dir)
        tokenizer.save_pretrained(args.output_dir)
    finally:
        optimizer.shutdown()
        dht.shutdown()


if __name__ == "__main__":
    main()
