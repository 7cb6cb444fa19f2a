"""How long the library takes, as a ratio to the best alternative in the same run, on one thread.

`make bench` runs this; `make test` does not, since time is not a property of the code alone. Rounds of the two
alternate, the shortest of each counts, and time is the processor's, so that what else the machine does falls on
neither. A row that misses is timed again before it is called missed. tests/conftest.py, which has every shape checked,
is left out of it.
"""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from timing import ratio_of_times
from torch import nn

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import corpus, minilm, shapes
from attnmath.check import compare
from attnmath.tree import flatten, map_tree

D, HEADS, TOKENS = 512, 8, 1024
LENGTHS = (64, 128, 256, 512, 1024, 2048)


class Layers:
    """One layer of multi-head self-attention in four versions, on the same random input and parameters."""

    def __init__(self, n):
        rng = np.random.default_rng(0)
        batch = max(1, TOKENS // n)
        self.sizes = {"batch": batch, "n": n, "d": D, "heads": HEADS}
        draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
        self.X, self.dO = draw(batch, n, D), draw(batch, n, D)
        self.params = map_tree(lambda shape: draw(*shape) * np.float32(D**-0.5), shapes.attention_shapes(D))
        self.x = torch.from_numpy(self.X.copy()).requires_grad_()
        self.do = torch.from_numpy(self.dO)
        self.tree = map_tree(lambda X: torch.from_numpy(X.copy()).requires_grad_(), self.params)
        self.module = nn.MultiheadAttention(D, HEADS, batch_first=True)
        inputs = [self.params[name] for name in ("query", "key", "value")]
        weights = {
            "in_proj_weight": np.concatenate([leaf["weight"].T for leaf in inputs]),
            "in_proj_bias": np.concatenate([leaf["bias"] for leaf in inputs]),
            "out_proj.weight": self.params["output"]["weight"].T,
            "out_proj.bias": self.params["output"]["bias"],
        }
        self.module.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})

    def numpy(self):
        return an.multi_head_attention(self.X, self.X, self.X, self.params, HEADS)

    def readable(self):
        return an.multi_head_sum(self.X, self.X, self.X, self.params, HEADS)

    def torch(self):
        return at.multi_head_attention(self.x, self.x, self.x, self.tree, HEADS)

    def eager(self):
        """The form that one writes down: the weights as a matrix, times the values."""
        q, k, v = (
            at.split_heads(F.linear(self.x, self.tree[name]["weight"].T, self.tree[name]["bias"]), HEADS)
            for name in ("query", "key", "value")
        )
        P = (q @ k.transpose(-1, -2) * (D // HEADS) ** -0.5).softmax(-1)
        output = self.tree["output"]
        return F.linear(at.merge_heads(P @ v), output["weight"].T, output["bias"])

    def torch_module(self):
        return self.module(self.x, self.x, self.x, need_weights=False)[0]

    def both_ways(self, forward):
        """Value and all gradients, in either world."""
        leaves = list(self.module.parameters()) if forward == self.torch_module else list(flatten(self.tree).values())
        y = forward()
        return y[1](self.dO) if isinstance(y, tuple) else torch.autograd.grad(y, [self.x, *leaves], self.do)

    def one_way(self, forward):
        with torch.no_grad():
            return forward()


@pytest.mark.parametrize("passes", ["one_way", "both_ways"])
@pytest.mark.parametrize("n", LENGTHS)
class TestMultiHeadAttention:
    def ratio(self, benchmark, ratios, n, passes, ours, theirs, goal, title, rounds=7):
        layers = Layers(n)
        ours, theirs = getattr(layers, ours), getattr(layers, theirs)
        values = [layers.one_way(forward) for forward in (ours, theirs)]
        values = [value[0] if isinstance(value, tuple) else value for value in values]
        compare(*values, name=f"what is timed, {title}", atol=1e-4)
        name = f"{title}, {'forward' if passes == 'one_way' else 'forward and backward'}"
        timed = [partial(getattr(layers, passes), forward) for forward in (ours, theirs)]
        return ratio_of_times(benchmark, ratios, name, *timed, goal, layers.sizes, rounds)

    def test_torch_against_its_own_module(self, benchmark, ratios, n, passes):
        title, goal = "torch multi_head_attention / nn.MultiheadAttention", 1.0
        assert self.ratio(benchmark, ratios, n, passes, "torch", "torch_module", goal, title) <= goal

    def test_numpy_against_eager(self, benchmark, ratios, n, passes):
        title, goal = "NumPy multi_head_attention / eager torch", 1.05
        assert self.ratio(benchmark, ratios, n, passes, "numpy", "eager", goal, title) <= goal

    def test_numpy_against_the_fused_module(self, benchmark, ratios, n, passes):
        title, goal = "NumPy multi_head_attention / nn.MultiheadAttention", 1.35
        assert self.ratio(benchmark, ratios, n, passes, "numpy", "torch_module", goal, title) <= goal

    def test_readable_form_beside_it(self, benchmark, ratios, n, passes):
        """No goal: it is there to be read, and its ratio to be known; that it computes the same is asserted."""
        title = "NumPy multi_head_sum / eager torch"
        assert self.ratio(benchmark, ratios, n, passes, "readable", "eager", None, title, rounds=3) > 0


def test_sentences_of_mixed_length(benchmark, ratios):
    """256 real sentences in NumPy against sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    sentences = corpus.sentences(240) + [text[: 80 * (i + 3)] for i, text in enumerate(corpus.lee().documents[:16])]
    ours = minilm.load()
    theirs = SentenceTransformer(str(minilm.locate()), device="cpu")
    words = [len(sentence.split()) for sentence in sentences]
    sizes = {"sentences": len(sentences), "words": f"{min(words)} to {max(words)}", "batch": 32}
    name = "NumPy MiniLM / sentence-transformers"
    embed = partial(theirs.encode, sentences, batch_size=32, show_progress_bar=False)
    compare(ours.embed(sentences), embed(), name="embeddings", atol=1e-5)
    ours, goal = partial(ours.embed, sentences), 1.15
    assert ratio_of_times(benchmark, ratios, name, ours, embed, goal, sizes, rounds=6) <= goal
