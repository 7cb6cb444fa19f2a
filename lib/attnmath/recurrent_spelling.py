"""Spelling at equal time: ``python -m attnmath.recurrent_spelling OUT.json`` trains LSTMs and Transformers on it.

Each run is one of the task `attnmath.tasks.g2p_lstm`, so that ``python -m attnmath.train g2p_lstm`` with the flags that
the record names trains the same model. The Transformer takes half of the steps of g2p's preset ``book``, and the others
as many as took the same seconds of one core when all four were timed in turn; two of them once more with double time. A
last round learns from words of at most `LONGEST` letters that lack the letters `PAIR`.
"""

import sys
import tempfile
from functools import cache, partial
from pathlib import Path

import numpy as np

from attnmath.cmudict import cmudict
from attnmath.study import Study

SEEDS = (1, 2, 3)
STEPS = {"none": 628, "bahdanau": 372, "luong": 432, "transformer": 452}
DOUBLE = {"none": 1255, "bahdanau": 745}
LONGEST, PAIR = 7, "br"
SHORT = {"luong": 300, "transformer": 314}
ASKED, LONG = 3000, 11  # so many test words, and all test words of so many letters
DRAWN = ("flight", "phonetic", "straightforwardly")
KEEP = 20  # steps share one mean loss in the record


@cache
def words() -> tuple[str, ...]:
    """The test words that are asked: a sample, then all that are long, then all short ones that have the pair.

    Examples
    --------
    >>> len(words()), words()[:2]
    (3950, ('dismore', 'evander'))
    """
    test = list(cmudict().test)
    rest = [word for word in test[ASKED:] if len(word) >= LONG or (len(word) <= LONGEST and PAIR in word)]
    return tuple(test[:ASKED] + rest)


def plans() -> dict[str, dict]:
    """What is trained: the flags of each run by its name.

    Examples
    --------
    >>> plans()["luong 2"]
    {'attention': 'luong', 'steps': 432, 'seed': 2}
    """
    found = {f"{kind} {s}": {"attention": kind, "steps": n, "seed": s} for s in SEEDS for kind, n in STEPS.items()}
    found |= {f"double {kind} 1": {"attention": kind, "steps": n, "seed": 1} for kind, n in DOUBLE.items()}
    for s in SEEDS:
        for kind, n in SHORT.items():
            limits = {"longest": LONGEST, "without": PAIR}
            found[f"short {kind} {s}"] = {"attention": kind, "steps": n, "seed": s} | limits
    return found


def edits(said, asked) -> np.ndarray:
    """The edits from what was said to the closest pronunciation, word for word.

    Examples
    --------
    >>> edits([("K", "AE", "B")], ["phobic"])
    array([4])
    """
    from rapidfuzz.distance import Levenshtein

    test = cmudict().test
    return np.array([min(Levenshtein.distance(s, r) for r in test[w]) for s, w in zip(said, asked, strict=True)])


def forced(model, said, asked) -> dict:
    """Words that have one pronunciation: errors where the right phonemes are given, and where the model's own are.

    ``tokens`` is the share of phonemes and ends that are not the most probable one behind the right ones; ``words``
    the share of words in which one is not; ``free`` the share of words that the model itself says wrongly; ``per``
    its edits for each phoneme. All in per cent.
    """
    import torch

    from attnmath.cmudict import PAD
    from attnmath.tasks import g2p

    data, wrong = cmudict(), []
    single = [i for i, word in enumerate(asked) if len(data.test[word]) == 1]
    examples = g2p.pairs({asked[i]: data.test[asked[i]] for i in single}, data.phonemes)
    with torch.no_grad():
        for first in range(0, len(examples), 500):
            letters, into, out = g2p.collate(examples[first : first + 500], "cpu")
            miss = (model(letters, into).argmax(-1) != out) & (out != PAD)
            wrong += [(int(row.sum()), int((target != PAD).sum())) for row, target in zip(miss, out, strict=True)]
    missed, tokens = np.array(wrong).T
    free = g2p.score([said[i] for i in single], [data.test[asked[i]] for i in single])
    given = {"tokens": 100 * float(missed.sum() / tokens.sum()), "words": 100 * float((missed > 0).mean())}
    return {name: round(x, 4) for name, x in (given | {"free": free["wer"], "per": free["per"]}).items()}


def train(plan: dict, steps: int | None = None) -> dict:
    """One run: its losses, its seconds of one core, and what it says to the words.

    Parameters
    ----------
    plan : the flags.
    steps : stop after so many, with the losses alone.
    """
    import torch

    from attnmath.tasks import g2p, g2p_lstm
    from attnmath.torch.training import Run

    class Quick(g2p_lstm.Task):
        def evaluate(self, model):
            return {}

    task = Quick(g2p_lstm.Config(**plan))
    device = torch.device("cpu")
    with tempfile.TemporaryDirectory() as out:
        run = Run(task, Path(out), device)
        if steps:
            for chosen in task.epoch(0)[:steps]:
                run._update(task.batch(chosen, device))
            return {"losses": run.losses}
        run.fit(save_every=10**9, progress=False)
    model = run.model.eval()
    blocks = np.add.reduceat(run.losses, range(0, len(run.losses), KEEP))
    sizes = np.diff([*range(0, len(run.losses), KEEP), len(run.losses)])
    asked = words()
    said = model.transcribe(list(asked))
    sample = [task.data.test[word] for word in asked[:ASKED]]
    found = {
        "config": plan,
        "parameters": sum(P.numel() for P in model.parameters()),
        "first": [round(loss, 5) for loss in run.losses[:5]],
        "losses": [round(float(loss), 4) for loss in blocks / sizes],
        "seconds": round(run.processor, 1),
        "edits": "".join(str(min(n, 9)) for n in edits(said, asked)),  # a digit for each word, 9 for nine and more
        "per": round(g2p.score(said[:ASKED], sample)["per"], 4),
        "forced": forced(model, said[:1000], asked[:1000]),
    }
    if plan["attention"] in ("bahdanau", "luong"):
        drawn = {word: model.alignment(word) for word in DRAWN}
        found["alignments"] = {
            w: {"said": list(said), "weights": P.round(3).tolist()} for w, (said, P) in drawn.items()
        }
    return found


def _plan():
    return {"runs": {name: partial(train, plan) for name, plan in plans().items()}}


STUDY = Study(
    "attnmath.recurrent_spelling",
    "chapters/08_at_work/lstm_attention.json",
    ("runs",),
    _plan,
    lambda run: run["seconds"],
)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
