"""What both sides follow of each other's objects: all that a test can see, at a cost that does not grow."""

import numpy as np
import pytest

from nbreferee.rpc import links
from nbreferee.rpc.links import Links
from tests.nbreferee.rpc.test_proxies import process, there  # noqa: F401

KEEPS = "import numpy as np\nkept = []\ndef f(x, g=None):\n    kept.append(x)\n    return x * 2\n"
DROPS = "import numpy as np\ndef f(x):\n    return x * 2\n"


@pytest.fixture
def looked(monkeypatch):
    """How often this side has looked at an object's elements."""
    count = [0]
    state = Links.state

    def counted(self, letter, value):
        count[0] += 1
        return state(self, letter, value)

    monkeypatch.setattr(Links, "state", counted)
    return count


@pytest.mark.parametrize("code", [DROPS, KEEPS], ids=["dropped there", "kept there"])
@pytest.mark.parametrize("keep", [False, True], ids=["dropped here", "kept here"])
def test_a_call_costs_the_same_however_many_came_before(there, looked, monkeypatch, code, keep):  # noqa: F811
    monkeypatch.setattr(links, "FEW", 8)
    monkeypatch.setattr(links, "RECENT", 8)
    there.may_change = False
    f, held, costs = there.run(code, "f"), [], []
    for i in range(90):
        before = looked[0]
        x = np.full(3, float(i))
        y = f(x)
        assert y.tolist() == [2 * i] * 3
        held += [x, y] if keep else []
        costs.append(looked[0] - before)
    assert max(costs[60:]) <= max(costs[20:40]) + 2 <= 60
    assert len(there.links) <= 30


def test_what_one_side_has_let_go_the_other_follows_no_more(there):  # noqa: F811
    f = there.run(DROPS, "f")
    held = [(x := np.full(3, float(i)), f(x)) for i in range(60)]
    assert len(there.links) <= 6 and len(held) == 60


def test_what_a_callback_is_given_is_not_looked_at_for_ever(there, looked):  # noqa: F811
    there.run("import numpy as np\ndef f(g, n):\n    return [g(np.full(3, float(i))) for i in range(n)]")
    f = there.value("f")
    costs = []
    for n in (10, 40, 80):  # the first is looked at once more: its answer is held for one question
        before = looked[0]
        assert f(lambda x: float(x.sum()), n) == [3.0 * i for i in range(n)]
        costs.append(looked[0] - before)
    assert costs[2] < 2.3 * costs[1]


def test_few_objects_are_followed_for_as_long_as_both_sides_have_them(there):  # noqa: F811
    f = there.run(KEEPS + "def last(): kept[0][0] = 7", "f")
    x = np.ones(3)
    f(x)
    others = [np.zeros(1) for _ in range(links.FEW // 2)]
    for each in others:
        f(each)
    there.value("last")()
    assert x.tolist() == [7, 1, 1]


def test_lists_of_a_callback_stay_one_until_the_question_ends(there):  # noqa: F811
    there.run("def f(g, h, n):\n    z = [1]\n    g(z)\n    for i in range(n): h([i])\n    z.append(2)\n    g(z)\n")
    for n in (0, 10, 3 * links.LISTS):
        seen = []
        there.value("f")(seen.append, lambda x: None, n)
        assert seen[1] == [1, 2] and (seen[0] is seen[1] or n > links.LISTS)


def test_large_arrays_in_all_are_followed_up_to_a_bound(there, monkeypatch):  # noqa: F811
    monkeypatch.setattr(links, "FOLLOWED_TOGETHER", 1 << 20)
    f, held = there.run(KEEPS, "f"), []
    for _ in range(12):
        held.append(np.ones(1 << 14))
        f(held[-1])
    f(np.ones(1))
    assert len(there.links) <= 12


def test_a_thing_let_go_and_had_again_is_the_same_number_of_things(there):  # noqa: F811
    """Either side may let go at any time: a message never names what the other has not."""
    there.run(
        "import random, numpy as np\nrandom.seed(1)\nkept = {}\n"
        "def f(x, g, depth):\n"
        "    key = random.randrange(6)\n"
        "    if random.random() < 0.5: kept[key] = x\n"
        "    if random.random() < 0.3: kept.pop(key, None)\n"
        "    if depth and random.random() < 0.7: g(kept.get(key, [np.ones(2)]), f, depth - 1)\n"
        "    return kept.get(key, [x])\n"
    )
    import random

    rng, f, mine = random.Random(2), there.value("f"), {}

    def g(y, f, depth):
        mine[rng.randrange(6)] = y
        if depth:
            f(mine.get(rng.randrange(6), [np.zeros(1)]), g, depth - 1)

    for _ in range(150):
        x = mine.get(rng.randrange(6)) if rng.random() < 0.5 else [np.ones(rng.randrange(1, 4))]
        y = f(x, g, 3)
        if rng.random() < 0.5:
            mine[rng.randrange(6)] = y
        if rng.random() < 0.1:
            there.forget()
    assert there.lost is None


def test_of_what_a_callback_returns_only_the_last_are_looked_at(there):  # noqa: F811
    """On the other side, which counts its own looks."""
    there.run(
        "import numpy as np, sys\n"
        "Links = sys.modules['nbreferee.rpc.links'].Links\n"
        "looks, state = [0], Links.state\n"
        "def counted(*args):\n    looks[0] += 1\n    return state(*args)\n"
        "Links.state = counted\n"
        "def f(g, n):\n    before = looks[0]\n    for i in range(n): g(i)\n    return looks[0] - before\n"
    )
    f = there.value("f")
    costs = [f(lambda i: np.full(3, float(i)), n) for n in (40, 80, 160)]
    assert costs[2] - costs[1] <= 2.2 * (costs[1] - costs[0]) <= 2.2 * 40 * (links.LENT + 4)
