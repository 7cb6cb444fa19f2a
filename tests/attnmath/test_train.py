"""Training: a killed run goes on as if nothing had happened, both worlds learn the same, errors are one clear line."""

import json
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import attnmath.numpy as an
from attnmath import cmudict, saves, tasks, train
from attnmath.cmudict import END, PAD, START, CMUdict
from attnmath.numpy.losses import cross_entropy
from attnmath.numpy.optimisers import adam, adam_state
from attnmath.tasks import g2p
from attnmath.tasks.g2p import Config, Speller, Task
from attnmath.torch.modules import to_numpy
from attnmath.torch.training import Run, rise_and_cosine

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "chapters" / "06_training" / "g2p_full.json"
TINY = Config(d=8, heads=2, f=16, layers=1, epochs=3, batch=16, rate=1e-2, warmup=5)


def small(train=200, validation=12, test=9):
    """The first words of each part of the dictionary."""
    data = cmudict.cmudict()
    parts = [
        dict(list(part.items())[:n])
        for part, n in zip((data.train, data.validation, data.test), (train, validation, test), strict=True)
    ]
    return CMUdict(*parts, 0, data.phonemes)


def without_time(history):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return Run(Task(TINY, small()), tmp_path_factory.mktemp("run")).fit(save_every=4, progress=False)


# the run -------------------------------------------------------------------------------------------------------------


def test_it_learns(uninterrupted):
    run = uninterrupted
    assert run.step == run.total == len(run.losses) == 3 * run.per_epoch
    assert np.mean(run.losses[-5:]) < 0.8 * np.mean(run.losses[:5])
    logged = [json.loads(line) for line in (run.out / "log.jsonl").read_text().splitlines()]
    assert logged == run.history and [record["epoch"] for record in logged] == [1, 2, 3]
    assert logged[-1]["validation_loss"] < logged[0]["validation_loss"]
    for i, record in enumerate(logged):
        part = run.losses[i * run.per_epoch : (i + 1) * run.per_epoch]
        assert record["train_loss"] == float(np.mean(part))


WORKER = """
import sys, torch
torch.set_num_threads(1)
from attnmath.tasks.g2p import Task
from tests.attnmath.test_train import TINY, small
from attnmath.torch.training import Run
run = Run(Task(TINY, small()), sys.argv[1])
print(run.step, flush=True)
update = Run._update
def slowly(self, batch):  # so that there is time to be killed in
    update(self, batch)
    print(self.step, flush=True)
Run._update = slowly
run.fit(save_every=4, progress=False)
"""


@pytest.mark.slow
def test_killed_and_resumed_it_gives_the_same_losses_bit_for_bit(uninterrupted, tmp_path):
    """kill -9 at random steps, until it is done: losses, log and parameters are those of the run left alone."""
    rng, starts = random.Random(3), []
    command = [sys.executable, "-W", "ignore", "-c", WORKER, tmp_path]
    while not starts or (saves.load_latest(tmp_path) or ({}, {"step": 0}))[1]["step"] < uninterrupted.total:
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            starts.append(int(process.stdout.readline()))
            for _ in range(rng.randint(7, 19)):
                process.stdout.readline()
            time.sleep(rng.uniform(0, 0.02))
            process.send_signal(signal.SIGKILL)
    assert len(starts) >= 3 and starts == sorted(set(starts)), "it was killed twice, and each life went further"
    assert any(0 < start % uninterrupted.per_epoch for start in starts), "and it began again in the middle of an epoch"
    tensors, meta = saves.load_latest(tmp_path, asdict(TINY))
    assert tensors["losses"].tolist() == uninterrupted.losses
    assert without_time(meta["history"]) == without_time(uninterrupted.history)
    for name, X in uninterrupted.model.state_dict().items():
        np.testing.assert_array_equal(tensors[f"model.{name}"], X.numpy())


class Killed(Exception):
    pass


class Mortal(Run):
    """Saves a checkpoint in the middle of the second epoch, and dies."""

    def _update(self, batch):
        if self.step == self.per_epoch + 3:
            self.save()
            raise Killed
        super()._update(batch)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["rng.cpu", "optimiser.0.exp_avg", "model.model.embeddings.word"])
def test_each_part_of_a_checkpoint_is_needed(uninterrupted, tmp_path, lost):
    """With one part of the state replaced, the losses go another way: so the test above would notice."""
    with pytest.raises(Killed):
        Mortal(Task(TINY, small()), tmp_path).fit(save_every=1000, progress=False)
    whole = Run(Task(TINY, small()), tmp_path)
    tensors, meta = saves.load_latest(tmp_path)
    wrong = torch.Generator().manual_seed(9).get_state().numpy() if lost == "rng.cpu" else 0.5 * tensors[lost]
    other = Run(Task(TINY, small()), tmp_path / "other")
    other._restore(tensors | {lost: wrong}, meta)
    for run in (whole, other):
        run.fit(save_every=1000, progress=False)
    assert whole.losses == uninterrupted.losses
    assert other.losses[: meta["step"]] == uninterrupted.losses[: meta["step"]] and other.losses != uninterrupted.losses


def test_another_configuration_is_refused_and_named(uninterrupted):
    with pytest.raises(
        ValueError, match=r"another configuration: d is 8 there and 16 here; ask for that one, or choose"
    ):
        Run(Task(replace(TINY, d=16), small()), uninterrupted.out)
    with pytest.raises(ValueError, match="has checkpoints; resume from them, or choose another folder"):
        Run(Task(TINY, small()), uninterrupted.out, resume=False)


def test_a_finished_run_is_not_trained_again(uninterrupted):
    again = Run(Task(TINY, small()), uninterrupted.out)
    before = [X.clone() for X in again.model.parameters()]
    again.fit(progress=False)
    assert all(torch.equal(X, Y) for X, Y in zip(before, again.model.parameters(), strict=True))


def test_results_are_written_and_the_model_speaks_again(uninterrupted):
    result = uninterrupted.finish(["python"])
    assert json.loads((uninterrupted.out / "result.json").read_text()) == result
    assert result["parameters"] == sum(X.numel() for X in uninterrupted.model.parameters())
    assert result["test"]["greedy"]["words"] == 9 and result["validation"]["beam 5"]["words"] == 12
    assert result["validation"]["greedy"]["per"] == uninterrupted.history[-1]["validation_per"]
    model = g2p.load(uninterrupted.out / "model.safetensors")
    words = list(small().validation)
    assert model.transcribe(words) == uninterrupted.model.transcribe(words)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    run = Run(Task(TINY, small()), tmp_path)
    with torch.no_grad():
        run.model.model.embeddings.word[:] = torch.nan
    with pytest.raises((FloatingPointError, ValueError), match=r"step 1 is nan; try a lower rate"):
        run.fit(progress=False)
    assert saves.checkpoints(tmp_path) == []


def test_impossible_configurations_are_refused():
    for change, said in (
        ({"d": 0}, "d is 0"),
        ({"rate": 0.0}, "rate is 0"),
        ({"drop": 1.0}, "drop is 1"),
        ({"epochs": 0}, "epochs is 0"),
        ({"words": -1}, "words is -1"),
    ):
        with pytest.raises(ValueError, match=said):
            replace(TINY, **change)
    with pytest.raises(ValueError, match="heads"):
        Speller(replace(TINY, heads=3), cmudict.PHONEMES)


# batches -------------------------------------------------------------------------------------------------------------


def test_batches_hold_each_pair_once_and_little_padding(rng):
    examples = g2p.pairs(small(5000).train, cmudict.PHONEMES)
    lengths = np.array([(len(source), len(target)) for source, target in examples])
    cut = g2p.batches(lengths, 32, np.random.default_rng(5))
    assert sorted(np.concatenate(cut)) == list(range(len(examples)))
    assert [len(part) for part in cut].count(32) >= len(cut) - 3

    def padded(parts):
        return sum(len(part) * lengths[part].max(0).sum() for part in parts) / lengths.sum() - 1

    shuffled = np.array_split(rng.permutation(len(examples)), len(cut))
    assert padded(cut) < 0.10 < 0.5 < padded(shuffled)
    assert np.abs(np.corrcoef(np.arange(len(cut)), [lengths[part].mean() for part in cut])[0, 1]) < 0.2, (
        "order is random"
    )
    again, other = (g2p.batches(lengths, 32, np.random.default_rng(seed)) for seed in (5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(cut, again, strict=True)) and not np.array_equal(cut[0], other[0])


@pytest.mark.slow
def test_padding_changes_nothing():
    """The loss of a batch is the mean over its pairs' phonemes, whatever stands beside them."""
    torch.manual_seed(0)
    model = Speller(TINY, cmudict.PHONEMES).double().eval()
    examples = g2p.pairs(small(40).train, cmudict.PHONEMES)
    together = g2p.loss_of(model, g2p.collate(examples, "cpu"), 0.1).item()
    sizes = [len(target) for _, target in examples]
    alone = [g2p.loss_of(model, g2p.collate([pair], "cpu"), 0.1).item() for pair in examples]
    np.testing.assert_allclose(together, np.average(alone, weights=sizes), rtol=1e-12)
    np.testing.assert_allclose(g2p.mean_loss(model, examples, "cpu", size=7) * 0 + together, together)


def test_what_goes_in_is_what_should_come_out_one_step_earlier():
    letters, into, out = g2p.collate([([3, 4, END], [9, 8, END]), ([5, END], [7, END])], "cpu")
    assert letters.tolist() == [[3, 4, END], [5, END, PAD]]
    assert into.tolist() == [[START, 9, 8], [START, 7, END]] and out.tolist() == [[9, 8, END], [7, END, PAD]]


@pytest.fixture(scope="module")
def memoriser():
    """A model that has learned twelve words by heart, one pronunciation each."""
    words = {word: spoken[:1] for word, spoken in small(12).train.items()}
    torch.manual_seed(2)
    model = Speller(replace(TINY, d=32, f=64, drop=0.0), cmudict.PHONEMES).double()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batch = g2p.collate(g2p.pairs(words, cmudict.PHONEMES), "cpu")
    for _ in range(100):
        optimiser.zero_grad()
        g2p.loss_of(model, batch, 0.0).backward()
        optimiser.step()
    return model, words


@pytest.mark.slow
def test_it_can_learn_words_by_heart(memoriser):
    model, words = memoriser
    assert g2p.evaluate(model, words) == {"per": 0.0, "wer": 0.0, "words": 12}
    assert model.transcribe([word.upper() for word in words], width=3) == [spoken for (spoken,) in words.values()]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 3])
def test_decoding_with_a_cache_is_decoding_without(memoriser, width):
    """What `transcribe` says is what the model says when it reads each whole prefix again, word by word."""
    model, known = memoriser
    names = cmudict.SPECIALS + cmudict.PHONEMES
    words = ["a", "abbey", "zoo", "attention", "mississippi", *list(known)[:2]]
    found = model.transcribe(words, width=width, batch=3)
    for word, spoken in zip(words, found, strict=True):
        letters = torch.tensor([cmudict.spell(word)])

        @torch.no_grad()
        def step(prefixes, rows, parents):
            Z = model(letters.expand(len(prefixes), -1), torch.from_numpy(prefixes))[:, -1]
            return torch.log_softmax(Z, -1).numpy()

        ids = g2p.beam_search(step, START, END, 1, width, g2p.LONGEST)[0][0]
        assert tuple(names[i] for i in ids) == spoken
    assert len(set(found)) >= 5


def test_scores_count_the_closest_reference():
    two = (("A", "B"), ("A", "C", "D"))
    said = [("A", "C"), ("A", "C", "D"), ("E",), ("F", "G", "H")]
    found = g2p.score(said, [two, two, (("E",),), (("F", "G"),)])
    # A C is one edit from both, so the first counts; A C D is the second; E is right; one symbol too many
    assert found == {"per": 100 * (1 + 0 + 0 + 1) / (2 + 3 + 1 + 2), "wer": 100 * 2 / 4, "words": 4}


def test_the_learning_rate_rises_and_falls():
    rates = [rise_and_cosine(step, 1.0, 10, 50) for step in range(1, 51)]
    np.testing.assert_allclose(rates[:10], np.arange(1, 11) / 10)
    np.testing.assert_allclose([rates[29], rates[49]], [0.5, 0], atol=1e-12)
    assert (np.diff(rates[10:]) < 0).all()


# both worlds ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_gradients_by_hand_train_the_same_model():
    """A hundred steps with gradients and Adam by hand, and with PyTorch's autograd and AdamW: the same losses."""
    config = replace(TINY, drop=0.0)
    examples = g2p.pairs(small(120).train, cmudict.PHONEMES)
    torch.manual_seed(4)
    model = Speller(config, cmudict.PHONEMES).double()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01)
    params = to_numpy(model.model.tree())
    state = adam_state(params)
    options = {
        "embed": partial(an.token_embedding, scale=config.d**0.5, positions=model.positions.numpy()),
        "join": partial(an.sublayer, norm_first=True),
        "feed_forward": partial(an.feed_forward, activation=an.relu),
    }
    ours, theirs = [], []
    for step in range(100):
        part = [examples[i] for i in np.random.default_rng(step).choice(len(examples), 8, replace=False)]
        letters, into, out = (X.numpy() for X in g2p.collate(part, "cpu"))
        Z, vjp = an.transformer(letters, into, params, config.heads, letters != PAD, **options)
        loss, loss_vjp = cross_entropy(Z, out, out != PAD, smoothing=0.1)
        ours.append(float(loss))
        params, state = adam(params, vjp(loss_vjp(1.0)), state, 3e-3, weight_decay=0.01)
        theirs.append(g2p.loss_of(model, g2p.collate(part, "cpu"), 0.1))
        optimiser.zero_grad()
        theirs[-1].backward()
        optimiser.step()
    theirs = [loss.item() for loss in theirs]
    assert theirs[-1] < 0.8 * theirs[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


# the command line ----------------------------------------------------------------------------------------------------


def test_flags_override_the_preset():
    args = train.parser().parse_args(["g2p", "--preset=full", "--epochs=3", "--rate", "0.5", "--stress"])
    config = train.configuration(args)
    assert (config.epochs, config.rate, config.stress, config.d) == (3, 0.5, True, g2p.PRESETS["full"].d)
    command = train.command(args)
    assert command == ["python", "-m", "attnmath.train", "g2p", "--preset=full", "--stress", "--epochs=3", "--rate=0.5"]
    assert train.configuration(train.parser().parse_args(command[3:])) == config


def test_words_are_pronounced_on_the_command_line(uninterrupted, capsys):
    uninterrupted.finish(["python"])
    folder = ["g2p", "--out", str(uninterrupted.out), "--say"]
    assert train.main([*folder, "Cat", "paris"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["Cat", "paris"]
    assert set(" ".join(line.partition(" ")[2] for line in lines).split()) <= set(cmudict.PHONEMES + cmudict.SPECIALS)
    for word, said in (
        ("naïve", "'naïve' has the character 'ï'; the alphabet is"),
        ("", "the word is empty"),
        ("a" * 64, "the most is 63"),
    ):
        assert train.main([*folder, word]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1 and error.startswith("error: ")
    assert train.main(["g2p", "--out", str(uninterrupted.out / "nowhere"), "--say", "cat"]) == 1
    assert re.fullmatch(
        r"error: there is no checkpoint \S+; train one, or name another file\n", capsys.readouterr().err
    )


@pytest.mark.slow
def test_the_command_line_trains_and_refuses(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(g2p, "cmudict", lambda stress: small())
    flags = [
        "g2p",
        "--out",
        str(tmp_path),
        "--quiet",
        "--device=cpu",
        "--d=8",
        "--f=16",
        "--heads=2",
        "--layers=1",
        "--batch=64",
    ]
    assert train.main(flags) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert json.loads(capsys.readouterr().out) == {part: result[part] for part in ("validation", "test")}
    assert result["command"][:4] == ["python", "-m", "attnmath.train", "g2p"] and result["config"]["d"] == 8
    assert train.main([*flags, "--d=16"]) == 1
    assert re.fullmatch(r"error: .*d is 8 there and 16 here.*\n", capsys.readouterr().err)
    assert train.main([*flags, "--no-resume"]) == 1
    assert "choose another folder" in capsys.readouterr().err


# the record of the full run ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_record_agrees_with_itself_and_with_the_library():
    record = json.loads(RECORD.read_text())
    assert record["command"][:4] == ["python", "-m", "attnmath.train", "g2p"]
    config = train.configuration(train.parser().parse_args(record["command"][3:]))
    assert asdict(config) == record["config"]
    data = cmudict.cmudict(config.stress)
    assert record["words"] == {name: len(getattr(data, name)) for name in ("train", "validation", "test")}
    pairs = sum(map(len, list(data.train.values())[: config.words or None]))
    assert record["pairs"] == pairs
    assert record["parameters"] == sum(X.numel() for X in Speller(config, data.phonemes).parameters())
    history = record["history"]
    assert [entry["epoch"] for entry in history] == list(range(1, config.epochs + 1))
    assert history[-1]["step"] == record["steps"] == config.epochs * -(-pairs // config.batch)
    assert [entry["seconds"] for entry in history] == sorted(entry["seconds"] for entry in history)
    assert 0 < record["processor_seconds"] and history[-1]["seconds"] <= record["seconds"] + 1
    assert record["validation"]["greedy"]["per"] == pytest.approx(history[-1]["validation_per"], abs=0.02)
    for part in ("validation", "test"):
        for found in record[part].values():
            assert found["words"] == record["words"][part] and 0 < found["per"] < found["wer"] < 100
            wrong = found["wer"] * found["words"] / 100
            assert abs(wrong - round(wrong)) < 1e-6
    assert history[-1]["train_loss"] <= history[0]["train_loss"]
    assert {"cpu", "cores", "threads"} <= record["hardware"].keys() and record["torch"]


@pytest.mark.parametrize("name", tasks.names())
def test_a_file_of_another_task_is_refused_in_one_line(name, tmp_path):
    """Those of every other task, and one that is not there."""
    task, others = tasks.find(name), [tasks.find(other) for other in tasks.names() if other != name]
    assert len(others) >= 6
    for other in others:
        meta = {"config": asdict(other.Config()), "phonemes": [], "pairs": [], "specials": []}
        saves.save(tmp_path / "model.safetensors", {"W": np.ones(2)}, meta)
        wanted = rf"^.*model.safetensors holds the model of another task; .* run of `attnmath.train {name}`$"
        with pytest.raises(ValueError, match=wanted):
            task.load(tmp_path / "model.safetensors")
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        task.load(tmp_path / "nothing.safetensors")
