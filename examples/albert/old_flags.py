"""The flags of hivemind's ALBERT example, as trainer.py takes them."""

import dataclasses
import logging

from transformers import TrainingArguments

logger = logging.getLogger("albert")

RENAMED = {
    "--experiment_prefix": "--run_id",
    "--averaging_expiration": "--matchmaking_time",
    "--dht_listen_on": "--host_maddrs",
    "--dataset_path": "--folder",
    "--tokenizer_path": "--tokenizer",
    "--config_path": "--config",
    "--total_steps": "--swarm_epochs",
    "--warmup_steps": "--swarm_warmup",
}
LISTS = {"--initial_peers", "--host_maddrs", "--announce_maddrs"}  #: several words are one list here
NO_EFFECT = {
    "--use_ipfs": "peers are found through --initial_peers",
    "--cache_dir": "what is downloaded lies where HF_HOME says",
    "--statistics_expiration": "the monitor reads what peers tell of themselves, for as long as it is true",
    "--backup_every_steps": "a step that fails leaves the model as it was",
    "--seq_length": "prepare.py --length has decided it",
    "--clamp_value": "the optimizer is AdamW",
}
#: what run_trainer.py sets where the command line does not, but for --fp16
DEFAULTS = dict(learning_rate=0.00176, per_device_train_batch_size=4, gradient_accumulation_steps=2, adam_epsilon=1e-6, weight_decay=0.01, max_grad_norm=1.0, logging_first_step=True)


def _grouped(words):
    """[(flag, its values)], with --flag=value taken apart."""
    groups = []
    for word in words:
        if word.startswith("--"):
            flag, sign, value = word.partition("=")
            groups.append((flag, [value] if sign else []))
        elif groups:
            groups[-1][1].append(word)
        else:
            groups.append((word, []))
    return groups


def translated(words):
    """The words of a command line of then as words of now; what has no effect any more is said in the log and left out."""
    gone = {f"--{name}" for name in ("overwrite_output_dir", "logging_dir")} - {f"--{field.name}" for field in dataclasses.fields(TrainingArguments)}
    made = []
    for flag, values in _grouped(words):
        name = RENAMED.get(flag, flag)
        if name in NO_EFFECT or name in gone:
            logger.warning("no effect of %s: %s", flag, NO_EFFECT.get(name, "this version of transformers does not have it"))
        elif name in LISTS:
            made += [name, ",".join(values)]
        else:
            made += [name, *values]
    return made
