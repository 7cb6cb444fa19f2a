"""Numbers that a page shares with its interactive figure."""

import json
import re

import numpy as np
import pytest
import torch

from attnmath.interactive import share


def numbers(shared):
    html = shared._repr_mimebundle_()["text/html"]
    found = re.fullmatch(
        r'<script type="application/json" class="figure-data" data-kind="([\w-]+)">(.*)</script>', html, re.S
    )
    return found[1], json.loads(found[2])


def test_numbers_arrive_as_they_were_up_to_the_digits_that_are_kept():
    x = np.array([[1 / 3, -2e-7], [12345.678, 0.0]])
    kind, found = numbers(share("any-kind", x=x, t=torch.tensor([0.25], requires_grad=True), n=np.arange(3), on=x > 0))
    assert kind == "any-kind"
    assert found == {
        "x": [[0.33333, -2e-07], [12346.0, 0.0]],
        "t": [0.25],
        "n": [0, 1, 2],
        "on": [[True, False], [True, False]],
    }
    assert numbers(share("any-kind", digits=2, x=x))[1]["x"][0][0] == 0.33


def test_lists_words_and_dicts_stay_what_they_are():
    values = {"words": ["a</script>", "b"], "heads": [{"layer": 1, "weights": np.eye(2)}], "title": "é", "none": None}
    found = numbers(share("any-kind", **values))[1]
    assert found == {**values, "heads": [{"layer": 1, "weights": [[1.0, 0.0], [0.0, 1.0]]}]}


def test_words_cannot_end_the_script_that_holds_them():
    html = share("any-kind", words="</script><b>")._repr_mimebundle_()["text/html"]
    assert html.count("</script>") == 1 and html.endswith("</script>")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_json_does_not_know_is_refused(bad):
    with pytest.raises(ValueError, match="finite numbers only"):
        share("any-kind", x=np.array([1.0, bad]))
