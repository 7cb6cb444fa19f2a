"""Real news texts with human judgements of their similarity: the Lee corpus, from the data of the package gensim.

Fifty short news texts of the Australian Broadcasting Corporation, the mean similarity that people saw in each pair of
them, and three hundred longer articles without judgements. Nothing is downloaded, and gensim itself is not imported.
"""

import hashlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FILES = {
    "lee.cor": "a878f9a58f6743c32985c56c2f2f75988386216b38a4023a01fd3bcf7884d93e",
    "similarities0-1.txt": "23762bc6b728897144dda3d324a2c032dc1e059e1009806226d64b6dd123ed79",
    "lee_background.cor": "5d78d6dafd953bbf65797bef09a9ffb9ec430583381be705f8fd460000f370fb",
}


@dataclass(frozen=True)
class Lee:
    """The corpus.

    Attributes
    ----------
    documents : 50 texts of 45 to 126 words.
    similarity : (50, 50) symmetric, the mean rating of a pair from 0 (unrelated) to 1; the diagonal is 1.
    background : 300 longer articles.
    """

    documents: list[str]
    similarity: np.ndarray
    background: list[str]


def locate() -> Path:
    """The folder with the corpus, inside the installed package gensim.

    Raises
    ------
    FileNotFoundError
        If the package is not installed or lacks the files.
    """
    spec = importlib.util.find_spec("gensim")
    folder = Path(spec.origin).parent / "test" / "test_data" if spec else None
    if folder is None or not all((folder / name).is_file() for name in FILES):
        raise FileNotFoundError("the Lee corpus was not found; install it with `pip install gensim==4.4.0`")
    return folder


def lee() -> Lee:
    """Read and verify the corpus.

    Raises
    ------
    FileNotFoundError
        If the package gensim is not installed.
    ValueError
        If a file is not the published one.

    References
    ----------
    Lee, Pincombe and Welsh (2005): people agree with each other at a correlation of 0.605.

    Examples
    --------
    >>> corpus = lee()
    >>> len(corpus.documents), corpus.similarity.shape, len(corpus.background)
    (50, (50, 50), 300)
    """
    folder, text = locate(), {}
    for name, digest in FILES.items():
        data = (folder / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"{folder / name} is not the published file; install gensim==4.4.0 again")
        text[name] = data.decode("latin-1")  # a pound sign; otherwise ASCII
    ratings = np.array([line.split("\t") for line in text["similarities0-1.txt"].splitlines()], dtype=float)
    similarity = np.triu(ratings, 1)
    similarity = similarity + similarity.T + np.eye(len(ratings))
    return Lee(text["lee.cor"].splitlines(), similarity, text["lee_background.cor"].splitlines())


def sentences(count: int = 300, *, words: tuple[int, int] = (8, 60)) -> list[str]:
    """Sentences of the background articles, the first of each article first.

    A sentence ends with a full stop, question mark or exclamation mark before a capital or a figure; an
    abbreviation may end one too early.

    Parameters
    ----------
    count : how many.
    words : the least and the largest number of words.

    Raises
    ------
    ValueError
        If the articles have fewer such sentences.

    Examples
    --------
    >>> sentences(2)[1][:47]
    'Indian security forces have shot dead eight sus'
    """
    articles = [re.split(r"(?<=[.?!])\s+(?=[A-Z0-9\"])", article) for article in lee().background]
    fit = [[s for s in article if words[0] <= len(s.split()) <= words[1]] for article in articles]
    depth = max(map(len, fit))
    ordered = list(dict.fromkeys(article[i] for i in range(depth) for article in fit if i < len(article)))
    if not 0 < count <= len(ordered):
        raise ValueError(f"count is {count}; the corpus has {len(ordered)} sentences of {words[0]} to {words[1]} words")
    return ordered[:count]
