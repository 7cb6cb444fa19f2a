"""The page on compiled programs: every string up to a length against plain Python, and the bounds of each theorem."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath import programs
from attnmath.check import compare
from attnmath.tree import flatten, map_tree, unflatten

# plain programs, which know nothing of attention


def words(letters, longest, shortest=0):
    for n in range(shortest, longest + 1):
        yield from map("".join, itertools.product(letters, repeat=n))


def counts(word):
    return [0] + [Counter(word)[letter] for letter in word]


def verdicts(word, depth):
    found, open_, broken = ["balanced"], 0, False
    for bracket in word:
        open_ += 1 if bracket == "(" else -1
        broken |= not 0 <= open_ <= depth
        found.append("broken" if broken else "open" if open_ else "balanced")
    return found


def wrong(program, texts, want, **options):
    """How many texts of one length are answered wrongly anywhere, in one batch."""
    ids = np.stack([programs.numbers(program, text) for text in texts])
    answers = programs.logits(program, ids, **options).argmax(-1)
    return sum([program.answers[k] for k in row] != list(plain) for row, plain in zip(answers, want, strict=True))


def by_length(letters, longest):
    for n in range(1, longest + 1):
        yield n, list(words(letters, n, n))


def histogram_wrong(program, longest=6, **options):
    return sum(
        wrong(program, ["^" + w for w in texts], map(counts, texts), **options)
        for _, texts in by_length("abc", longest)
    )


def brackets_wrong(program, depth, longest=9, **options):
    return sum(
        wrong(program, ["^" + w for w in texts], [verdicts(w, depth) for w in texts], **options)
        for _, texts in by_length("()", longest)
    )


def writer_wrong(program, backwards, longest=4, **options):
    """Every step of the writing, read in one pass: row s + r says the letter r, and the last one the end."""
    bad = 0
    for n, texts in by_length("abc", longest):
        written = [w[::-1] if backwards else w for w in texts]
        ids = np.stack([programs.numbers(program, f"^{w}|{out}") for w, out in zip(texts, written, strict=True)])
        answers = programs.logits(program, ids, **options)[:, n + 1 :].argmax(-1)
        end = "^" if backwards else "|"
        got = ["".join(program.tokens[k] for k in row) for row in answers]
        bad += sum(line != out + end for line, out in zip(got, written, strict=True))
    return bad


# hard and soft


@pytest.mark.claim("lem-hard-soft", "pf:hard-soft")
@pytest.mark.parametrize("beta", [0.3, 1.0, 5.0, 40.0])
def test_soft_attention_is_near_hard_attention(beta, rng):
    for n, r in ((2, 1), (9, 1), (9, 4), (30, 7), (6, 6)):
        z = -rng.uniform(0.8, 3.0, n)
        best = rng.permutation(n)[:r]
        z[best] = 0.0
        gap = -z[z < 0].max() if r < n else 1.0
        V = rng.standard_normal((n, 3))
        P, _ = an.softmax(beta * z)
        outside = 1 - P[best].sum()
        delta = (n - r) / (r * np.exp(beta * gap) + n - r)
        assert outside <= delta + 1e-12
        assert delta <= (n - r) / r * np.exp(-beta * gap) + 1e-15
        compare(P[best], np.full(r, (1 - outside) / r), name="alike among the best", atol=1e-12)
        far = max((np.linalg.norm(v - V[best].mean(0)) for v in np.delete(V, best, 0)), default=0.0)
        assert np.linalg.norm(P @ V - V[best].mean(0)) <= delta * far + 1e-12
        z[z < 0] = -gap  # all others at the gap: nothing can be improved
        P, _ = an.softmax(beta * z)
        compare(1 - P[best].sum(), delta, name="reached", atol=1e-12)


# the histogram


@pytest.mark.claim("thm-program-histogram", "eq:program-histogram")
@pytest.mark.parametrize("beta", [3.5, 20.0])
def test_the_histogram_counts_in_all_short_texts(beta):
    """With beta = 3.5 five other letters are few enough, by the theorem: 5 exp(-3.5) < 1/4."""
    assert 5 * math.exp(-3.5) < 0.25
    assert histogram_wrong(programs.histogram("abc", 6, sharpness=beta)) == 0


@pytest.mark.claim("thm-program-histogram")
@pytest.mark.parametrize("beta", [1.0, 2.0, 4.0, 6.0])
def test_the_histogram_fails_at_the_predicted_letter(beta):
    """Right up to the last m with m exp(-beta) < 1/2, and wrong from the next on; the reading is c + m exp(-beta)."""
    last = math.ceil(math.exp(beta) / 2) - 1
    for c in (1, 2, 5):
        program = programs.histogram("ab", 9, sharpness=beta)
        for m, right in ((last, True), (last + 1, False), (2 * last + 5, False)):
            ids = programs.numbers(program, "^" + "a" * c + "b" * m)
            seen = {}
            Z = programs.logits(program, ids, record=seen)
            assert (Z[1].argmax() == c) == right
            weight = seen["layers"]["0"]["attention"]["weights"][0, 1, 0]
            compare(1 / weight - 1, c + m * math.exp(-beta), name="reading", atol=1e-9, rtol=1e-9)
            if m * math.exp(-beta) <= 0.25:
                compare(Z[1], np.eye(10)[c], name="exact", atol=1e-10)


@pytest.mark.claim("thm-program-histogram")
def test_at_the_top_of_its_table_it_can_not_count_too_far():
    program = programs.histogram("ab", 3, sharpness=1.0)
    assert programs.run(program, "^aaa" + "b" * 40)[1] == 3


@pytest.mark.claim("eq:program-histogram")
def test_each_step_of_the_table_turns_between_two_counts():
    """On for a reading of k and more, off for k - 3/4 and less, in the middle at k - 1/2."""
    program = programs.histogram("a", 12)
    net = program.params["layers"]["0"]["feed_forward"]
    share, rows = program.parts["share"], program.parts["at_least"]
    for k in range(1, 13):
        for reading, value in ((k, 1.0), (k + 3, 1.0), (k - 0.75, 0.0), (k - 1, 0.0), (k - 0.5, 0.5)):
            u = an.feed_forward(share / (1 + reading), net, an.relu)[0] @ rows[k - 1]
            compare(u[0], value, name=f"step {k} at {reading}", atol=1e-10)


# brackets


@pytest.mark.claim("thm-program-brackets", "eq:program-brackets")
@pytest.mark.parametrize("depth", [1, 2, 3, 9])
def test_brackets_are_judged_in_all_short_texts(depth):
    """Texts of up to 2 N = 10 tokens with N = 5; logits are exact."""
    assert brackets_wrong(programs.brackets(depth, 5), depth) == 0


@pytest.mark.claim("thm-program-brackets")
def test_as_many_are_balanced_as_there_are_paths_of_that_height():
    """Dyck paths of height at most 2 and 3: powers of 2, every other Fibonacci number; without a bound Catalan's."""
    known = {1: [1, 1, 1, 1], 2: [1, 2, 4, 8], 3: [1, 2, 5, 13], 9: [1, 2, 5, 14]}
    for depth, wanted in known.items():
        program = programs.brackets(depth, 6)
        for half, want in enumerate(wanted, 1):
            ids = np.stack([programs.numbers(program, "^" + w) for w in words("()", 2 * half, 2 * half)])
            assert (programs.logits(program, ids)[:, -1].argmax(-1) == 0).sum() == want


@pytest.mark.claim("thm-program-brackets")
@pytest.mark.parametrize("most", [4, 16, 40])
def test_brackets_are_right_to_twice_the_length(most, rng):
    """And the logits are 0, 1, 2 to rounding there; beyond, ()()() is soon called broken."""
    depth, texts = 3, []
    while len(texts) < 30:
        word, open_ = "", 0
        while len(word) < 2 * most - 1:
            up = rng.random() < 0.5 if 0 < open_ < depth else open_ == 0
            up ^= rng.random() < 0.02
            word, open_ = word + ")("[up], open_ + 2 * up - 1
        texts.append(word)
    program = programs.brackets(depth, most)
    assert wrong(program, ["^" + w for w in texts], [verdicts(w, depth) for w in texts]) == 0
    Z = programs.logits(program, np.stack([programs.numbers(program, "^" + w) for w in texts]))
    compare(Z, Z.round(), name="whole numbers", atol=1e-8)
    long = "()" * (2 * most)
    first = programs.run(program, "^" + long).index("broken")
    assert 2 * most < first <= 2 * most + 2 * math.sqrt(8 * most) + 4


# the writers


@pytest.mark.claim("thm-program-writer", "eq:program-writer")
@pytest.mark.parametrize("backwards", [False, True])
def test_the_writers_write_all_short_words(backwards):
    assert writer_wrong(programs.writer("abc", 12, backwards=backwards), backwards) == 0
    program = programs.writer("abc", 20, backwards=backwards)
    for word in ("", "a", "cabbac"):
        assert programs.write(program, word) == (word[::-1] + "^" if backwards else word + "|")


@pytest.mark.claim("thm-program-writer", "eq:program-writer-error")
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("sharpness", [(5.0, 2.0), (8.0, 4.0), (12.0, 20.0)])
def test_the_writers_err_no_more_than_the_bound(backwards, sharpness, rng):
    useful = 0
    for n in (1, 3, 8, 20, 60):
        word = "".join(rng.choice(list("abc"), n))
        out = word[::-1] if backwards else word
        program = programs.writer("abc", 2 * n + 3, backwards=backwards, sharpness=sharpness)
        seen = {}
        Z = programs.logits(program, programs.numbers(program, f"^{word}|{out}"), record=seen)[n + 1 :]
        end_weights, weights = (seen["layers"][i]["attention"]["weights"][0, n + 1 :] for i in "01")
        i, s, j = np.arange(n + 1, 2 * n + 2), n + 1, np.arange(2 * n + 2)
        target = 2 * s - i - 1 if backwards else i - s + 1
        asked = 2 * (end_weights @ j) - i - 1 if backwards else i - end_weights @ j + 1
        xi, delta = programs.writer_error(n, backwards, sharpness)
        compare(abs(asked - target).max(), xi, name="how far it misses the place", atol=1e-10, rtol=1e-9)
        assert abs(asked - target).argmax() == 0
        off = 1 - weights[np.arange(n + 1), target]
        assert (off <= delta + 1e-12).all()
        useful += delta < 0.5
        right = [program.tokens.index(c) for c in out + ("^" if backwards else "|")]
        lead = Z[np.arange(n + 1), right]
        assert (lead >= 10 * (1 - delta) - 1e-9).all()
        others = Z.copy()
        others[np.arange(n + 1), right] = 0
        assert others.max() <= 10 * min(delta, 1) + 1e-9
    assert useful >= 1


@pytest.mark.claim("thm-program-writer")
@pytest.mark.parametrize(("backwards", "first"), [(False, 148), (True, 104)])
def test_the_writers_fail_at_the_predicted_length(backwards, first):
    """From here on half of a place is missed, and the letter beside the right one is written."""
    for n in (first - 1, first):
        xi, _ = programs.writer_error(n, backwards, (10.0, 20.0))
        assert (xi >= 0.5) == (n == first)
        word = "a" * (n - 1) + "b" if backwards else "b" + "a" * (n - 1)
        program = programs.writer("ab", n + 2, backwards=backwards, sharpness=(10.0, 20.0))
        assert (programs.run(program, f"^{word}|")[-1] == "b") == (n < first)


# layers of programs, norms, and hard choices


def count_of_counts(letters, most, beta):
    """How many places have a letter that is as frequent as mine: the histogram, and a histogram of its answers."""
    t = len(letters) + 1
    parts = programs.stream(token=t, one=1, share=1, at_least=most, share2=1, at_least2=most)
    one_hot = np.eye(most) - np.eye(most, k=-1)  # at least k, and not k + 1
    start, same = np.eye(t)[:1], np.diag(np.arange(t) > 0)
    scores = {("token", "token"): beta * same, ("one", "token"): beta * start}
    again = {("at_least", "at_least"): beta * one_hot @ one_hot.T, ("one", "token"): beta * start}
    layers = []
    for of, share, table in ((scores, "share", "at_least"), (again, "share2", "at_least2")):
        steps = [
            ({share: [-1.0]}, 1 / (k + 0.5), 2 * (k + 0.25) * (k + 0.5), parts[table][k - 1])
            for k in range(1, most + 1)
        ]
        layers.append((programs.head(parts, of, {("token", share): start.T}), steps))
    counts = np.eye(most, most + 1, 1) - np.eye(most, most + 1)
    answer = parts["at_least2"].T @ counts + np.outer(parts["one"], np.eye(most + 1)[0])
    known = {"tokens": "^" + letters, "answers": tuple(range(most + 1)), "causal": False}
    return programs._program(parts, {"word": parts["token"] + parts["one"]}, layers, answer, **known)


@pytest.mark.claim("prop-program-layers")
@pytest.mark.parametrize("beta", [math.log(6 * 8 * 7 * 7.25), 30.0])
def test_errors_do_not_add_up_over_layers(beta):
    """The proposition's beta for 6 places: the steps are flat within 1/8 / ((N + 1) (N + 5/4)) of 1 / (1 + c)."""
    net = count_of_counts("abc", 6, beta).params["layers"]["0"]["feed_forward"]
    share = count_of_counts("abc", 6, beta).parts["share"]
    for c in range(1, 7):
        for off in (-1, 1):
            near = an.feed_forward(share * (1 / (1 + c) + off / (8 * 7 * 7.25)), net, an.relu)[0]
            compare(near, an.feed_forward(share / (1 + c), net, an.relu)[0], name=f"flat at {c}", atol=1e-9)
    program = count_of_counts("abc", 6, beta)
    for n, texts in by_length("abc", 5):
        want = []
        for word in texts:
            often = counts(word)[1:]
            want.append([Counter(often)[c] for c in often])
        ids = np.stack([programs.numbers(program, "^" + w) for w in texts])
        Z = programs.logits(program, ids)[:, 1:]
        compare(Z, np.eye(7)[np.array(want)], name=f"exact at length {n}", atol=1e-9)
    blunt = count_of_counts("abc", 6, 1.0)
    assert programs.run(blunt, "^aabbc")[1:] != [4, 4, 4, 4, 1]


@pytest.mark.claim("lem-program-norm", "pf:program-norm")
def test_layer_norm_of_the_stream_with_two_large_constants(rng):
    d, M = 7, 50.0
    for scale in (0.1, 3.0, 40.0):
        x = scale * rng.standard_normal(d)
        row = np.concatenate([x, -x, [M, -M]])
        Y, _ = an.layer_norm(row[None], np.full(16, M / np.sqrt(d + 1)), np.zeros(16), eps=1e-12)
        compare(Y[0], row / np.sqrt(1 + x @ x / M**2), name="norm", atol=1e-10, rtol=1e-10)


@pytest.mark.claim("lem-program-norm")
def test_the_programs_run_in_layers_with_norms():
    join = partial(an.sublayer, norm_first=True)
    assert histogram_wrong(programs.with_norms(programs.histogram("abc", 4)), 4, join=join) == 0
    assert brackets_wrong(programs.with_norms(programs.brackets(2, 5)), 2, 7, join=join) == 0
    assert writer_wrong(programs.with_norms(programs.writer("abc", 12)), False, 3, join=join) == 0
    plain = programs.writer("abc", 12)
    ids = programs.numbers(plain, "^cab|ca")
    Z = programs.logits(programs.with_norms(plain), ids, join=join)
    compare(Z[4:], programs.logits(plain, ids)[4:], name="the logits are those without norms", atol=1e-4)


@pytest.mark.claim("rem-program-sparsemax")
@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_with_sparsemax_the_histogram_is_right_at_every_length(beta):
    program = programs.histogram("ab", 5, sharpness=beta)
    for m in (1, 28, 500):
        Z = programs.logits(program, programs.numbers(program, "^aaa" + "b" * m), attend=an.sparsemax_attention)
        compare(Z[1], [0, 0, 0, 1, 0, 0], name="exact", atol=1e-9)


# one wrong weight


def planted(program, key, at, value):
    flat = flatten(map_tree(np.copy, program.params))
    flat[key][at] = value(flat[key][at])
    return replace(program, params=unflatten(flat))


def each_weight(program):
    """The places of all weights that are not zero, without those of words and positions that a text may not use."""
    for key, leaf in flatten(program.params).items():
        for at in zip(*np.nonzero(leaf), strict=True):
            yield key, at


def idle(program, texts, first=0):
    """Of all single weights, those that could be zero without any change in the logits or the stream of these texts."""

    def seen(p):
        answer = p.params["head"]["weight"]
        both = np.concatenate([answer, np.eye(len(answer))], -1)
        return programs.logits(replace(p, params=p.params | {"head": {"weight": both}}), ids)[:, first:]

    ids = np.stack([programs.numbers(program, text) for text in texts])
    want = seen(program)
    off = ((key, at, planted(program, key, at, lambda _: 0.0)) for key, at in each_weight(program))
    return [(key, at) for key, at, p in off if abs(seen(p) - want).max() < 1e-3]


@pytest.mark.slow
def test_no_weight_can_be_left_out():
    """Each weight set to 0, one at a time."""
    assert idle(programs.histogram("ab", 2), ["^aab", "^abb"]) == []
    assert idle(programs.brackets(1, 4), ["^(())()", "^)()(()", "^(((())"]) == []
    texts = ["ab", "ba"]
    unused = idle(programs.writer("ab", 6, backwards=True), [f"^{w}|{w[::-1]}" for w in texts])
    assert [key for key, _ in unused] == [  # how it would write |, which it never does
        "layers.1.attention.value.weight",
        "layers.1.attention.output.weight",
        "head.weight",
    ]


@pytest.mark.parametrize("fault", ["sign of a key", "slope", "start", "threshold"])
def test_a_wrong_weight_is_seen(fault):
    layer = "layers.0."
    cases = {
        "sign of a key": ("attention.key.weight", lambda W: -W),
        "slope": ("feed_forward.up.weight", lambda W: W / 9),
        "start": ("attention.value.weight", lambda W: W[::-1]),
        "threshold": ("feed_forward.up.bias", lambda b: b - 1),
    }
    key, change = cases[fault]
    program = programs.histogram("abc", 6)
    flat = flatten(program.params)
    flat[layer + key] = change(flat[layer + key])
    assert histogram_wrong(replace(program, params=unflatten(flat)), 4) > 0
