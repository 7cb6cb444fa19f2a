"""An answer that changes what it is given is told so when it is done, and the test has its numbers back."""

import numpy as np
import pytest
import torch

from nbreferee.rpc.raised import Meddled, StudentError
from tests.nbreferee.rpc.test_proxies import process, there  # noqa: F401

STEPS = {
    "there and back": "x[i] += h; up = f(x); x[i] -= 2 * h; down = f(x); x[i] += h",
    "from what it was": "old = x[i]; x[i] = old + h; up = f(x); x[i] = old - h; down = f(x); x[i] = old",
    "one-sided": "down = f(x); x[i] += 2 * h; up = f(x); x[i] -= 2 * h",
}


@pytest.fixture
def strict(there):  # noqa: F811
    there.may_change = False
    return there


def gradient(step):
    body = "import numpy as np\ndef gradient(f, x, h=1e-5):\n    g = np.zeros_like(x)\n"
    body += "    for i in np.ndindex(*x.shape):\n"
    return body + f"        {step}\n        g[i] = (up - down) / (2 * h)\n    return g\n"


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_a_numerical_gradient_may_perturb_and_restore_its_argument(strict, step, scale):
    g = strict.run(gradient(step), "gradient")
    x = scale * np.random.default_rng(0).normal(size=(3, 2))
    before, seen = x.copy(), []

    def f(z):
        assert z is x
        seen.append(z.copy())
        return float((z**2).sum())

    found = g(f, x, 1e-5 * scale)
    assert np.allclose(found, 2 * before, rtol=1e-4, atol=1e-4 * scale), "the function has seen the steps"
    assert x.tobytes() == before.tobytes() and any((z != before).any() for z in seen)


def test_a_list_and_a_tensor_may_be_perturbed_and_restored_too(strict):
    strict.run("def f(g, x):\n    x[1] += 0.1\n    y = g(x)\n    x[1] -= 0.1\n    return y")
    f = strict.value("f")
    for x in ([0.7, 0.3], torch.tensor([0.7, 0.3]), torch.tensor([0.7, 0.3], dtype=torch.bfloat16)):
        seen = []
        f(lambda z: seen.append(float(z[1])), x)
        assert abs(seen[0] - 0.4) < 0.01 and abs(float(x[1]) - 0.3) < 1e-3
    assert x[1] == torch.tensor(0.3, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "change, x",
    [
        ("x[0] = 5", np.ones(2)),
        ("x += 1e-6", np.ones(2)),
        ("x[0] = 5", np.ones(2, int)),
        ("x[0] = 5", [1.0, 2.0]),
        ("x.append(1)", [1.0]),
        ("x['a'] = 2", {"a": 1}),
        ("x['b'] = 2", {"a": 1}),
        ("x.add(2)", {1}),
        ("x.add_(1)", torch.ones(2)),
        ("x[0] = float('nan')", np.ones(2)),
        ("x['y'][0] = 3", {"y": np.ones(2)}),
        ("x[0] = True", [1]),
    ],
    ids=repr,
)
def test_what_is_changed_in_the_end_is_told_and_undone(strict, change, x):
    f = strict.run(f"def f(x):\n    {change}\n    return 1", "f")
    before = repr(x)
    with pytest.raises(Meddled, match="work on a copy"):
        f(x)
    assert repr(x) == before
    g = strict.run("def g(x): return repr(x)", "g")
    assert g(x) == before, "the other side has the test's numbers again"


def test_what_was_undone_is_undone_on_both_sides(strict):
    f = strict.run("kept = []\ndef f(x):\n    kept.append(x)\n    x[0] += 5", "f")
    x = np.ones(2)
    with pytest.raises(Meddled):
        f(x)
    strict.run("def see(): return kept[0].tolist()")
    assert strict.value("see")() == [1, 1]


def test_a_change_is_undone_however_the_question_ends(strict):
    f = strict.run("def f(x, g):\n    x[0] = 9\n    g()\n    raise KeyError('k')", "f")
    x = np.ones(2)
    with pytest.raises(StudentError):
        f(x, lambda: None)
    assert x.tolist() == [1, 1]

    def fails():
        raise ZeroDivisionError

    with pytest.raises((Meddled, ZeroDivisionError)):
        f(x, fails)
    assert x.tolist() == [1, 1]


def test_what_the_function_of_a_test_writes_into_a_changed_argument_is_undone_too(strict):
    f = strict.run("def f(x, g):\n    x[0] += 1\n    g(x)\n    x[0] -= 1", "f")
    x = np.ones(2)

    def g(z):
        z[1] = 8

    with pytest.raises(Meddled):
        f(x, g)
    assert x.tolist() == [1, 1]


def test_to_want_a_gradient_is_no_change(strict):
    code = "import torch\ndef f(x):\n    x.requires_grad_(True)\n    (x ** 2).sum().backward()\n    return x.grad"
    f, x = strict.run(code, "f"), torch.tensor([1.0, 3.0])
    assert f(x).tolist() == [2, 6] and not x.requires_grad and x.tolist() == [1, 3]
    x.grad = None
    g = strict.run("def g(x):\n    x.requires_grad_()\n    return 2 * x", "g")
    assert g(x).sum().item() == 8


def test_what_a_function_of_the_test_returned_is_the_tests_even_if_the_answer_has_dropped_it(strict):
    """The sum of two gradients, written into the first, is a local variable: gone before the answer's function ends."""
    strict.run("def f(g):\n    one, two = g(1), g(2)\n    one += two\n    return float(one.sum())")
    kept = []

    def g(number):
        kept.append(np.full(3, float(number)))
        return kept[-1]

    with pytest.raises(Meddled):
        strict.value("f")(g)
    assert [a.tolist() for a in kept] == [[1, 1, 1], [2, 2, 2]]
