"""A comparison names what makes it unfair, and refuses what its numbers do not entail."""

import pytest

from attnmath.comparisons import Comparison, Rival

FAIR = [({"rate": rate}, [score]) for rate, score in ((1e-3, 0.5), (3e-3, 0.8), (1e-2, 0.6))]
GOOD, BAD = [0.80, 0.81, 0.79], [0.40, 0.42, 0.41]


def compared(ours=None, theirs=None, claims=(("ours", ">", "theirs"),), **options):
    rivals = {"ours": ours or Rival(FAIR, GOOD), "theirs": theirs or Rival(FAIR, BAD)}
    return Comparison("ours and theirs", "share found", "higher", rivals, claims, **options)


def test_a_fair_one_has_no_fault():
    assert compared().faults() == []
    assert compared(theirs=Rival(test=[0.3], fixed="a formula")).faults() == []


@pytest.mark.parametrize(
    ("rivals", "options", "said"),
    [
        ({"theirs": Rival(FAIR[:2], BAD)}, {}, "theirs: 2 settings were tried, and 3 for a rival"),
        ({"theirs": Rival(FAIR[:2], BAD)}, {}, "theirs: 2 rates, which span a factor of 3"),
        (
            {
                "ours": Rival(
                    [(s, [r["rate"]]) for s, r in zip([f[0] for f in FAIR], [f[0] for f in FAIR], strict=True)], GOOD
                )
            },
            {},
            "ours: the best rate is the end of its grid, 0.01",
        ),
        ({"theirs": Rival(FAIR, BAD[:1])}, {}, "theirs: 1 of 3 seeds"),
        ({"theirs": Rival((), BAD)}, {}, "theirs: nothing was tuned"),
        ({}, {"chosen": "test"}, "settings are chosen on test"),
        ({}, {"chosen": "nothing"}, "settings are chosen on nothing"),
    ],
)
def test_an_unfair_one_is_named(rivals, options, said):
    assert said in compared(**rivals, **options).faults()


def test_the_end_of_a_grid_is_that_of_its_knob_with_all_others_equal():
    tried = [
        ({"rate": r, "order": o}, [s])
        for r, o, s in ((1e-3, "ab", 0.1), (1e-2, "ab", 0.2), (1e-1, "ab", 0.1), (1e-3, "ba", 0.3), (1e-2, "ba", 0.1))
    ]
    assert compared(theirs=Rival(tried, BAD)).faults() == [
        "theirs: 2 rates, which span a factor of 10",
        "theirs: the best rate is the end of its grid, 0.001",
    ]


def test_a_grid_may_end_at_a_score_that_cannot_be_surpassed():
    perfect = Rival([(setting, [1.0]) for setting, _ in FAIR], [1.0, 1.0, 1.0])
    assert "the end of its grid" in compared(perfect).faults()[0] and compared(perfect, ceiling=1.0).faults() == []


@pytest.mark.parametrize("claim", [("theirs", ">", "ours"), ("ours", "~", "theirs"), ("theirs", "~", "ours")])
def test_what_the_seeds_do_not_entail_is_refused(claim):
    with pytest.raises(ValueError, match="does not entail"):
        compared(claims=[claim])


def test_one_seed_that_crosses_is_enough_to_refuse():
    crossing = Rival(FAIR, [0.1, 0.2, 0.795])
    with pytest.raises(ValueError, match=r"0\.79 to 0\.81"):
        compared(theirs=crossing)
    assert compared(theirs=crossing, claims=[("ours", "~", "theirs")]).faults() == []


def test_lower_may_be_better():
    rivals = {"a": Rival(FAIR, BAD), "b": Rival(FAIR, GOOD)}
    assert Comparison("a and b", "loss", "lower", rivals, [("a", ">", "b")]).entails("a", ">", "b")


def test_only_a_fault_that_is_there_can_be_spoken_of():
    with pytest.raises(ValueError, match="said is 'ours: 1 of 3 seeds'"):
        compared(said={"ours: 1 of 3 seeds": "One seed was run."})


def test_what_is_shown_holds_the_data_and_a_table():
    page = compared()._repr_mimebundle_()["text/html"]
    assert page.count("<tr>") == 3 and "0.8 (0.79 to 0.81)" in page and '"tried":[[{"rate":0.001},[0.5]]' in page
