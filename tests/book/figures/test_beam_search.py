"""A beam search on the page's table: every beam by hand, and its best text by the library's search."""

import numpy as np
import pytest

from attnmath.decoding import beam_search, greedy

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]


class Model:
    """The page's table, as the library asks for it."""

    def __init__(self, table):
        self.table = table
        self.tokens = [*dict.fromkeys(token for row in table.values() for token in row), "<end>"]

    def after(self, word):
        return self.table.get(word, {"<end>": 1.0})

    def step(self, prefixes, rows, parents):
        p = np.zeros((len(prefixes), len(self.tokens)))
        for row, prefix in zip(p, prefixes.tolist(), strict=True):
            last = self.tokens[prefix[-1]] if len(prefix) > 1 else "because"
            for token, chance in self.after(last).items():
                row[self.tokens.index(token)] = chance
        with np.errstate(divide="ignore"):
            return np.log(p)

    def search(self, width, step, alpha):
        found, scores = beam_search(self.step, 0, len(self.tokens) - 1, 1, width, step, length_penalty=alpha)
        return " ".join(self.tokens[i] for i in found[0]), scores[0]

    def beams(self, width, steps):
        """What each step keeps and drops, from the definition: {text: probability}."""
        beam = {("because",): 1.0}
        for _ in range(steps):
            longer = {}
            for text, p in beam.items():
                if text[-1] == "<end>":
                    longer[text] = p
                else:
                    longer |= {(*text, token): p * chance for token, chance in self.after(text[-1]).items()}
            order = sorted(longer, key=longer.get, reverse=True)
            beam = {text: longer[text] for text in order[:width]}
            yield beam, {text: longer[text] for text in order[width:]}


def test_every_beam_is_that_of_the_definition(open_figure):
    figure = open_figure("beam-search")
    assert figure.data("start") == "because" and figure.data("end") == "<end>"
    model = Model(figure.data("table"))
    for width in range(1, 6):
        for step, (kept, dropped) in enumerate(model.beams(width, 5), 1):
            figure.turn(width=width, step=step, alpha=0)
            for name, want in (("kept", kept), ("dropped", dropped)):
                assert figure.shown(name).tolist() == [" ".join(text[1:]) for text in want]
                np.testing.assert_allclose(figure.shown(f"{name} probabilities"), list(want.values()), atol=1e-12)
            for text, p in (kept | dropped).items():
                assert f"“{' '.join(text[1:])}” {p:.3f}" in figure.said()
            marks = figure.root.locator("svg .word[font-weight='700']").all_text_contents()
            assert sorted(marks) == sorted(text[-1].strip("<>") for text in kept)
            crossed = [text for text in figure.root.locator("svg .chance").all_text_contents() if "✕" in text]
            assert len(crossed) == sum(len(gone) for _, gone in [*model.beams(width, step)])


def test_the_best_text_is_the_librarys(open_figure):
    figure = open_figure("beam-search")
    model = Model(figure.data("table"))
    for width, step, alpha in [(w, s, a) for w in (1, 2, 3, 5) for s in (1, 2, 3, 5) for a in (0, 0.5, 1.0, 1.5)]:
        figure.turn(width=width, step=step, alpha=alpha)
        text, score = model.search(width, step, float(figure.knob("alpha")))
        assert figure.shown("best").removesuffix(" <end>") == text
        np.testing.assert_allclose(figure.shown("scores").max(), score, atol=1e-12)
        assert f"with the score {score:.3f}" in figure.said().replace("−", "-")


def test_a_narrow_beam_loses_the_best_text_and_the_penalty_changes_the_winner(open_figure):
    figure = open_figure("beam-search")
    model = Model(figure.data("table"))
    lost = {}
    for width in range(1, 6):
        figure.turn(width=width, step=5, alpha=0)
        lost[width] = "has lost the most probable text, “of traffic <end>”" in figure.said()
    assert lost == {1: True, 2: False, 3: False, 4: False, 5: False}
    text = greedy(model.step, 0, len(model.tokens) - 1, 1, 5)[0][0]
    figure.turn(width=1)
    assert figure.shown("best") == " ".join([*(model.tokens[i] for i in text), "<end>"])
    figure.turn(width=2, alpha=0.92)
    assert figure.shown("best") == "of traffic <end>"
    figure.turn(alpha=0.94)  # ln(ln 0.192 / ln 0.36) / ln(5 / 3) = 0.938
    assert figure.shown("best") == "it was too tired <end>"
