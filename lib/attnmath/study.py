"""Studies: runs that take minutes, written down one after the other, so that a study that was stopped goes on.

A study is a module with a command, ``python -m attnmath.chains OUT.json``. Its record is the file that a page draws.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnmath import saves


@dataclass(frozen=True)
class Study:
    """What a study measures, and what its file holds.

    Attributes
    ----------
    module : the module with the command, such as ``"attnmath.chains"``.
    file : where the record lies in the book.
    names : of the parts of the record, in order.
    plan : gives for each part its results by name, each as a function of no argument that finds it; or one function
        that finds the whole part.
    tell : what is printed of a result.

    Examples
    --------
    >>> squares = Study("squares", "squares.json", ("runs",), lambda: {"runs": {"two": lambda: 4}})
    >>> squares.record({"two": 4})["runs"]
    {'two': 4}
    """

    module: str
    file: str
    names: tuple[str, ...]
    plan: Callable[[], Mapping[str, Any]]
    tell: Callable[[Any], Any] = lambda found: found

    def record(self, *parts: Mapping) -> dict:
        """What the file holds: the command that made it, a checksum of the parts, and the parts."""
        checked = parts if len(parts) > 1 else parts[0]
        checksum = hashlib.sha256(json.dumps(checked, sort_keys=True).encode()).hexdigest()
        command = f"python -m {self.module} {self.file}"
        return {"command": command, "sha256": checksum} | dict(zip(self.names, parts, strict=True))

    def main(self, arguments: list[str] | None = None) -> int:
        """Find all that the file does not have yet, and write it after each; the answer is the exit status."""
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}", description=self._title())
        parser.add_argument("out", type=Path, help="the file of JSON; if it is there, the study goes on")
        out = parser.parse_args(arguments).out
        try:
            found = self._stored(out)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        self._find(found, out)
        return 0

    def _title(self):
        return (sys.modules["__main__"].__doc__ or self.module).partition("\n")[0]

    def _stored(self, out):
        stored = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
        if stored and stored.get("command") != self.record(*({} for _ in self.names))["command"]:
            raise ValueError(f"{out} is no record of {self.module}; name another file")
        return {name: dict(stored.get(name, {})) for name in self.names}

    def _find(self, found, out):
        import torch
        from tqdm.auto import tqdm

        torch.set_num_threads(1)
        for part, plan in self.plan().items():
            if callable(plan):
                found[part] = found[part] or plan()
                self._write(found, out)
                continue
            missing = [name for name in plan if name not in found[part]]
            for name in tqdm(missing, desc=part, disable=None, file=sys.stderr):
                found[part][name] = plan[name]()
                found[part] = {done: found[part][done] for done in plan if done in found[part]}
                tqdm.write(f"{name} {self.tell(found[part][name])}", file=sys.stderr)
                self._write(found, out)

    def _write(self, found, out):
        saves.write(out, json.dumps(self.record(*found.values())).encode())


def descend(
    parameters: list,
    loss: Callable[[], Any],
    steps: int,
    rate: float,
    *,
    plan: int | None = None,
    look: Callable[[int], Any] | None = None,
    every: int = 100,
) -> list[float]:
    r"""Adam with gradients of norm 1 at most and a rate that rises for a tenth of the plan, then falls to 0.

    .. math:: \eta_t = \eta\,\min\Bigl(\frac{10\,t}{n},\ \frac{n + 1 - t}{0.9\,n}\Bigr),\qquad t = 1, 2, \dots

    Parameters
    ----------
    parameters : the tensors that learn.
    loss : gives the loss of the next batch, a tensor.
    steps : how many are taken.
    rate : :math:`\eta`.
    plan : n, the steps of the whole run, if fewer are taken; by default ``steps``.
    look : called with t after every so many steps.
    every : so many.

    Returns
    -------
    The losses of the steps.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(1, requires_grad=True)
    >>> [round(value, 4) for value in descend([x], lambda: (x**2).sum(), 3, 0.1, plan=10)]
    [1.0, 0.81, 0.64]
    """
    import torch

    found, optimiser, plan = [], torch.optim.Adam(parameters, rate), steps if plan is None else plan
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * min((step + 1) / (plan / 10), (plan - step) / (0.9 * plan))
        value = loss()
        optimiser.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        found.append(value.item())
        if look and (step + 1) % every == 0:
            look(step + 1)
    return found
