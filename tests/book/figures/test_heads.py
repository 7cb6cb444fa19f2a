"""Any head of MiniLM on a dozen sentences, against the weights that the library records."""

import functools

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath import minilm

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
LEAST = 0.02  # arcs of less are not drawn


@functools.cache
def by_the_library(sentence):
    """Tokens and the weights (layer, head, query, key) of a whole forward pass."""
    model, record = minilm.load(), {}
    ids, _ = model.encode([sentence])
    an.bert(ids, model.params, model.heads, record=record)
    P = [record["layers"][str(layer)]["attention"]["weights"][0] for layer in range(6)]
    return model.tokens(ids[0]), np.array(P, float)


def test_every_weight_on_the_page_is_the_models_in_whole_thousandths(open_figure):
    figure = open_figure("heads")
    sentences, packed = figure.data("sentences"), figure.data("weights")
    assert len(sentences) == len(packed) == 12
    for k, sentence in enumerate(sentences):
        tokens, P = by_the_library(sentence)
        assert figure.data("tokens")[k] == " ".join(tokens)
        thousandths = [int(packed[k][i : i + 2], 36) for i in range(0, len(packed[k]), 2)]
        np.testing.assert_allclose(np.reshape(thousandths, P.shape), 1000 * P, atol=0.51)


@pytest.mark.parametrize(
    ("sentence", "layer", "head", "word"),
    [(0, 4, 2, 10), (1, 4, 2, 10), (3, 2, 9, 0), (3, 3, 10, 17), (5, 1, 3, 8), (11, 6, 12, 4), (4, 2, 12, 4)],
)
def test_a_head_shows_its_weights_and_one_row_in_numbers(open_figure, sentence, layer, head, word):
    figure = open_figure("heads")
    figure.turn(sentence=sentence, layer=layer, head=head, word=word)
    tokens, P = by_the_library(figure.data("sentences")[sentence])
    P = P[layer - 1, head - 1]
    np.testing.assert_allclose(figure.shown("P"), P, atol=5.1e-4)
    np.testing.assert_allclose(1000 * figure.shown("P"), np.rint(1000 * figure.shown("P")), atol=1e-9)
    row = figure.shown("row")
    np.testing.assert_allclose(row, P[word], atol=5.1e-4)
    assert figure.root.locator("svg .entry").all_text_contents() == [f"{p:.3f}" for p in row]
    labels = figure.root.locator("svg [role=button]:visible").evaluate_all(
        "all => all.map((one) => one.ariaLabel ?? one.getAttribute('aria-label'))"
    )
    n = len(tokens)
    assert labels == [f"{tokens[i]}, word {i + 1} of {n}, gets {row[i]:.3f}" for i in range(n)]
    drawn, own = figure.shown("P") >= LEAST, np.eye(n, dtype=bool)
    assert figure.root.locator("svg .arc").count() == (drawn & ~own).sum()
    assert figure.root.locator("svg .self").count() == (drawn & own).sum()
    assert figure.root.locator("svg .arc.orange").count() == (drawn & ~own)[word].sum()
    key = row.argmax()
    rest = [i for i in range(1, n - 1) if tokens[i] not in (tokens[word], tokens[key])]
    np.testing.assert_allclose(figure.shown("others"), P[rest, key].mean(), atol=5.1e-4)
    assert figure.shown("key") == key
    said = figure.said()
    assert f"In head {layer}.{head} “{tokens[word]}” (word {word + 1}) looks most at “{tokens[key]}”" in said
    assert f"gives it {row[key]:.3f}" in said and f"“{tokens[key]}” {figure.shown('others'):.3f} on average" in said


def test_an_arc_goes_from_a_word_to_what_it_looks_at(open_figure):
    figure = open_figure("heads")
    figure.turn(layer=1, head=3, word=4, alone=True)  # the head of the token before
    arcs = figure.root.locator("svg .arc")
    assert arcs.count() == figure.root.locator("svg .arc.orange").count() == 1
    rows = figure.root.locator("svg [role=button]")
    middle = "one => +one.getAttribute('y') + one.getAttribute('height') / 2"
    y = [rows.nth(i).locator("rect").evaluate(middle) for i in (4, 3)]
    numbers = arcs.get_attribute("d").replace("M", "").replace("C", " ").split()
    assert (float(numbers[1]), float(numbers[-1])) == pytest.approx(y)
    edge = rows.nth(4).locator("rect").get_attribute("x")
    assert float(numbers[2]) < float(numbers[0]) == float(edge), "an arc that looks back bends to the left"


def test_the_page_begins_with_its_own_numbers(open_figure):
    said = open_figure("heads").said()
    assert "“it” (word 11) looks most at “animal” (word 3) and gives it 0.677" in said
    assert "give “animal” 0.099" in said


def test_a_word_is_chosen_by_finger_and_by_keyboard(open_figure):
    figure = open_figure("heads", width=390, has_touch=True)
    rows = figure.root.locator("svg [role=button]")
    figure._after_drawing(rows.nth(3).tap)
    assert figure.knob("word") == 3
    assert rows.nth(3).bounding_box()["height"] >= 20
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        rows.and_(figure.page.locator("[tabindex='0']")).focus()
        figure._after_drawing(lambda key=key: figure.page.keyboard.press(key))
    assert figure.knob("word") == 4
    assert figure.page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    figure.turn(word=15)
    figure.turn(sentence=11)  # eight tokens: the last one is chosen
    assert figure.knob("word") == 7 and "“[SEP]” (word 8)" in figure.said()
    assert figure.root.locator("svg [role=button]:visible").count() == 8
