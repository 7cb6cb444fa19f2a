"""The study of fine-tuning: its task, its measures, and that the committed record begins as a run does today."""

import hashlib
import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import bpe, masking
from attnmath import fine_tuning_study as study
from attnmath.check import compare
from attnmath.docs import docs, subpackage
from attnmath.tasks import mlm
from attnmath.torch.training import Run, saved

FOLDER = Path(__file__).parents[2] / "chapters" / "08_at_work"
RECORD = FOLDER / "masked_language_model.json"
TINY = mlm.Config(d=8, heads=2, f=16, layers=1, vocabulary=280, context=10)


def classifier(seed=3, classes=3):
    model = study.Classifier(study.encoder(TINY, None, seed), classes).eval()
    torch.nn.init.normal_(model.out.weight)
    return model


def test_padding_changes_no_class_and_a_seed_decides(rng):
    ids = rng.integers(2, 280, (4, 6))
    short, long = torch.from_numpy(ids), torch.from_numpy(mlm.padded(ids.tolist(), 10))
    model = classifier()
    compare(model(long), model(short), atol=1e-5)
    one, other = (study.Classifier(study.encoder(TINY, None, s), 3).features(short) for s in (3, 4))
    compare(one, model.features(short), atol=0.0)
    assert (one - other).abs().max() > 1e-2
    copied = study.encoder(TINY, model.encoder.state_dict(), 9)
    compare(study.Classifier(copied, 3).features(short), one, atol=0.0)


def test_fine_tuning_learns_and_the_rows_that_are_right_are_told(rng):
    y = rng.integers(0, 3, 40)
    ids = rng.integers(10, 280, (40, 10))
    ids[:, 4] = y + 2  # the class stands in the text
    model = classifier()
    losses = study.fine_tune(model, ids, y, 1e-2, 60, seed=1)
    assert np.mean(losses[-5:]) < 0.3 < losses[0]
    part = study.Part(ids, [""] * 40, [""] * 40, y, y)
    hits = study.right(model, part)
    with torch.no_grad():
        want = model(torch.from_numpy(ids)).argmax(-1).numpy() == y
    assert hits.tolist() == want.tolist() and hits.mean() > 0.8
    assert study.written(hits).count("1") == hits.sum() and study.written(~hits)[0] == "01"[int(~hits[0])]


def test_labels_are_nested_and_drawn_by_the_seed():
    y = np.arange(300)
    few, more, other = study.sample(y, 50, 1), study.sample(y, 200, 1), study.sample(y, 50, 2)
    assert few.tolist() == more[:50].tolist() and len(set(more)) == 200
    assert sorted(study.sample(y, 0, 1)) == list(range(300)) and set(few) != set(other)


def test_tables_of_counts_are_what_one_counts_by_hand():
    """Texts 2 3 4 and 2 3 5 (0 pads); the blank of 2 _ 4, whose token is 3."""
    train = np.array([[2, 3, 4, 0], [2, 3, 5, 0]])
    batch = masking.Masked(np.array([[2, 1, 4]]), np.array([[2, 3, 4]]), np.array([[False, True, False]]))
    one = 3 / (6 + 7)  # two of six tokens, one added to each of seven
    left, right = (2 + one) / 3, (1 + one) / 2  # Witten and Bell: one kind followed 2, seen twice; one stood before 4
    between = (1 + 0.5 * (left + right)) / 2
    found = study.counted(train, batch, 7)
    compare(np.array(list(found.values())), -np.log2([one, between]), atol=1e-3)


def test_two_orders_are_two_products_of_conditionals(rng):
    torch.manual_seed(1)
    model, ids = mlm.network(TINY).eval(), rng.integers(2, 280, (3, 10))
    ids[1, 6:] = mlm.PAD
    found = study.two_orders(model, ids, np.random.default_rng(4))
    length = (ids != mlm.PAD).sum(-1)
    at = np.random.default_rng(4).integers(0, length - 1)

    def logp(row, place, hidden):
        seen = ids[row, : length[row]].copy()
        seen[hidden] = mlm.MASK
        with torch.no_grad():
            return torch.log_softmax(model(torch.from_numpy(seen)[None])[0, place].double(), -1)[ids[row, place]]

    for row, i in enumerate(at):
        first = logp(row, i, [i, i + 1]) + logp(row, i + 1, [i + 1])
        second = logp(row, i + 1, [i, i + 1]) + logp(row, i, [i])
        compare(found[row], np.array([first, second]), atol=1e-5)
    assert np.abs(found[:, 0] - found[:, 1]).max() > 1e-5


def test_linear_models_see_the_labelled_documents_only(rng):
    y = np.arange(60) % 2
    text = [["sum of rows", "mean of a column"][i] for i in y]
    part = study.Part(np.zeros((60, 1), int), text, [f"{t} whole" for t in text], y, y)
    parts = {"train": part, "dev": part, "test": part._replace(y=1 - y)}
    for kind in ("bayes", "tf-idf", "tf-idf, whole"):
        found = study.on_words(kind, parts, 20)
        assert found["tried"][found["chosen"]] == 1.0 == max(found["tried"].values())
        assert found["seeds"] == {str(seed): {"dev": 1.0, "right": "0" * 60} for seed in study.SEEDS}
    assert study.on_words("frequent", parts, 0)["seeds"]["1"]["dev"] == 0.5
    wordy = part._replace(texts=[["sum of rows of rows of rows of rows", "mean column"][i] for i in y])
    strange = wordy._replace(texts=["rows" + 20 * " zebra"] * 60, y=np.zeros(60, int))  # with 20 words never seen
    unseen = {"train": wordy, "dev": wordy, "test": strange}
    right = study.on_words("bayes", unseen, 20)["seeds"]["1"]["right"]
    assert right == "1" * 60, "the words are those of the labelled documents"
    vectors = {name: np.stack([y - 0.5, rng.random(60)], -1) for name in parts}
    assert study.on_vectors(lambda seed: vectors, parts, 20)["seeds"]["1"]["right"] == "0" * 60


def test_a_sweep_goes_on_until_its_best_is_inside():
    found = study.swept(lambda rate: -abs(math.log(rate / 6)), (0.5, 1.0, 2.0))
    assert list(found) == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0] and max(found, key=found.get) == 8.0
    found = study.swept(lambda rate: -abs(math.log(rate / 6)), (10.0, 20.0))
    assert list(found) == [2.5, 5.0, 10.0, 20.0]


def test_the_look_that_is_best_on_other_files_is_kept(monkeypatch, rng):
    """The hits on the test are those of the best look, and the test chooses nothing."""
    ids, y = rng.integers(10, 280, (40, 10)), rng.integers(0, 3, 40)
    part = study.Part(ids, [""] * 40, [""] * 40, y, y)
    parts, kept, shares = {"train": part, "dev": part, "test": part}, [], iter([0.2, 0.6, 0.4, 0.1] + [0.0] * 7)

    def right(model, own):
        kept.append(model.out.bias.detach().clone())
        hits = np.zeros(40, bool)
        hits[: round(40 * next(shares))] = True
        return hits

    monkeypatch.setattr(study, "CONFIG", TINY)
    monkeypatch.setattr(study, "classes", lambda: ["a", "b", "c"])
    monkeypatch.setattr(study, "right", right)
    monkeypatch.setattr(study, "STEPS", {0: 20})
    found = study.tuned(None, parts, 0, 1, 1e-2)
    assert found["dev"][:4] == [0.2, 0.6, 0.4, 0.1] and len(kept) == study.LOOKS + 1
    compare(kept[-1], kept[1], name="the parameters of the second look", atol=0.0)
    assert (kept[1] - kept[9]).abs().max() > 1e-4


@pytest.mark.slow
def test_files_are_whole_in_one_part_and_the_test_is_what_pretraining_never_reads():
    names, parts, tokens = study.classes(), study._parts(), mlm.load()[1]
    record = json.loads(RECORD.read_text())["data"]
    assert {n: [int((p.y == i).sum()) for p in parts.values()] for i, n in enumerate(names)} == record["classes"]
    assert record["files"] == parts["test"].files.tolist()
    text = {part: {doc.text for doc in getattr(docs(), part)} for part in ("train", "validation", "test")}
    assert set(parts["test"].whole) <= text["validation"] | text["test"]
    assert set(parts["train"].whole) | set(parts["dev"].whole) <= text["train"]
    file = {doc.text: doc.file for doc in docs().train}
    files = [{file[t] for t in parts[part].whole} for part in ("train", "dev")]
    assert not files[0] & files[1]
    for t, label in zip(parts["train"].whole[:50], parts["train"].y, strict=False):
        assert subpackage(file[t]) == names[label]
    row = parts["test"].ids[7]
    assert parts["test"].whole[7].startswith(tokens.decode(row[row != mlm.PAD].tolist()).rstrip("\ufffd"))


def test_the_committed_record_is_whole():
    record = json.loads(RECORD.read_text())
    assert study.record(*(record[name] for name in study.STUDY.names)) == record
    n = len(record["data"]["files"])
    for part, kinds in (("runs", study.RUNS), ("others", study.OTHERS)):
        assert list(record[part]) == [f"{kind} {count}" for count in study.LABELS for kind in kinds]
        for found in record[part].values():
            scores = {key: one[0] if isinstance(one, list) else one for key, one in found["tried"].items()}
            assert found["chosen"] == max(scores, key=scores.get)
            assert list(found["seeds"]) == [str(seed) for seed in study.SEEDS]
            assert {len(one["right"]) for one in found["seeds"].values()} == {n}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pretrained", "from nothing"])
def test_the_committed_study_begins_as_a_run_does_today(kind):
    found, parts = json.loads(RECORD.read_text())["runs"][f"{kind} 0"], study._parts()["train"]
    record, rate, rows = found["seeds"]["2"], float(found["chosen"]), study.sample(parts.y, 0, 2)
    start = mlm.load()[0].state_dict() if kind == "pretrained" else None
    model = study.Classifier(study.encoder(study.CONFIG, start, 2), len(study.classes()))
    rng, want, steps = np.random.default_rng((2, 6)), record["first"], study.STEPS[0]
    assert want[0] == pytest.approx(math.log(len(study.classes())), abs=1e-4), "it begins with no opinion"
    losses = _begin(model, parts.ids[rows], parts.y[rows], steps, rng, len(want), rate)
    compare(np.array(losses), np.array(want), name="losses", atol=2e-3)


def _begin(model, ids, y, steps, rng, count, rate):
    """The first steps, written down again."""
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    losses = []
    for step in range(1, count + 1):
        optimiser.param_groups[0]["lr"] = rate * step / (steps // 10)
        chosen = rng.choice(len(y), study.BATCH, replace=False)
        loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(ids[chosen])), torch.from_numpy(y[chosen]))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
def test_the_committed_model_knows_of_blanks_what_the_record_says():
    model, tokens = mlm.load()
    assert tokens == bpe.train([doc.text for doc in docs().train], study.CONFIG.vocabulary, mlm.SPECIALS)
    ids = mlm.pieces(tokens, [doc.text for doc in docs().validation], study.CONFIG.context)
    record = json.loads(RECORD.read_text())["data"]
    found = mlm.with_blanks(ids, np.random.default_rng(0), study.CONFIG)
    assert mlm.losses(model, found).mean() / math.log(2) == pytest.approx(record["blanks"]["bits"], abs=0.005)
    assert sum(P.numel() for P in model.parameters()) == record["parameters"]
    assert int((ids != mlm.PAD).sum()) == record["tokens"]["validation"]


# the pretraining -----------------------------------------------------------------------------------------------------


def pretraining():
    return json.loads(RECORD.read_text())["pretraining"]


def test_the_pretraining_is_recorded_and_its_model_is_the_committed_one():
    told = pretraining()
    weights, data = told["committed"]["weights"], mlm.COMMITTED.read_bytes()
    found = {"file": mlm.COMMITTED.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert weights == found, "another file was committed than the one that was compared"
    assert told["committed"]["run"] == "python -m attnmath.train mlm"
    assert (
        told["committed"]["config"] == asdict(mlm.PRESETS["book"]) == asdict(saved(mlm.COMMITTED, mlm.Config, "mlm")[1])
    )
    assert told["committed"]["distance"] < 1e-3, "the repeated run has the weights of the file"
    bits = json.loads(RECORD.read_text())["data"]["blanks"]["bits"]
    assert told["committed"]["bits"]["validation"] == pytest.approx(bits, abs=2e-3)
    assert list(told)[1:] == [f"{name} {seed}" for name in study.STARTS for seed in study.SEEDS]
    for name, run in told.items():
        config = mlm.Config(**run["config"])
        assert len(run["curve"]) == config.steps * config.epochs // 25 and len(run["validation"]) == config.epochs
        assert name == "committed" or name == f"{'near' if config.nearby else 'everywhere'} {config.seed}"


def test_a_pretraining_tells_its_run(monkeypatch):
    """On a small text: the losses, the curve and the bits are those of a run of the command."""
    words = "the mean of a sum along an axis of the array".split()
    rng = np.random.default_rng(1)
    texts = {part: [" ".join(rng.choice(words, 9)) for _ in range(30)] for part in ("train", "validation", "test")}
    task, small = mlm.Task, mlm.Config(d=8, heads=2, f=16, layers=1, vocabulary=270, context=10, epochs=2, steps=25)
    monkeypatch.setattr(mlm, "Task", lambda config: task(config, texts))
    found, model = study.pretrained(small)
    run = Run(task(small, texts), Path("nowhere"))
    for epoch in range(2):
        for chosen in run.task.epoch(epoch):
            run._update(run.task.batch(chosen, "cpu"))
    losses = run.losses
    compare(found["first"], losses[: study.FIRST], atol=1e-4)
    compare(found["curve"], [np.mean(losses[:25]), np.mean(losses[25:])], atol=1e-4)
    assert found["bits"]["test"] == pytest.approx(run.task.measured(model, "test"), abs=1e-4)
    assert found["config"] == asdict(small) and len(found["validation"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["committed", "everywhere 2"])
def test_the_first_steps_of_the_pretraining_are_repeated(name):
    told = pretraining()[name]
    run = Run(mlm.Task(mlm.Config(**told["config"])), Path("nowhere"))
    for chosen in run.task.epoch(0)[: study.FIRST]:
        run._update(run.task.batch(chosen, "cpu"))
    compare(run.losses, told["first"], name=name, atol=2e-3)
    if name == "committed":
        assert run.task.tokens == mlm.load()[1], "the tokens of the weights are those of the text"
