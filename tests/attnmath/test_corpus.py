"""The Lee corpus: what it holds, and one clear line when it is missing or another file."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from attnmath import corpus, minilm


def test_fifty_documents_with_their_ratings():
    lee = corpus.lee()
    assert len(set(lee.documents)) == 50 and len(lee.background) == 300
    assert 45 <= min(len(text.split()) for text in lee.documents)
    assert max(len(text.split()) for text in lee.documents) <= 126
    np.testing.assert_array_equal(lee.similarity, lee.similarity.T)
    np.testing.assert_array_equal(np.diag(lee.similarity), 1)
    pairs = lee.similarity[np.triu_indices(50, 1)]
    assert 0 <= pairs.min() < 0.25 and 0.9 < pairs.max() <= 1
    # texts and ratings belong together: the pairs rated 1 are about Mugabe, a sentence in Nigeria, the Democrats
    for i, j, word in ((2, 37, "Mugabe"), (24, 25, "Nigeria"), (0, 13, "Democrats")):
        assert lee.similarity[i, j] == 1 and word in lee.documents[i] and word in lee.documents[j]


def test_sentences_are_sentences_and_come_in_one_order():
    some, more = corpus.sentences(20), corpus.sentences(500)
    assert more[:20] == some and len(set(more)) == 500
    assert all(8 <= len(sentence.split()) <= 60 for sentence in more)
    assert np.mean([sentence[0].isupper() or not sentence[0].isalpha() for sentence in more]) == 1
    articles = " ".join(corpus.lee().background)
    assert all(sentence in articles for sentence in more)


def test_too_many_sentences_are_refused():
    with pytest.raises(ValueError, match=r"count is 99999; the corpus has \d+ sentences of 8 to 60 words"):
        corpus.sentences(99999)
    with pytest.raises(ValueError, match="count is 0"):
        corpus.sentences(0)


def test_another_file_is_refused(tmp_path, monkeypatch):
    for name in corpus.FILES:
        shutil.copy(corpus.locate() / name, tmp_path / name)
    (tmp_path / "lee.cor").write_bytes((tmp_path / "lee.cor").read_bytes()[:-1])
    monkeypatch.setattr(corpus, "locate", lambda: tmp_path)
    with pytest.raises(ValueError, match=r"lee\.cor is not the published file; install gensim==4\.4\.0 again"):
        corpus.lee()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(corpus.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"pip install gensim==4\.4\.0"):
        corpus.lee()


def test_gensim_itself_is_not_imported():
    code = "import sys; from attnmath import corpus; corpus.sentences(3); print('gensim' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_embeddings_keep_the_order_of_the_sentences():
    """Batches are made by length, and their order is undone; a batch of one gives the same."""
    model, sentences = minilm.load(), corpus.sentences(7)
    together, alone = model.embed(sentences, batch=3), model.embed(sentences, batch=1)
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(model.embed(sentences[::-1]), together[::-1], atol=1e-6)
    assert np.abs(together @ together.T - np.eye(7)).max() > 0.01  # they differ, so that an order can be wrong
    with pytest.raises(ValueError, match="batch is 0; it must be > 0"):
        model.embed(sentences, batch=0)
