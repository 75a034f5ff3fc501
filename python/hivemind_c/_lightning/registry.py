"""Trainer(strategy="hivemind"): the name in each Lightning that the program has imported or imports later. Importing
this module imports neither Lightning nor torch.
"""

from __future__ import annotations

import importlib.abc
import os
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional, Sequence

STRATEGIES = {f"{name}.strategies": name for name in ("lightning.pytorch", "pytorch_lightning")}
NAME, VARIABLE, TARGET = "hivemind", "HIVEMIND_TARGET_BATCH_SIZE", 4096


def make(lightning: str, **options: Any) -> Any:
    """The strategy that the name stands for. Its target is the option's, the variable's, or TARGET, which it says in
    one line.
    """
    from hivemind_c._lightning.namespaces import part
    from hivemind_c.strategy import HivemindStrategy

    if "target_batch_size" not in options:
        options["target_batch_size"] = _target(os.environ.get(VARIABLE))
        if not os.environ.get(VARIABLE):
            part(lightning, "utilities.rank_zero.rank_zero_info")(
                f"strategy={NAME!r}: the optimizer steps when all peers together have done {TARGET:,} samples. To "
                f"choose another number, set {VARIABLE}=N or give "
                "strategy=HivemindStrategy(target_batch_size=N)"
            )
    return HivemindStrategy(**options)


def _target(value: Optional[str]) -> int:
    if not value:
        return TARGET
    if not value.strip().isdigit() or int(value) < 1:
        raise ValueError(
            f"{VARIABLE} must be a number of samples, 1 or more, not {value!r}: set it to {TARGET}, for example"
        )
    return int(value)


def register(module: ModuleType) -> None:
    """Adds the name to the registry of LIGHTNING.strategies."""
    module.StrategyRegistry.register(
        NAME, partial(make, STRATEGIES[module.__name__]), description="HivemindStrategy", override=True
    )
    strategy = sys.modules.get("hivemind_c.strategy")
    if hasattr(strategy, "HivemindStrategy"):
        module.Strategy.register(strategy.HivemindStrategy)


class _WhenImported(importlib.abc.MetaPathFinder):
    """Finds nothing by itself: it has each module of STRATEGIES registered after its import."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if name not in STRATEGIES:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                break
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if module.__name__ == name:
                    register(module)

            loader.exec_module = exec_module
        return spec


def register_everywhere() -> None:
    """Now where Lightning is imported already, else when it is."""
    for name in STRATEGIES:
        if hasattr(sys.modules.get(name), "StrategyRegistry"):
            register(sys.modules[name])
    if not any(isinstance(finder, _WhenImported) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WhenImported())
