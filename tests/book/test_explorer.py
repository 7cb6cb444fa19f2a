"""The explorer: MiniLM in the reader's browser gives NumPy's numbers, and its page shows them.

Two comparisons: with the model as published, within what rounding the parameters to sixteen bits costs, and with NumPy
on the same rounded parameters, where nothing but the twin itself can differ. Every planted fault dies of the second.
"""

import base64
import functools
import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from bs4 import BeautifulSoup

import attnmath.numpy as an
from attnmath import minilm
from attnmath.tree import flatten, unflatten
from tests.book.server import serving

pytestmark = [pytest.mark.book, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
HTML = ROOT / "_build" / "html"
FOLDER = HTML / "_static" / "explorer"
SOURCES = ROOT / "_static" / "explorer"
PAGE = HTML / "chapters" / "explorer.html"
TIRED = "The animal didn't cross the street because it was too tired."
SENTENCES = [
    "Yes",
    "",
    "Attention is all you need!",
    TIRED,
    "The animal didn't cross the street because it was too wide.",
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do.",
    "In the beginning God created the heaven and the earth.",
    "My heart leaps up when I behold\n\tA rainbow in the sky",
    "Où sont les neiges d'antan ? Déjà vu, façade, naïve, Ångström, İstanbul.",
    "Всё смешалось в доме Облонских.",
    "ΟΔΟΣ means road; the last sigma is ς.",
    "子曰:學而時習之,不亦說乎?",
    "The scribe drew 𓂀 and 🦉, then \u200b nothing, and\u00a0a\u2028line; no\x07 bell — “none”.",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "x" * 150 + " is too long for WordPiece",
    "f(x) = 3.14e-5 * (x + 2) ** 2;  # a comment; `x` ^ ~y $z",
    "[CLS] and [SEP] inside the text",
    "1 234 567,89 € on 20 November 2026 at 13:22",
    "The keys to the cabinet are on the table, and nobody has looked for them lately.",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it "
    "was the epoch of belief, it was the epoch of incredulity.",
]
PUBLISHED, ROUNDED = 1e-3, 1e-5  # the most by which a weight may differ

FAULTS = {
    "the scores are not scaled": ("row[j] = score * scale", "row[j] = score"),
    "another epsilon": ("EPS = 1e-12", "EPS = 1e-5"),
    "GELU by tanh": (
        "(1 + erf(X[i] / Math.SQRT2)) / 2",
        "(1 + Math.tanh(Math.sqrt(2 / Math.PI) * (X[i] + 0.044715 * X[i] ** 3))) / 2",
    ),
    "the unbiased variance": ("** 2 / width", "** 2 / (width - 1)"),
    "one row of four lacks its bias": ("s2 + b[o]", "s2"),
    "no segment vector": (" + segment[c]", ""),
    "the last sum of a layer is left out": ("layerNorm(add(Y, F), name", "layerNorm(F, name"),
}
SLIPS = {
    "accents stay": (r".replace(/\p{Mn}/gu, " + '"")', ""),
    "capitals stay": ("letter.toLowerCase()", "letter"),
    "the sigma at the end of a word": (
        "[...text.normalize",
        "[text.toLowerCase().normalize",
    ),
    "Chinese characters stay together": ('.replace(CHINESE, " $& ")', ""),
    "control characters stay": ('.replace(REMOVED, "")', ""),
    "only ASCII's punctuation": (r"\[-`{-~\p{P}]", r"\[-`{-~]"),
    "no sign of continuation": ('(start ? "##" : "")', '""'),
    "words of any length": ("LONGEST = 100", "LONGEST = 1000"),
    "special tokens are cut up": ("text.split(SPECIAL)", "[text]"),
}


@pytest.fixture(scope="module")
def model():
    return minilm.load()


def reference(model, params):
    """Tokens, the weights of all heads, and the sentence vector, of each sentence."""
    found = []
    for sentence in SENTENCES:
        record = {}
        ids, mask = model.encode([sentence])
        Y, _ = an.sentence_embedding(ids, params, model.heads, mask, record=record)
        weights = [layer["attention"]["weights"][0] for layer in record["layers"].values()]
        found.append((model.tokens(ids[0]), np.array(weights), Y[0]))
    return found


@pytest.fixture(scope="module")
def published(model):
    return reference(model, model.params)


def handed_over(path):
    """What a data script hands to the page."""
    return json.loads(re.fullmatch(r"Explorer\.receive\((.*)\);\n", path.read_text("utf-8"), re.S)[1])


@pytest.fixture(scope="module")
def layout():
    return handed_over(FOLDER / "layout.data.js")


@pytest.fixture(scope="module")
def read_back(layout):
    """The parameters that the built files hold, decoded here."""
    data = b"".join(base64.b64decode(handed_over(FOLDER / part["name"])) for part in layout["parts"])
    floats = np.frombuffer(data, "<f4", layout["floats"])
    shorts = np.frombuffer(data, "<i2", offset=floats.nbytes)
    tree = {}
    for name, tensor in layout["tensors"].items():
        shape, first = tensor["shape"], tensor["floats"]
        if len(shape) == 1:
            tree[name] = floats[first : first + shape[0]]
            continue
        integers = shorts[tensor["shorts"] : tensor["shorts"] + np.prod(shape)].reshape(shape)
        X = integers * floats[first : first + shape[0], None]
        turned = name.startswith("layers.") and name.endswith(".weight")
        tree[name] = np.ascontiguousarray(X.T if turned else X)
    return tree


@pytest.fixture(scope="module")
def rounded(model, read_back):
    return reference(model, unflatten(read_back))


# --- the files --------------------------------------------------------------------------------------------------------


def test_the_files_hold_the_whole_model_and_none_is_big(model, layout, read_back):
    ours = flatten(model.params)
    assert read_back.keys() == ours.keys()
    for name, X in ours.items():
        rows = np.abs(X).max(0 if name.startswith("layers.") else -1, keepdims=True)
        error = np.abs(read_back[name] - X)
        assert (error <= rows / 2**15).all() if X.ndim == 2 else (error == 0).all(), name
    assert sum(part["length"] for part in layout["parts"]) == layout["bytes"]
    sizes = {path.name: path.stat().st_size for path in FOLDER.glob("*.data.js")}
    print("\n".join(f"{name:24} {size:10,}" for name, size in sorted(sizes.items())), f"\nsum {sum(sizes.values()):,}")
    assert max(sizes.values()) < 5e6
    assert abs(sum(sizes.values()) / 1e6 - 61) < 0.5, "the page says 61 MB"
    assert handed_over(FOLDER / "vocabulary.data.js")[2748] == "yes"


def test_nothing_of_the_model_is_in_the_repository():
    assert sorted(path.suffix for path in SOURCES.iterdir()) == [".css"] + [".js"] * 6
    assert max(path.stat().st_size for path in SOURCES.iterdir()) < 40_000


def test_other_pages_load_nothing_of_it():
    for name in ("intro.html", "chapters/02_foundations/scaling.html", "search.html"):
        assert "explorer/" not in HTML.joinpath(name).read_text("utf-8"), name
    assert (
        PAGE.read_text("utf-8").count("_static/explorer/") == 6 + 1
    )  # scripts, picture; its style is in the one sheet


@functools.cache
def built():
    return BeautifulSoup(PAGE.read_text("utf-8"), "html.parser")


def equations():
    """The equations to which the page leads: the target's file and anchor."""
    links = built().select("article a.reference.internal[href*='#equation-']")
    return {urlsplit(link["href"]).fragment: PAGE.parent / unquote(urlsplit(link["href"]).path) for link in links}


STEPS = """eq:bert-embedding eq:head eq:self-projections eq:dot-score eq:scaled-dot-score eq:softmax eq:attention
eq:multi-head eq:sublayer-post-norm eq:layer-norm eq:feed-forward eq:gelu eq:mean-pool eq:unit-norm pf:cosine""".split()


@pytest.mark.parametrize("label", STEPS)
def test_each_step_leads_to_its_equation(label):
    anchor = "equation-" + label.replace(":", "-")
    text = equations()[anchor].read_text("utf-8")
    assert f'id="{anchor}"' in text


def test_the_labels_in_the_scripts_are_linked_from_the_page():
    text = "".join(path.read_text("utf-8") for path in SOURCES.glob("*.js"))
    asked = set(re.findall(r'equation\("([^"]+)"\)', text))
    assert asked == {"eq:dot-score", "eq:scaled-dot-score", "eq:softmax", "eq:attention"}
    assert asked <= set(STEPS)


def test_the_tags_in_the_twin_are_the_library_s():
    tags = set(re.findall(r"// (eq:[\w-]+)$", SOURCES.joinpath("twin.js").read_text("utf-8"), re.M))
    library = "".join(path.read_text("utf-8") for path in (ROOT / "lib/attnmath/numpy").glob("*.py"))
    assert len(tags) == 12
    assert {tag for tag in tags if not re.search(rf"# .*{tag}\b(?!-)", library)} == set()


# --- the twin, on a page that was opened from a disk ------------------------------------------------------------------


PACKED = """X => { // a Float32Array as base64, which passes to Python faster than a list
    const bytes = new Uint8Array(X.buffer, X.byteOffset, X.byteLength); let text = '';
    for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
    return btoa(text); }"""


def unpacked(text, *shape):
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)


@pytest.fixture(scope="module")
def disk(browser):
    """The explorer's own page by its file:// address."""
    page = browser.new_page()
    page.goto(PAGE.as_uri())
    page.evaluate(f"() => {{ window.packed = {PACKED}; }}")
    page.evaluate("async () => { window.worker = await Explorer.load(() => {}); }")
    yield page
    page.close()


@pytest.fixture(scope="module")
def answers(disk):
    """What the worker answers to each sentence."""
    ask = """async (text) => { const found = await worker.run(text);
        return { tokens: found.tokens, seconds: found.seconds, vector: packed(found.vector),
                 weights: found.layers.map(({ P }) => packed(P)) }; }"""
    found = []
    for sentence in SENTENCES:
        answer = disk.evaluate(ask, sentence)
        n = len(answer["tokens"])
        weights = np.array([unpacked(P, 12, n, n) for P in answer["weights"]])
        found.append((answer["tokens"], weights, unpacked(answer["vector"], 384), answer["seconds"]))
    return found


@pytest.mark.needs("browser")
def test_the_tokens_are_the_library_s(answers, published):
    assert [tokens for tokens, *_ in answers] == [tokens for tokens, *_ in published]
    assert "[UNK]" in answers[14][0] and len(answers[12][0]) > 9


@pytest.mark.needs("browser")
def test_the_weights_are_numpy_s(answers, published, rounded):
    worst = {}
    for name, references in (("published", published), ("rounded", rounded)):
        worst[name] = max(np.abs(P - Q).max() for (_, P, *_), (_, Q, _) in zip(answers, references, strict=True))
    print(worst)
    assert worst["published"] < PUBLISHED and worst["rounded"] < ROUNDED


@pytest.mark.needs("browser")
def test_the_sentence_vectors_are_numpy_s(answers, published, rounded):
    for (_, _, x, _), (_, _, y), (_, _, z) in zip(answers, published, rounded, strict=True):
        assert x @ y > 0.99999 and np.abs(x - z).max() < ROUNDED


@pytest.mark.needs("browser")
def test_how_long_twenty_tokens_take(answers):
    tokens, _, _, seconds = answers[18]
    assert len(tokens) == 20
    print(f"20 tokens: {seconds:.2f} s")
    assert seconds < 10, "a busy machine is slow, but not as slow as that"


ONE = """([text, from, to]) => { // the model with a fault, on this page itself: bytes as the worker would collect them
    const source = String(Explorer.twin);
    if (source.split(from).length !== 2) throw new Error('the fault does not fit once');
    const twin = (0, eval)('(' + source.replace(from, () => to) + ')');
    const { layout, bytes } = window.held, floats = new Float32Array(bytes.buffer, 0, layout.floats);
    const made = twin(layout.tensors, floats, new Int16Array(bytes.buffer, floats.byteLength));
    const { layers, vector } = made.forward(window.ids);
    return { weights: layers.map(({ P }) => packed(P)), vector: packed(vector) }; }"""

HOLD = """async () => { // the files once more, this time for the page
    const file = (name) => new Promise((resolve) => { const script = document.createElement('script'); let data;
        Explorer.receive = (found) => { data = found; }; script.onload = () => resolve(data);
        script.src = '../_static/explorer/' + name; document.head.append(script); });
    const layout = await file('layout.data.js'), bytes = new Uint8Array(layout.bytes);
    for (const { name, start } of layout.parts) {
        const binary = atob(await file(name));
        for (let i = 0; i < binary.length; i++) bytes[start + i] = binary.charCodeAt(i);
    }
    window.held = { layout, bytes }; }"""


@pytest.fixture(scope="module")
def faulty(disk, model):
    ids, _ = model.encode([TIRED])
    disk.evaluate(HOLD)
    disk.evaluate("(ids) => { window.ids = ids; }", ids[0].tolist())

    def run(old, new):
        found = disk.evaluate(ONE, [TIRED, old, new])
        n = ids.shape[1]
        return np.array([unpacked(P, 12, n, n) for P in found["weights"]]), unpacked(found["vector"], 384)

    return run


@pytest.mark.needs("browser")
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_twin_is_seen(name, faulty, rounded):
    _, expected, vector = rounded[SENTENCES.index(TIRED)]
    P, y = faulty(*FAULTS[name])
    error = max(np.abs(P - expected).max(), np.abs(y - vector).max())
    print(f"{name}: {error:.1e}")
    assert error > ROUNDED, "the comparison would let this pass"


@pytest.mark.needs("browser")
def test_without_a_fault_nothing_is_seen(faulty, rounded):
    """The way by which the faults are planted changes nothing by itself."""
    P, _ = faulty("const HEADS", "const HEADS")
    assert np.abs(P - rounded[SENTENCES.index(TIRED)][1]).max() < ROUNDED


@pytest.mark.needs("browser")
@pytest.mark.parametrize("name", ["none", *SLIPS])
def test_a_slip_of_the_tokenizer_is_seen(name, disk, published):
    old, new = SLIPS.get(name, ("const SPECIAL", "const SPECIAL"))
    found = disk.evaluate(
        """([vocabulary, texts, from, to]) => { const source = String(Explorer.tokenizer);
            if (source.split(from).length !== 2) throw new Error('it does not fit once');
            const made = (0, eval)('(' + source.replace(from, () => to) + ')')(vocabulary);
            return texts.map((text) => made.encode(text, 200).tokens); }""",
        [handed_over(FOLDER / "vocabulary.data.js"), SENTENCES, old, new],
    )
    assert (found == [tokens for tokens, *_ in published]) == (name == "none")


@pytest.mark.needs("browser")
def test_a_long_text_is_cut_and_said_to_be(disk, model):
    text = "word " * 100
    found = disk.evaluate("async (text) => { const { ids, cut } = await worker.run(text); return [ids, cut]; }", text)
    ids, _ = model.encode([text], max_tokens=64)
    assert found == [ids[0].tolist(), True]


# --- the page, from a server ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address():
    with serving(HTML) as started:
        yield f"{started}chapters/explorer.html"


LOAD = "Load the model"


@pytest.fixture(scope="module")
def reader(browser, address):
    """A page on which a reader has loaded the model and compared two sentences; what was asked for before and after."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, has_touch=True)
    page = context.new_page()
    page.asked, page.said = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("console", lambda message: page.said.append(message.text) if message.type == "error" else None)
    page.goto(address, wait_until="load")
    page.before = list(page.asked)
    page.get_by_role("button", name=LOAD).focus()
    page.keyboard.press("Enter")
    page.get_by_text("72 heads,").wait_for(timeout=60_000)
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("The cosine of the two").wait_for(timeout=20_000)
    yield page
    context.close()


def numbers(page, place, row):
    """The numbers in the row of a table whose first cell begins so."""
    for line in page.locator(f"[data-explorer={place}] tr").all():
        cells = line.locator("th, td").all_inner_texts()
        if cells[0].startswith(row):
            return [float(cell.replace("\u2212", "-")) for cell in cells[1:] if cell]
    raise AssertionError(f"{place} has no row {row}")


def of_numpy(model, sentence, layer, head):
    """Queries, keys, values and weights of one head, and its output, from the library."""
    ids, _ = model.encode([sentence])
    X, _ = an.bert_embedding(ids, model.params["embeddings"], 1e-12)
    join = functools.partial(an.sublayer, norm=functools.partial(an.layer_norm, eps=1e-12))
    for number in range(layer):
        X, _ = an.encoder_layer(X, model.params["layers"][str(number)], model.heads, join=join)
    part = slice(32 * head, 32 * head + 32)
    own = model.params["layers"][str(layer)]["attention"]
    Q, K, V = ((X[0] @ own[n]["weight"] + own[n]["bias"])[:, part] for n in ("query", "key", "value"))
    P, _ = an.softmax(Q @ K.T / np.sqrt(32))
    return Q, K, V, P, P @ V


@pytest.mark.needs("browser")
def test_nothing_heavy_is_loaded_before_it_is_asked_for(reader):
    assert reader.before and not [url for url in reader.before if url.endswith(".data.js")]
    assert sum(".data.js" in url for url in reader.asked) == len(list(FOLDER.glob("*.data.js")))
    hosts = {urlsplit(url).hostname for url in reader.asked if not url.startswith("blob:")}
    assert hosts == {"127.0.0.1"} and reader.said == []


@pytest.mark.needs("browser")
def test_every_number_from_query_to_output(reader, model):
    Q, K, V, P, O = of_numpy(model, TIRED, 3, 1)
    it, animal = 10, 2
    near = functools.partial(np.testing.assert_allclose, atol=4e-3, rtol=0)
    near(numbers(reader, "projections", "q of 11 it"), Q[it])
    for j in range(16):
        near(numbers(reader, "projections", f"k of {j + 1} "), K[j])
        score, scaled, raised, weight = numbers(reader, "weights", f"{j + 1} ")
        s = K @ Q[it]
        np.testing.assert_allclose(score, s[j], atol=0.03)
        near([scaled, raised, weight], [s[j] / 32**0.5, np.exp((s[j] - s.max()) / 32**0.5), P[it, j]], atol=6e-3)
        near(weight, P[it, j], atol=1e-3)
        near(numbers(reader, "output", f"v of {j + 1} "), [P[it, j], *V[j]])
    near(numbers(reader, "output", "output"), O[it])
    total, *products = numbers(reader, "score", "q · k")
    near(products, Q[it] * K[animal], atol=0.01)
    assert abs(total - sum(products)) < 0.02
    assert "From 11 it to 3 animal: 0.67" in reader.locator("[data-explorer=head]").inner_text()


@pytest.mark.needs("browser")
def test_a_chosen_head_query_and_key_are_shown(reader, model):
    Q, _, _, P, O = of_numpy(model, TIRED, 0, 2)
    reader.get_by_role("radio", name="head 1.3", exact=True).first.click()
    reader.get_by_role("radio", name="cross", exact=True).click()
    np.testing.assert_allclose(numbers(reader, "projections", "q of 7 cross"), Q[6], atol=4e-3)
    np.testing.assert_allclose(numbers(reader, "output", "output"), O[6], atol=4e-3)
    reader.get_by_role("button", name="8 the").click()
    assert f"From 7 cross to 8 the: {P[6, 7]:.3f}" in reader.locator("[data-explorer=head]").inner_text()
    for label, choice in (("Layer", "4"), ("Head", "2"), ("Query", "11 it"), ("Key", "3 animal")):
        reader.get_by_label(label, exact=True).select_option(choice)
    assert "Head 4.2, query 11 it" in reader.locator("[data-explorer=head]").inner_text()


@pytest.mark.needs("browser")
def test_what_moves_when_a_word_is_changed(reader, model, published):
    told = reader.locator("[data-explorer=change] [role=status]").inner_text()
    (_, P, x), (_, Q, y) = published[3], published[4]
    share = np.abs(P - Q).reshape(72, 16, 16).sum(-1).mean(-1) / 2
    cosine, moved = map(float, re.search(r"vectors is ([\d.]+);.*moved ([\d.]+) %", told).groups())
    assert abs(cosine - x @ y) < 1.1e-3 and abs(moved - 100 * share.mean()) < 0.11
    text = reader.locator(".explorer-found").inner_text()
    listed = re.findall(r"(\d)\.(\d+) \(([\d.]+) %\)", text)
    expected = np.argsort(-share)[:5]
    assert [12 * int(layer) + int(head) - 13 for layer, head, _ in listed] == expected.tolist()
    np.testing.assert_allclose([float(percent) for *_, percent in listed], 100 * share[expected], atol=0.2)
    alike = numbers(reader, "change", "14 tired → wide")[0]
    H = []
    for sentence in SENTENCES[3:5]:
        ids, mask = model.encode([sentence])
        H.append(an.bert(ids, model.params, 12, mask)[0][0, 13])
    assert abs(alike - H[0] @ H[1] / np.linalg.norm(H[0]) / np.linalg.norm(H[1])) < 2e-3


def test_what_the_page_says_of_its_sentences(model, published):
    text = built().select_one("article").get_text()
    weights = [P.reshape(72, *P.shape[-2:]) for _, P, _ in published]
    tired, wide = weights[3], weights[4]
    share = np.abs(tired - wide).sum(-1).mean(-1) / 2
    assert f"Only {100 * share.mean():.0f} %" in text and share.argmax() == 5 * 12 + 8
    assert f"head 6.9, moves {100 * share.max():.0f} %" in text
    special = tired[:, :, [0, -1]].sum(-1).mean(-1)
    assert f"{(special > 0.5).sum()} of the 72 heads" in text
    old, new = tired[37, 10], wide[37, 10]
    assert "animal 68 % of" in text and round(float(old[2]), 2) == 0.68
    assert f"{new[8]:.2f} instead of {old[8]:.2f}. But animal still gets {new[2]:.2f}" in text
    keys, key = (of_numpy(model, f"The {word} to the cabinet are on the table.", 3, 1)[3] for word in ("keys", "key"))
    assert np.unravel_index(np.abs(keys - key).argmax(), keys.shape) == (6, 2)
    assert f"{keys[6, 2]:.2f} for keys to {key[6, 2]:.2f} for key" in text
    before = [tired[2][i, i - 1] for i in range(2, 15)]
    assert min(before) > 0.9, "head 1.3 looks at the previous token"


@pytest.mark.needs("browser")
def test_a_word_that_becomes_more_tokens_counts_as_one(disk):
    """The rows of the merged maps still add up to 1, so that those of the difference add up to 0."""
    found = disk.evaluate("""async () => {
        const before = await worker.run('a tired animal'), after = await worker.run('a flabbergasted animal');
        const made = Explorer.moved(before, after, before.spans[1]);
        const difference = Array.from(made.heads[37].difference);
        return [before.tokens.length, after.tokens.length, made.tokens, difference, made.cosine]; }""")
    before, after, tokens, difference, cosine = found
    assert after > before == len(tokens) and tokens[2] == "tired → flabbergasted"
    D = np.array(difference).reshape(before, before)
    assert np.abs(D.sum(-1)).max() < 1e-5 < np.abs(D).max() and cosine < 0.99


@pytest.mark.needs("browser")
def test_by_keyboard(reader):
    """The arrows go from head to head and from token to token, and turn no page."""
    at = reader.url
    reader.locator("[data-explorer=heads] [aria-checked=true]").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft"):
        reader.keyboard.press(key)
    focused = "() => document.activeElement.getAttribute('aria-label')"
    assert reader.evaluate(focused) == "head 5.2"
    reader.keyboard.press("ArrowUp")
    reader.locator("[data-explorer=tokens] [aria-checked=true]").focus()
    reader.keyboard.press("ArrowLeft")
    assert "Head 4.2, query 10 because" in reader.locator("[data-explorer=head]").inner_text()
    reader.keyboard.press("ArrowRight")
    for place in ("tokens", "heads"):
        assert reader.locator(f"[data-explorer={place}] [tabindex='0']").count() == 1
    assert reader.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert reader.url == at


@pytest.mark.needs("browser")
def test_on_a_phone(reader):
    reader.set_viewport_size({"width": 390, "height": 844})
    assert reader.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 1
    button = reader.locator("[data-explorer=heads] [role=radio]").nth(27)
    box = button.bounding_box()
    assert min(box["width"], box["height"]) >= 24
    button.tap()
    assert "Head 3.4," in reader.locator("[data-explorer=head]").inner_text()
    reader.get_by_role("button", name="Lines").tap()
    reader.locator(".explorer-lines text", has_text="because").first.tap()
    assert "query 10 because" in reader.locator("[data-explorer=head]").inner_text()
    reader.get_by_role("button", name="Matrix").tap()
    reader.locator("[data-explorer=heads] [role=radio]").nth(37).tap()
    reader.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.needs("browser")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_accessibility(theme, reader):
    """axe finds nothing on the page with everything shown; the maps take the theme's colours."""
    from axe_playwright_python.sync_playwright import Axe

    reader.emulate_media(reduced_motion="reduce")  # no colour on its way from one theme to the other
    reader.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
    ink = """() => [...document.querySelector('[data-explorer=heads] canvas').getContext('2d')
        .getImageData(0, 0, 1, 1).data]"""
    red, _, blue, _ = reader.evaluate(ink)
    assert (red > 100) == (theme == "dark") and blue > red
    found = Axe().run(reader).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:160]) for v in found] == []


@pytest.mark.needs("browser")
def test_a_file_that_is_missing_is_told_and_tried_again(browser, address):
    page = browser.new_page()
    page.route("**/weights-00.data.js", lambda route: route.abort())
    page.goto(address)
    page.get_by_role("button", name=LOAD).click()
    page.get_by_text("weights-00.data.js could not be loaded").wait_for(timeout=20_000)
    assert page.get_by_role("button", name=LOAD).is_enabled()
    page.close()


@pytest.mark.needs("browser")
def test_without_javascript(browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(PAGE.as_uri())
    said = page.locator("[data-explorer=ask] + noscript p")  # Playwright's search for a text leaves out noscript
    assert said.is_visible() and "JavaScript is switched off" in said.inner_text()
    assert page.locator(".explorer-still img").is_visible()
    assert page.get_by_role("button", name=LOAD).count() == 0
    context.close()
