"""`can_look` says True exactly where a value can be read, and stands for the whole computation."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from attnmath.torch.look import can_look


class Asked:
    """A sum of squares that remembers what `can_look` said of its argument."""

    def __init__(self):
        self.answers = []

    def __call__(self, X):
        self.answers.append(can_look(X))
        return (X * X).sum()


def in_fake_mode(f, X):
    with FakeTensorMode() as mode:
        f(mode.from_tensor(X))


def outside_the_fake_mode(f, X):
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(X)
    f(fake)


def a_real_tensor_in_fake_mode(f, X):
    with FakeTensorMode(allow_non_fake_inputs=True):
        f(X)


def counting(f, X):
    with FlopCounterMode(display=False):
        f(X)


HIDDEN = {
    "vmap": lambda f, X: torch.func.vmap(f)(X),
    "grad under vmap": lambda f, X: torch.func.vmap(torch.func.grad(f))(X),
    "vmap under grad": lambda f, X: torch.func.grad(lambda X: torch.func.vmap(f)(X).sum())(X),
    "functionalize": lambda f, X: torch.func.functionalize(f)(X),
    "make_fx": lambda f, X: make_fx(f)(X),
    "make_fx, symbolic": lambda f, X: make_fx(f, tracing_mode="symbolic")(X),
    "jit.trace": lambda f, X: torch.jit.trace(lambda X: f(X), X, check_trace=False),
    "compile": lambda f, X: torch.compile(f, backend="eager", fullgraph=True)(X),
    "meta": lambda f, X: f(X.to("meta")),
    "fake": in_fake_mode,
    "fake, outside its mode": outside_the_fake_mode,
    "a real tensor in the fake mode": a_real_tensor_in_fake_mode,
}
SEEN = {
    "eager": lambda f, X: f(X),
    "grad": lambda f, X: torch.func.grad(f)(X),
    "jvp": lambda f, X: torch.func.jvp(f, (X,), (X,)),
    "hessian, which is jvp over vjp": lambda f, X: torch.func.jvp(torch.func.grad(f), (X,), (X,)),
    "checkpoint": lambda f, X: torch.utils.checkpoint.checkpoint(f, X, use_reentrant=False),
    "a counter of operations": counting,
}


# torch.jit is deprecated, but what it traces is still to be answered; torch.func.jvp uses it inside
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("name", "wanted"), [(n, False) for n in HIDDEN] + [(n, True) for n in SEEN])
def test_a_value_is_looked_at_where_there_is_one(name, wanted):
    asked = Asked()
    (HIDDEN | SEEN)[name](asked, torch.tensor([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]]))
    assert asked.answers == [wanted]


def test_one_hidden_tensor_hides_the_others():
    seen, hidden = torch.ones(2), torch.ones(2, device="meta")
    assert can_look(seen, seen) and not can_look(seen, hidden) and not can_look(hidden, seen)


def test_what_is_no_tensor_can_be_looked_at():
    assert can_look(True, np.ones(2), None)


def test_nothing_is_looked_at_when_nothing_is_given_while_a_graph_is_recorded():
    """A choice that needs no tensor's value, such as one by an array of NumPy's, is still not made in a graph."""
    f = make_fx(lambda X: X + 1 if can_look() else X * 5)(torch.ones(1))
    assert f(torch.ones(1)).item() == 5
