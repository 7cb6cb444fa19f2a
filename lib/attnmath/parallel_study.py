"""Language models whose layers are serial or parallel: trained, and a trained one that is read the other way.

``python -m attnmath.parallel_study OUT.json`` writes the record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from attnmath.study import Study
from attnmath.tasks import lm
from attnmath.torch.masks import causal_mask
from attnmath.torch.parallel_layer import parallel_layer
from attnmath.torch.residuals import normalise
from attnmath.torch.transformer import token_embedding

STEPS, SEEDS = 400, (1, 2, 3)
RATES = dict.fromkeys(("serial", "parallel"), (3e-3, 1e-2, 3e-2, 1e-1))  # with the first seed
CHOSEN = {"serial": 1e-2, "parallel": 3e-2}  # the best on the validation text; here all seeds are run
CONFIG = replace(lm.PRESETS["book"], epochs=1, steps=STEPS)
DOCUMENTS = 60  # of the test text, for the trained model


class Parallel(lm.LanguageModel):
    """The language model of the task `lm` with parallel layers; the first norm of each layer serves both halves.

    Parameters
    ----------
    config, tokens : as of `attnmath.tasks.lm.LanguageModel`.
    """

    def forward(self, ids, mask=None, **options):
        """Logits of the next tokens; without a cache."""
        params = self.tree()
        norm, see = self.options["norm"], causal_mask(ids.shape[-1])
        X = token_embedding(ids, params["embeddings"])
        for layer in params["layers"].values():
            own = {name: layer[name] for name in ("attention", "feed_forward")}
            X = parallel_layer(X, own | {"norm": layer["attention_norm"]}, self.heads, see, norm=norm)
        return normalise(X, params["norm"], norm) @ params["embeddings"]["word"].T


def trained(
    kind: type[lm.LanguageModel],
    seed: int,
    rate: float = CONFIG.rate,
    *,
    task: lm.Task | None = None,
    steps: int | None = None,
) -> dict:
    """A model of this kind, trained as the task says, with this learning rate.

    Returns
    -------
    ``first``, the losses of the first four steps, ``curve``, the mean losses of 20 steps each, and ``bits_per_byte`` of
    the validation text and the test text.
    """
    config = replace(CONFIG, seed=seed, rate=rate)
    task = lm.Task(config) if task is None else task
    torch.manual_seed(seed)
    model = kind(config, task.tokens)
    optimiser, losses = task.optimiser(model), []
    for number, chosen in enumerate(task.epoch(0)[:steps], 1):
        for group in optimiser.param_groups:
            group["lr"] = task.rate(number)
        optimiser.zero_grad(set_to_none=True)
        loss = task.loss(model, task.batch(chosen, torch.device("cpu")))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimiser.step()
        losses.append(loss.item())
    return shortened(losses) | {"bits_per_byte": {} if steps else task.result(model)["bits_per_byte"]}


def shortened(losses: Sequence[float], every: int = 20) -> dict[str, list[float]]:
    """What is kept of the losses.

    >>> shortened([3.0, 2.0, 2.0, 1.0, 1.0, 1.0], every=2)
    {'first': [3.0, 2.0, 2.0, 1.0], 'curve': [2.5, 1.5, 1.0]}
    """
    means = np.reshape(losses[: len(losses) // every * every], (-1, every)).mean(-1)
    return {"first": [round(loss, 5) for loss in losses[:4]], "curve": means.round(5).tolist()}


def reread(texts: Sequence[str] | None = None) -> dict[str, float]:
    """The bits per byte of the committed model, as it was trained, and with all layers read as parallel ones."""
    texts = lm.docstrings()["test"][:DOCUMENTS] if texts is None else texts
    model = lm.load()
    other = Parallel(model.config, model.tokens).eval()
    other.load_state_dict(model.state_dict())
    return {"serial": lm.bits_per_byte(model, texts), "parallel": lm.bits_per_byte(other, texts)}


def named(kind: str, rate: float, seed: int) -> str:
    """The name of a run in the record.

    >>> named("serial", 0.003, 1)
    'serial 0.003 1'
    """
    return f"{kind} {rate:g} {seed}"


def chosen(runs: Mapping[str, dict], kind: str) -> float:
    """The rate with the fewest bits per byte of the validation text, by the runs of the first seed.

    >>> of = lambda bits: {"bits_per_byte": {"validation": bits}}
    >>> chosen({named("serial", rate, 1): of(bits) for rate, bits in zip(RATES["serial"], (3, 2, 4, 5))}, "serial")
    0.01
    """
    return min(RATES[kind], key=lambda rate: runs[named(kind, rate, SEEDS[0])]["bits_per_byte"]["validation"])


def _plan():
    kinds = {"serial": lm.LanguageModel, "parallel": Parallel}
    runs = {
        named(name, rate, seed): partial(trained, kind, seed, rate)
        for name, kind in kinds.items()
        for rate in RATES[name]
        for seed in (SEEDS if rate in (CHOSEN[name], CONFIG.rate) else SEEDS[:1])
    }
    return {"runs": runs, "reread": reread}


STUDY = Study("attnmath.parallel_study", "chapters/08_at_work/systems.json", ("runs", "reread"), _plan)
record, main = STUDY.record, STUDY.main

if __name__ == "__main__":
    raise SystemExit(main())
