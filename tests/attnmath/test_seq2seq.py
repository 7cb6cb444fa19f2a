"""The recurrent spellers: one computation in two worlds, padding that nobody sees, a record to be repeated."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import recurrent_spelling, train
from attnmath.check import compare
from attnmath.cmudict import PAD, SPECIALS, CMUdict, cmudict
from attnmath.numpy.optimisers import adam, adam_state
from attnmath.recurrent_shapes import decoder_shapes, seq2seq_shapes
from attnmath.tasks import g2p, g2p_lstm
from attnmath.tasks.g2p_lstm import Config, Task
from attnmath.torch.modules import to_numpy

pytestmark = pytest.mark.usefixtures("as_users_call")

TINY = Config(d=5, h=8, a=6, steps=6, batch=16, warmup=2, rate=1e-2)
KINDS = ("bahdanau", "luong", "none")
RECORD = Path(__file__).parents[2] / "chapters/08_at_work/lstm_attention.json"


def small(train=120, rest=7):
    data = cmudict()
    parts = [
        dict(list(part.items())[:n]) for part, n in ((data.train, train), (data.validation, rest), (data.test, rest))
    ]
    return CMUdict(*parts, 0, data.phonemes)


def model_of(kind, seed=3):
    """An untrained speller whose parameters are large enough that letters matter."""
    torch.manual_seed(seed)
    model = g2p_lstm.speller(replace(TINY, attention=kind), cmudict().phonemes).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(1.5 * torch.randn_like(parameter))
    return model


# two worlds ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_numpy_follows_the_losses_of_pytorch(kind):
    """The same parameters, words and optimiser in both worlds, for six steps."""
    torch.manual_seed(5)
    task = Task(replace(TINY, attention=kind, batch=8), small())
    model = task.model().double()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
    params = to_numpy(model.model.tree())
    state, ours, theirs = adam_state(params), [], []
    step = getattr(an, g2p_lstm.STEPS[kind].__name__)
    for chosen in task.epoch(0):
        letters, into, out = task.batch(chosen, torch.device("cpu"))
        loss = task.loss(model, (letters, into, out))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        theirs.append(loss.item())
        letters, into, out = letters.numpy(), into.numpy(), out.numpy()
        Z, model_vjp = an.recurrent_seq2seq(letters, into, params, letters != PAD, step=step)
        loss, loss_vjp = an.cross_entropy(Z, out, out != PAD)
        params, state = adam(params, model_vjp(loss_vjp(1.0)), state, 1e-2, betas=(0.9, 0.98), eps=1e-9)
        ours.append(float(loss))
    compare(ours, theirs, name="losses", atol=1e-9)
    assert ours[-1] < ours[0] - 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_at_a_time_is_the_whole(kind):
    model = model_of(kind)
    letters, into, _ = g2p.collate(g2p.pairs(small().train, model.phonemes)[:9], "cpu")
    memory, mask = model.encode(letters)
    cache, rows = {}, []
    for t in range(into.shape[1]):
        rows.append(model.decode(into[:, t : t + 1], memory, mask, cache=cache)[:, 0])
    compare(torch.stack(rows, 1).detach(), model(letters, into).detach(), name="logits", atol=1e-12)


# padding -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_fills_a_row_up_changes_nothing(kind):
    """The logits of a word alone and among longer ones; and without the mask they do change."""
    model = model_of(kind)
    pairs = sorted(g2p.pairs(small().train, model.phonemes)[:7], key=lambda pair: len(pair[0]))
    letters, into, _ = g2p.collate(pairs, "cpu")
    together = model(letters, into).detach()
    for i, pair in enumerate(pairs):
        alone = model(*g2p.collate([pair], "cpu")[:2]).detach()[0]
        compare(together[i, : len(pair[1])], alone, name="logits of a word alone", atol=1e-12)
    blind = at.recurrent_seq2seq(letters, into, model.model.tree(), step=model.step).detach()
    assert (blind[0] - together[0])[: len(pairs[0][1])].abs().max() > 0.1
    compare(blind[-1], together[-1], name="the longest word has no padding", atol=1e-12)
    words = list(small().train)[:4]
    assert model.transcribe(words) == [model.transcribe([word])[0] for word in words]


# what it looks at ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
def test_an_alignment_is_what_the_decoder_used(kind):
    model, word = model_of(kind), "phonetic"
    said, P = model.alignment(word)
    assert P.shape == (len(said) + 1, len(word) + 1)
    compare(P.sum(-1), np.ones(len(P)), name="rows", atol=1e-12)
    with torch.no_grad():
        memory, mask = model.encode(torch.tensor([g2p.spell(word)]))
        ids = torch.tensor([[1, *((SPECIALS + model.phonemes).index(p) for p in said)]])
        states = model.states(ids, memory, mask)[0, 1:]
        leaf = model.model.tree()["decoder"]["output"]
        seen = torch.cat([states[:, 0], torch.from_numpy(P) @ memory[0]], -1)
        compare(torch.tanh(seen @ leaf["weight"] + leaf["bias"]), states[:, 2], name="outputs", atol=1e-12)
    with pytest.raises(ValueError, match="without attention has no weights; choose bahdanau or luong"):
        model_of("none").alignment(word)


# the task ------------------------------------------------------------------------------------------------------------


def test_an_epoch_is_a_function_of_seed_and_number():
    task = Task(replace(TINY, steps=25), small())
    again, other = Task(replace(TINY, steps=25), small()), Task(replace(TINY, steps=25, seed=2), small())
    assert all((a == b).all() for a, b in zip(task.epoch(0), again.epoch(0), strict=True))
    assert any(a.shape != b.shape or (a != b).any() for a, b in zip(task.epoch(0), other.epoch(0), strict=True))
    each = -(-len(task.train) // 16)
    assert len(task.epoch(0)) == 25 == task.per_epoch == task.total
    first = np.sort(np.concatenate(task.epoch(0)[:each]))
    assert (np.concatenate(task.epoch(0)[:each]) != np.concatenate(task.epoch(0)[each : 2 * each])).any()
    assert (first == np.arange(len(task.train))).all(), "a pass sees each pair once"


def test_words_are_left_out_of_the_training_alone():
    data = small(400)
    task = Task(replace(TINY, longest=6, without="er"), data)
    spelt = {"".join(chr(94 + i) for i in source[:-1]) for source, _ in task.train}
    wanted = {word for word in data.train if len(word) <= 6 and "er" not in word}
    assert {word.replace("'", "x") for word in wanted} >= {w for w in spelt if w.isalpha()} and len(wanted) < 400
    assert len(task.train) == sum(len(data.train[word]) for word in wanted)
    assert len(task.validation) == sum(map(len, data.validation.values()))
    with pytest.raises(ValueError, match="no word is left to learn from with longest=0, without='a'"):
        Task(replace(TINY, without="a"), CMUdict({"cab": (("K", "AE", "B"),)}, {}, {}, 0, data.phonemes))


def test_the_transformer_is_that_of_the_preset_book():
    """Same batches, same first parameters, same losses as ``attnmath.train g2p --preset=book``."""
    book = replace(g2p.PRESETS["book"], words=2000)
    theirs = g2p.Task(book)
    ours = Task(Config(attention="transformer", steps=theirs.total, words=2000, seed=book.seed))
    assert all((a == b).all() for a, b in zip(ours.epoch(0), theirs.epoch(0), strict=True))
    assert [ours.rate(step) for step in (1, 9, theirs.total)] == [theirs.rate(step) for step in (1, 9, theirs.total)]
    losses = []
    for task in (ours, theirs):
        torch.manual_seed(1)
        losses.append(task.loss(task.model(), task.batch(task.epoch(0)[0], torch.device("cpu"))).item())
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_the_command_trains_and_pronounces(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(g2p_lstm, "cmudict", small)
    flags = ["--attention=luong", "--d=5", "--h=8", "--steps=4", "--batch=16", "--threads=1", "--device=cpu"]
    assert train.main(["g2p_lstm", *flags, "--out", str(tmp_path), "--quiet"]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["config"]["attention"] == "luong" and result["steps"] == 4 and result["test"]["greedy"]["words"] == 7
    capsys.readouterr()
    assert train.main(["g2p_lstm", "--out", str(tmp_path), "--say", "cab"]) == 0
    assert capsys.readouterr().out.startswith("cab ")
    assert isinstance(g2p_lstm.load(tmp_path / "model.safetensors"), g2p_lstm.Speller)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"attention": "loung"}, "attention is 'loung'; choose one of bahdanau, luong, none, transformer"),
        ({"h": 7}, "h is 7; it must be even, because each direction of the encoder has half of it"),
        ({"without": "b-"}, "without is 'b-'; it must be made of the letters abc"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"rate": 0.0}, "rate is 0.0; it must be > 0"),
    ],
)
def test_a_wrong_configuration_is_refused(flags, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(TINY, **flags)


# the record ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def record():
    return json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_record_is_whole(record):
    runs, plans = record["runs"], recurrent_spelling.plans()
    assert runs.keys() == plans.keys() and recurrent_spelling.record(runs) == record
    for name, run in runs.items():
        assert run["config"] == plans[name] and len(run["edits"]) == len(recurrent_spelling.words())
        assert len(run["losses"]) == -(-plans[name]["steps"] // recurrent_spelling.KEEP)
        assert len(run["first"]) == 5 and run["losses"][-1] < 0.5 * run["losses"][0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", g2p_lstm.KINDS)
def test_the_first_steps_are_those_of_the_record(record, kind):
    for name in (f"{kind} 2", f"short {kind} 3"):
        if name in record["runs"]:
            again = recurrent_spelling.train(record["runs"][name]["config"], steps=4)["losses"]
            compare(again, record["runs"][name]["first"][:4], name=f"losses of {name}", atol=2e-3)


def test_the_words_that_are_asked():
    asked, test = recurrent_spelling.words(), cmudict().test
    assert len(set(asked)) == len(asked) and set(asked) <= test.keys()
    assert asked[: recurrent_spelling.ASKED] == tuple(test)[: recurrent_spelling.ASKED]
    assert {word for word in test if len(word) >= recurrent_spelling.LONG} <= set(asked)


# bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [an, at])
def test_bad_input_gets_a_sentence(world, rng):
    def to(*shape):
        X = rng.standard_normal(shape)
        return X if world is an else torch.from_numpy(X)

    W, U, b = to(3, 8), to(2, 8), to(8)
    with pytest.raises(ValueError, match=r"four times as many as its rows: 8"):
        world.lstm_cell(to(5, 3), to(5, 2, 2), to(3, 6), to(2, 6), to(6))
    with pytest.raises(
        ValueError, match=r"state has shape \(5, 3, 2\); expected \(..., 2, h\), the state and the cell"
    ):
        world.lstm_cell(to(5, 3), to(5, 3, 2), W, U, b)
    with pytest.raises(ValueError, match=r"X has shape \(5, 4, 3\), state \(1, 2, 2\); they share their leading axes"):
        world.lstm(to(5, 4, 3), to(1, 2, 2), W, U, b)
    wrong = np.ones((5, 3), bool) if world is an else torch.ones(5, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"mask has shape \(5, 3\); expected \(5, 4\), an entry for each place"):
        world.lstm(to(5, 4, 3), to(5, 2, 2), W, U, b, wrong)
    with pytest.raises(ValueError, match="masks are boolean"):
        world.lstm(to(5, 4, 3), to(5, 2, 2), W, U, b, to(5, 4))
    params = {"lstm": {"input": W, "state": U, "bias": b}, "output": {"weight": to(2, 2), "bias": to(2)}}
    with pytest.raises(ValueError, match=r"carried has shape \(5, 2, 2\); expected \(..., 3, h\)"):
        world.plain_step(to(5, 3), to(5, 2, 2), to(5, 4, 6), params)
    with pytest.raises(ValueError, match="lacks 'score'"):
        world.luong_step(to(5, 3), to(5, 3, 2), to(5, 4, 6), params)
    with pytest.raises(ValueError, match="at least one token is needed"):
        world.recurrent_decoder(to(5, 0, 3), to(5, 2, 2), to(5, 4, 6), params, step=world.plain_step)
    with pytest.raises(ValueError, match="both widths are even"):
        world.bridge(to(5, 4, 6), {"weight": to(6, 3), "bias": to(3)})
    empty = np.zeros((5, 4), bool) if world is an else torch.zeros(5, 4, dtype=torch.bool)
    luong = {"lstm": {"input": to(5, 8), "state": U, "bias": b}, "score": {"weight": to(2, 6)}}
    luong["output"] = {"weight": to(8, 2), "bias": to(2)}
    with pytest.raises(ValueError, match="may attend to no key"):
        world.luong_step(to(5, 3), to(5, 3, 2), to(5, 4, 6), luong, empty)


def test_shapes_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="attention is 'dot'; choose 'bahdanau', 'luong' or 'none'"):
        decoder_shapes("dot", 3, 2, 4, 5)
    with pytest.raises(ValueError, match="h is 5; it must be even"):
        seq2seq_shapes("luong", {"source": 5, "target": 7, "d": 3, "h": 5, "a": 6})
