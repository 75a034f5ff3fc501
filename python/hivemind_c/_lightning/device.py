"""The strategy in Lightning's eyes: one process on one device, or one of several ranks on one machine."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any, Dict, List, Optional

import torch

from hivemind_c._lightning import launcher, namespaces, samplers
from hivemind_c._lightning.patches import Patches

# for type checkers both base classes at once, so that the Trainer of either Lightning accepts a strategy
if TYPE_CHECKING:
    import lightning.pytorch.strategies
    import pytorch_lightning.strategies

    class Base(  # type: ignore[misc]
        lightning.pytorch.strategies.SingleDeviceStrategy, pytorch_lightning.strategies.SingleDeviceStrategy
    ):
        pass

else:
    Base = object

ONE, SEVERAL = "strategies.SingleDeviceStrategy", "strategies.DDPStrategy"


def from_trainer(name: str) -> Any:
    """Returns a property that a Trainer sets, without the loss of a value that the program gave.

    Lightning keeps the value in `_NAME`, where a second Trainer would take it for one that the program gave. Here
    `_NAME` keeps the value of the program, and that of the Trainer is kept beside it.

    Args:
        name: Name of the property.
    """

    def get(self: "Devices") -> Any:
        given = self.__dict__[f"_{name}"]
        self.__dict__[f"_{name}"] = self._of_trainer.get(name, given)
        try:
            value = getattr(super(Devices, self), name)
        finally:
            self.__dict__[f"_{name}"] = given
        if value is not None:
            self._of_trainer[name] = value
        return value

    def put(self: "Devices", value: Any) -> None:
        if name == "accelerator":  # the first that a Trainer sets
            self._of_trainer.clear()
            namespaces.settle(self, ONE, value)
            self._choose([])
        if value is not None:
            self._of_trainer[name] = value

    return property(get, put, doc=f"The {name} of the Trainer, or the one that the program gave.")


def of_rank(name: str, alone: int, doc: str) -> Any:
    """Returns a property of Lightning's strategies for several ranks, which has a fixed value on one device.

    Args:
        name: Name of the property.
        alone: Value on one device.
        doc: Docstring of the property.
    """

    def get(self: "Devices") -> int:
        return getattr(super(Devices, self), name) if self.has_ranks else alone

    return property(get, lambda self, value: None, doc=doc)


def collective(name: str) -> Any:
    """Returns a method of Lightning's strategies that asks first whether the other ranks take part.

    Args:
        name: Name of the method.
    """

    def call(self: "Devices", *args: Any, **kwargs: Any) -> Any:
        if self._ranks is not None and not self._ranks.may_meet(name):
            return args[0] if args else None
        return getattr(super(Devices, self), name)(*args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"""Called by Lightning: its {name} among the ranks of this peer.

        Args:
            *args: Arguments of Lightning.
            **kwargs: Named arguments of Lightning.
        """
    return call


class TrainersDevices(List[Any]):
    """Devices that a Trainer has set. It is false even if there are some: the next Trainer asks
    `if strategy.parallel_devices` before it says that it begins, and would prefer them to its own.
    """

    def __bool__(self) -> bool:
        return False


class Devices(namespaces.EitherLightning, Base):
    """The part of HivemindStrategy that is a process on a device for Lightning.

    With one device it is a SingleDeviceStrategy, and with several a DDPStrategy: the Trainer's devices decide.
    """

    _base = ONE
    accelerator = from_trainer("accelerator")
    precision_plugin = from_trainer("precision_plugin")
    checkpoint_io = from_trainer("checkpoint_io")
    global_rank = of_rank("global_rank", 0, "The rank of this process.")
    local_rank = of_rank("local_rank", 0, "The rank of this process on its machine.")
    node_rank = of_rank("node_rank", 0, "0: all ranks of a peer are on one machine.")
    barrier, broadcast, reduce = collective("barrier"), collective("broadcast"), collective("reduce")
    all_gather, reduce_boolean_decision = collective("all_gather"), collective("reduce_boolean_decision")
    _ranks: Any = None  #: a Ranks while fit runs with several ranks
    _signals: Any = None  #: a Signals while fit runs
    _sampler_seed: Optional[int] = None  #: of the ranks' samplers. None: the program's
    _patches: Patches
    # a Trainer sets both before it is known whether there are several ranks
    cluster_environment: Any = None
    _layer_sync: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = namespaces.EitherLightning.__new__(cls)
        made._of_trainer, made.devices = {}, []
        return made

    _of_trainer: Dict[str, Any]
    devices: List[Any]  #: the Trainer's
    in_fit: threading.Event  #: set while each rank watches the others

    @property
    def world_size(self) -> int:
        """The number of ranks of this peer."""
        # Lightning refuses a batch without a loss if there are other ranks, which would wait for its gradient
        alone = not self.has_ranks or self._ranks is not None and self._ranks.skips
        return 1 if alone else super().world_size  # type: ignore[misc]

    @world_size.setter
    def world_size(self, value: int) -> None:
        """Set by Lightning on one device."""

    @property
    def has_ranks(self) -> bool:
        """True if this process is one of several ranks that are one peer."""
        return self._base == SEVERAL

    @property
    def parallel_devices(self) -> Any:
        """The devices of the ranks, one for each. None: there is one device, and each Trainer sets its own."""
        return TrainersDevices(self.devices) if self.has_ranks else None

    @parallel_devices.setter
    def parallel_devices(self, devices: Any) -> None:
        self._choose(list(devices or ()))

    def _choose(self, devices: List[Any]) -> None:
        """Becomes the strategy for these devices."""
        self.devices, base = devices, SEVERAL if len(devices) > 1 else ONE
        if base != self._base:
            self.__class__ = namespaces.make(self._mixin, base, self._names)
            if self.has_ranks:
                namespaces.part(self._names[0], base).__init__(
                    self,
                    accelerator=self.__dict__["_accelerator"],
                    parallel_devices=devices,
                    cluster_environment=self.cluster_environment,
                    checkpoint_io=self.__dict__["_checkpoint_io"],
                    precision_plugin=self.__dict__["_precision_plugin"],
                    start_method="fork" if hasattr(sys, "ps1") or sys.flags.interactive else "popen",
                )
        if not self.has_ranks:
            self.cluster_environment = self._launcher = None

    @property
    def num_nodes(self) -> int:
        """1: all ranks of a peer are on one machine."""
        return 1

    @num_nodes.setter
    def num_nodes(self, num_nodes: int) -> None:
        if num_nodes > 1:
            raise namespaces.misconfigured(
                self,
                f"num_nodes={num_nodes}: the devices of one peer are in one machine, and machines are peers of their "
                "own: leave num_nodes out, start the program on each machine, and give it INITIAL_PEERS",
            )

    @property
    def root_device(self) -> torch.device:
        """The device of this process."""
        device = self.devices[self.local_rank] if self.devices else "cpu"
        return device if isinstance(device, torch.device) else torch.device(device)

    def process_dataloader(self, dataloader: Any) -> Any:
        """Called by Lightning for each data loader: peers read the data in different orders.

        Args:
            dataloader: The data loader.
        """
        dataloader = super().process_dataloader(dataloader)  # type: ignore[misc]
        if self._sampler_seed is not None:
            samplers.give_seed(dataloader, self._sampler_seed, self._patches)
        return dataloader

    def on_validation_start(self) -> None:
        """Called by Lightning before validation: all ranks of this peer validate with the same buffers."""
        if self._ranks is not None:
            self._ranks.halt.start()
            self._ranks.sync(whole=True)
        super().on_validation_start()  # type: ignore[misc]

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Called by Lightning for each batch of a validation: this peer obeys signals before it, all ranks at the same.

        Args:
            *args: Arguments of the module's validation_step.
            **kwargs: Named arguments of the module's validation_step.
        """
        with self._signals.in_validation() if self._signals is not None else contextlib.nullcontext():
            return super().validation_step(*args, **kwargs)  # type: ignore[misc]

    def _configure_launcher(self) -> None:
        super()._configure_launcher()  # type: ignore[misc]
        if self.has_ranks:
            self._launcher = launcher.watched(self, self._launcher)
            self.in_fit = launcher.watch_first()

    def configure_ddp(self) -> None:
        """Called by Lightning where DDP would wrap the module: makes the modules of all ranks that of rank 0."""
        namespaces.part(self._names[0], "overrides.distributed._sync_module_states")(self.model)
