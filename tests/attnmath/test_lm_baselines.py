"""What the language model is held against: each number again in another way, and the record of the runs."""

import json
import lzma
import zlib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import docs, lm_baselines, saves, train
from attnmath.docs import Doc, Docs
from attnmath.ngram import KneserNey
from attnmath.tasks import lm
from tests.attnmath.test_lm import TINY, model_of, texts

FOLDER = Path(__file__).parents[2] / "chapters" / "08_at_work"


def test_compressors_say_what_they_would_write():
    data = " ".join(texts()["train"]).encode()
    assert lm_baselines.zlib_bits(data) == 8 * len(zlib.compress(data, 9)) / len(data)
    unpack = zlib.decompressobj(zdict=data)
    packer = zlib.compressobj(9, zdict=data)
    packed = packer.compress(data[50:250]) + packer.flush()
    assert unpack.decompress(packed) == data[50:250]
    assert lm_baselines.zlib_bits(data[50:250], data) == 8 * len(packed) / 200
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 16}]
    raw = lzma.compress(data, lzma.FORMAT_RAW, filters=[filters[0] | {"preset": 9 | lzma.PRESET_EXTREME}])
    assert lm_baselines.lzma_size(data) == len(raw)
    assert lm_baselines.lzma_size(data + data) < len(raw) + 40, "the window holds all"
    noise = np.random.default_rng(0).bytes(100_000)
    assert lm_baselines.lzma_size(noise + noise) < 102_000, "also where it is longer than 64 KiB"


def test_the_order_is_that_which_predicts_best(monkeypatch):
    ids = np.tile([0, 1, 2, 0, 2, 1, 1], 30)
    monkeypatch.setitem(lm_baselines.ORDERS, "tokens", (1, 2, 4))
    model, order = lm_baselines.counted("tokens", ids, ids[:50], 3)
    bits = {k: -np.log2(KneserNey(ids, 3, k).probabilities(ids[:50])[1:]).mean() for k in (1, 2, 4)}
    assert order == min(bits, key=bits.get) == 4 and model.order == 4


@pytest.mark.slow
def test_each_measure_again(tmp_path, monkeypatch):
    """On a small corpus: bits of the whole are those of its parts, and each is what its own function says."""
    some = texts(train=200, validation=80, test=80)
    some["test"] = [text + " " + some["train"][i] if i % 2 else text for i, text in enumerate(some["test"])]
    parts = [tuple(Doc(f"numpy.{part}{i}", "numpy/a.py", text) for i, text in enumerate(some[part])) for part in some]
    monkeypatch.setattr(lm_baselines, "docs", lambda: Docs(*parts, {}))
    monkeypatch.setattr(lm_baselines, "ORDERS", {"bytes": (2, 4), "tokens": (2, 3)})
    monkeypatch.setattr(lm_baselines, "SAMPLES", 1)
    monkeypatch.setattr(lm_baselines, "TOKENS", 8)
    folder = tmp_path / "numpy" / "ma"
    folder.mkdir(parents=True)
    functions = [f"def f{i}():\n    {text!r}\n" for i, text in enumerate([*some["train"][:9], "Too short."])]
    (folder / "core.py").write_text("".join(functions))
    monkeypatch.setattr(lm_baselines, "locate", lambda: {"numpy": tmp_path / "numpy"})
    model = model_of(replace(TINY, context=40))
    arrays = {name: X.numpy() for name, X in model.state_dict().items()}
    meta = {"config": asdict(model.config), "specials": model.tokens.specials, "pairs": model.tokens.pairs}
    saves.save(tmp_path / "m.safetensors", arrays, meta)
    model = lm.load(tmp_path / "m.safetensors")
    assert lm_baselines.main([str(tmp_path / "out.json"), "--model", str(tmp_path / "m.safetensors")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    bits, size = found["bits_per_byte"], lm.length(some["test"])
    assert bits["Transformer"] == pytest.approx(lm.bits_per_byte(model, some["test"]), rel=1e-6)
    ids = {part: lm.stream(model.tokens, several) for part, several in some.items()}
    p = KneserNey(ids["train"], TINY.vocabulary, found["orders"]["tokens"]).probabilities(ids["test"])
    assert bits["n-gram of tokens"] == pytest.approx(-np.log2(p)[1:].sum() / size, rel=1e-12)
    letters = {part: np.frombuffer(b"\0" + lm_baselines.packed(some[part]), np.uint8) for part in some}
    p = KneserNey(letters["train"], 256, found["orders"]["bytes"]).probabilities(letters["test"])
    assert bits["n-gram of bytes"] == pytest.approx(-np.log2(p)[1:].sum() / size, rel=1e-12)
    split = found["split"]
    assert sum(part["documents"] for part in split.values()) == 80
    assert sum(part["bytes"] for part in split.values()) == size
    for name in ("Transformer", "n-gram of tokens", "Transformer and n-gram"):
        total = sum(part["bits"][name] * part["bytes"] for part in split.values())
        assert bits[name] == pytest.approx(total / size, rel=1e-9)
    assert split["new"]["bits"]["n-gram of tokens"] > split["the rest"]["bits"]["n-gram of tokens"]
    assert bits["Transformer and n-gram"] <= min(bits["Transformer"], bits["n-gram of tokens"]) + 0.02
    assert bits["lzma with training text"] < bits["lzma"]
    again = [text for text in some["train"][:9] if len(text.split()) >= 8]
    assert 0 < found["masked"]["documents"] == len(again) < 9 and found["masked"]["bytes"] == lm.length(again)
    assert found["masked"]["bits"]["Transformer"] == pytest.approx(lm.bits_per_byte(model, again), rel=1e-6)
    own = KneserNey(ids["train"], TINY.vocabulary, found["orders"]["tokens"])
    p = own.probabilities(lm.stream(model.tokens, again))
    assert found["masked"]["bits"]["n-gram of tokens"] == pytest.approx(-np.log2(p)[1:].sum() / lm.length(again))


def test_a_missing_model_is_one_line(tmp_path, capsys):
    assert lm_baselines.main([str(tmp_path / "o.json"), "--model", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith("error: there is no checkpoint")
    assert not (tmp_path / "o.json").exists()


# the record ----------------------------------------------------------------------------------------------------------


def record():
    return json.loads((FOLDER / "language_model.json").read_text(encoding="utf-8"))


def test_the_record_agrees_with_itself_and_with_the_weights():
    told = record()
    for run in [told["full"], *told["full again"], *told["book"]]:
        assert run["command"][:4] == ["python", "-m", "attnmath.train", "lm"]
        config = train.configuration(train.parser().parse_args(run["command"][3:]))
        assert asdict(config) == run["config"] and run["steps"] == config.epochs * config.steps
        assert run["seen"] == run["steps"] * config.batch * config.context
        assert run["history"][-1]["validation_bits_per_byte"] < run["history"][0]["validation_bits_per_byte"]
        assert run["bits_per_byte"]["validation"] == pytest.approx(
            run["history"][-1]["validation_bits_per_byte"], abs=0.5
        ), "the history has the beginning of the text only"
    assert [run["config"]["seed"] for run in told["book"]] == [1, 2, 3]
    again = [lm.Config(**run["config"]) for run in told["full again"]]
    assert again == [replace(lm.PRESETS["full"], seed=seed) for seed in lm.OTHERS]
    model = lm.load()
    assert asdict(model.config) == told["full"]["config"]
    assert sum(P.numel() for P in model.parameters()) == told["full"]["parameters"]
    data = lm.COMMITTED.read_bytes()
    assert {"file": lm.COMMITTED.name, "bytes": len(data), "sha256": lm.hashlib.sha256(data).hexdigest()} == {
        name: told["weights"][name] for name in ("file", "bytes", "sha256")
    }
    assert len(data) <= 1_000_000
    assert told["baselines"]["bits_per_byte"]["Transformer"] == pytest.approx(
        told["full"]["bits_per_byte"]["test"], abs=2e-3
    )


def test_the_committed_model_predicts_a_file_of_the_test_text():
    """Far better than zlib, which a model with other weights, or another order of its tokens, is not."""
    source = (docs.locate()["scipy"] / "cluster" / "vq.py").read_bytes()
    some = [doc.text for doc in docs.read("scipy/cluster/vq.py", source)][:6]
    model = lm.load()
    bits = lm.bits_per_byte(model, some)
    assert bits < lm_baselines.zlib_bits(lm_baselines.packed(some)) - 0.5
    with torch.no_grad():
        model.embeddings.position[:] = model.embeddings.position.flip(0)
    assert lm.bits_per_byte(model, some) > bits + 0.1


@pytest.mark.slow
def test_the_first_steps_of_the_record_are_repeated():
    """The losses of the first steps of a preset, from the text on the disk to the third decimal."""
    from attnmath.torch.training import Run

    told = record()["book"][0]
    task = lm.Task(lm.Config(**told["config"]))
    assert {part: len(ids) - 1 for part, ids in task.ids.items()} == {
        part: size["tokens"] for part, size in told["text"].items()
    }
    assert task.tokens == lm.load().tokens
    run = Run(task, Path("nowhere"))
    for chosen in task.epoch(0)[: len(told["first_losses"])]:
        run._update(task.batch(chosen, "cpu"))
    np.testing.assert_allclose(run.losses, told["first_losses"], atol=2e-3)
