"""The loop that trains any model of the book, survives being killed, and writes down what it found.

What is learned is a `Task` (one file of `attnmath.tasks` each). The loop knows nothing of it but the methods below.
"""

import json
import math
import os
import platform
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from attnmath import saves


class Task(ABC):
    """What a run needs to know about what is learned.

    Attributes
    ----------
    config : a frozen dataclass: all that decides the result, and so what a checkpoint must agree with. It has at least
        ``seed`` (of the first parameters and the order of the data) and ``clip`` (the largest norm of a gradient), and
        ``decay``, ``rate`` and ``warmup`` unless the task has an optimiser and a rate of its own.
    per_epoch : the steps between two evaluations; total : all steps.
    """

    config: Any
    per_epoch: int
    total: int

    @abstractmethod
    def model(self) -> nn.Module:
        """The model before the first step; the seed is set already."""

    @abstractmethod
    def epoch(self, number: int) -> Sequence:
        """The ``per_epoch`` batches of an epoch, as `batch` takes them: a function of the seed and the number."""

    @abstractmethod
    def batch(self, chosen: Any, device: torch.device) -> Any:
        """One batch on its device."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The number that a step makes smaller."""

    @abstractmethod
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """What is written down at the end of an epoch, beside the mean loss of its steps."""

    @abstractmethod
    def result(self, model: nn.Module) -> dict[str, Any]:
        """What is written down at the end: the sizes of the data and the measures that count, as JSON."""

    def meta(self) -> dict[str, Any]:
        """What a saved model needs besides the configuration, as JSON; by default nothing."""
        return {}

    def optimiser(self, model: nn.Module) -> torch.optim.Optimizer:
        """Its optimiser, whose state a checkpoint keeps; by default AdamW."""
        return adamw(model, self.config.decay)

    def rate(self, step: int) -> float:
        """The learning rate of step 1, 2, …; a group of the optimiser multiplies it by its own ``"scale"``, if any.

        By default it rises on a line and falls on a cosine.
        """
        return rise_and_cosine(step, self.config.rate, self.config.warmup, self.total)


# pieces of which tasks are made --------------------------------------------------------------------------------------


def refuse(config: Any, at_least: Mapping[int, Iterable[str]], positive=(), shares=()) -> None:
    """Stop at a value outside its domain, with its name.

    Parameters
    ----------
    config : the dataclass.
    at_least : for each bound, the fields that must not be below it.
    positive : the fields that must be above 0.
    shares : the fields that must lie in [0, 1).

    Raises
    ------
    ValueError
        With the name, the value and the domain of the first field that is outside.
    """
    for bound, names in at_least.items():
        for name in names:
            if not getattr(config, name) >= bound:
                raise ValueError(f"{name} is {getattr(config, name)}; it must be at least {bound}")
    for name in positive:
        if not getattr(config, name) > 0:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be > 0")
    for name in shares:
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be at least 0 and less than 1")


def adamw(model: nn.Module, decay: float, betas=(0.9, 0.98), eps: float = 1e-9) -> torch.optim.AdamW:
    """AdamW of all parameters; the loop sets its rate."""
    return torch.optim.AdamW(model.parameters(), lr=0.0, betas=betas, eps=eps, weight_decay=decay, foreach=True)


def rise_and_cosine(step: int, rate: float, warmup: int, total: int) -> float:
    """The learning rate of step 1, 2, …: a line up to ``rate`` over ``warmup`` steps, then a cosine down to 0.

    Examples
    --------
    >>> [round(rise_and_cosine(step, 1.0, 2, 6), 3) for step in range(1, 7)]
    [0.5, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    if step <= warmup:
        return rate * step / warmup
    part = (step - warmup) / max(total - warmup, 1)
    return rate * 0.5 * (1 + math.cos(math.pi * min(part, 1.0)))


def saved(path: Path, config: type, task: str) -> tuple[dict[str, np.ndarray], Any, dict]:
    """What a file ``model.safetensors`` of a run holds.

    Parameters
    ----------
    path : the file.
    config : the task's dataclass.
    task : its name on the command line.

    Returns
    -------
    The parameters in float32, the configuration, and what `Task.meta` wrote beside it.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or holds the model of another task.
    """
    tensors, meta = saves.load(path)
    if meta.get("config", {}).keys() != {field.name for field in fields(config)}:
        raise ValueError(f"{path} holds the model of another task; name the model of a run of `attnmath.train {task}`")
    return {name: X.astype(np.float32) for name, X in tensors.items()}, config(**meta["config"]), meta


def load_state(model: nn.Module, tensors: Mapping[str, np.ndarray], device="cpu") -> nn.Module:
    """The model with the parameters of a saved file, ready to be used."""
    model.load_state_dict({name: torch.from_numpy(X) for name, X in tensors.items()})
    return model.to(device).eval()


def hardware(device: torch.device) -> dict:
    """What a run ran on."""
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), name)
    found = {"cpu": name, "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return found | ({"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {})


# the loop ------------------------------------------------------------------------------------------------------------


class Run:
    """One training run in a folder: it begins, or goes on from its last checkpoint.

    Parameters
    ----------
    task : what is learned.
    out : the folder.
    device : where.
    resume : go on from a checkpoint of the folder if there is one; False refuses a folder that has one.

    Raises
    ------
    ValueError
        If the folder's checkpoint is damaged or belongs to another configuration.
    """

    def __init__(self, task: Task, out: Path, device="cpu", resume: bool = True):
        self.task, self.config, self.out, self.device = task, task.config, Path(out), torch.device(device)
        self.per_epoch, self.total = task.per_epoch, task.total
        torch.manual_seed(self.config.seed)
        self.model = task.model().to(self.device)
        self.optimiser = task.optimiser(self.model)
        self.step, self.history, self.losses = 0, [], []
        self.seconds = self.processor = 0.0
        self._rng = self._random_states()
        found = saves.load_latest(self.out, asdict(self.config))
        if found and not resume:
            raise ValueError(f"{self.out} has checkpoints; resume from them, or choose another folder")
        if found:
            self._restore(*found)

    # what is kept ---------------------------------------------------------------------------------------------------

    def _random_states(self):
        cuda = {"rng.cuda": torch.cuda.get_rng_state(self.device)} if self.device.type == "cuda" else {}
        return {"rng.cpu": torch.get_rng_state()} | cuda

    def _set_random_states(self):
        torch.set_rng_state(self._rng["rng.cpu"])
        if self.device.type == "cuda" and "rng.cuda" in self._rng:
            torch.cuda.set_rng_state(self._rng["rng.cuda"], self.device)

    def _tensors(self):
        tensors = {f"model.{name}": X for name, X in self.model.state_dict().items()}
        for i, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{i}.{name}": X for name, X in state.items()}
        tensors |= self._random_states()
        arrays = {name: X.detach().cpu().numpy() for name, X in tensors.items()}
        return arrays | {"losses": np.array(self.losses, dtype=np.float64)}

    def _about(self):
        return {"config": asdict(self.config), "step": self.step} | self.task.meta()

    def save(self):
        """Write a checkpoint; the last two are kept."""
        times = {"seconds": self.seconds, "processor_seconds": self.processor}
        return saves.save_step(self.out, self.step, self._tensors(), self._about() | {"history": self.history} | times)

    def _restore(self, tensors, meta):
        state = self.optimiser.state_dict()
        for name, X in tensors.items():
            if name.startswith("optimiser."):
                _, i, key = name.split(".")
                state["state"].setdefault(int(i), {})[key] = torch.from_numpy(X)
        self.optimiser.load_state_dict(state)
        model = {name: X for name, X in tensors.items() if name.startswith("model.")}
        self.model.load_state_dict({name.removeprefix("model."): torch.from_numpy(X) for name, X in model.items()})
        self._rng = {name: torch.from_numpy(X) for name, X in tensors.items() if name.startswith("rng.")}
        self.step, self.history, self.losses = meta["step"], meta["history"], tensors["losses"].tolist()
        self.seconds, self.processor = meta["seconds"], meta["processor_seconds"]

    # the loop -------------------------------------------------------------------------------------------------------

    def _update(self, batch):
        self.model.train()
        for group in self.optimiser.param_groups:
            group["lr"] = self.task.rate(self.step + 1) * group.get("scale", 1.0)
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.task.loss(self.model, batch)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss of step {self.step + 1} is {loss.item()}; try a lower rate")
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimiser.step()
        self.losses.append(loss.item())
        self.step += 1

    def _close_epoch(self):
        self.model.eval()
        record = {
            "epoch": self.step // self.per_epoch,
            "step": self.step,
            "train_loss": float(np.mean(self.losses[-self.per_epoch :])),
        }
        self.history.append(record | self.task.evaluate(self.model))

    def _log(self):
        text = "".join(json.dumps(record) + "\n" for record in self.history)
        saves.write(self.out / "log.jsonl", text.encode())

    def fit(self, save_every: int = 250, progress: bool = True) -> "Run":
        """Train to the end of the last epoch; a checkpoint every ``save_every`` steps and at the end of an epoch."""
        self._log()
        self._set_random_states()
        wall, cpu = time.monotonic() - self.seconds, time.process_time() - self.processor
        bar = tqdm(
            total=self.total, initial=self.step, disable=not progress, unit="step", mininterval=2, file=sys.stderr
        )
        with bar:
            while self.step < self.total:
                epoch, done = divmod(self.step, self.per_epoch)
                for chosen in self.task.epoch(epoch)[done:]:
                    self._update(self.task.batch(chosen, self.device))
                    rate = self.optimiser.param_groups[0]["lr"]
                    bar.set_postfix(epoch=epoch + 1, loss=f"{self.losses[-1]:.3f}", rate=f"{rate:.1e}", refresh=False)
                    bar.update()
                    last = self.step % self.per_epoch == 0
                    if last:
                        self._close_epoch()
                    if last or self.step % save_every == 0:
                        self.seconds, self.processor = time.monotonic() - wall, time.process_time() - cpu
                        if last:
                            self.history[-1] |= {"seconds": round(self.seconds, 1)}
                        self.save()
                    if last:
                        self._log()
                        if progress:
                            bar.write(json.dumps(self.history[-1]), file=sys.stderr)
        return self

    def finish(self, command: list[str]) -> dict:
        """Evaluate, and write the model and ``result.json``."""
        arrays = {name: X.detach().cpu().numpy() for name, X in self.model.state_dict().items()}
        saves.save(self.out / "model.safetensors", arrays, self._about())
        self.model.eval()
        result = {
            "command": command,
            "config": asdict(self.config),
            "parameters": sum(P.numel() for P in self.model.parameters()),
            "steps": self.step,
            "hardware": hardware(self.device),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "seconds": round(self.seconds, 1),
            "processor_seconds": round(self.processor, 1),
            "history": self.history,
        } | self.task.result(self.model)
        saves.write(self.out / "result.json", (json.dumps(result, indent=1) + "\n").encode())
        return result
