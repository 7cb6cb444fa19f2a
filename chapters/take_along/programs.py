import numpy as np


def attend(scores, values):
    """Softmax attention of n queries over m keys: (n, m), (m, v) -> (n, v)."""
    P = np.exp(scores - scores.max(-1, keepdims=True))
    return P / P.sum(-1, keepdims=True) @ values


def count(selected, beta=30.0):
    """How many keys each query selects, (n, m) -> (n,), by one head with a start token.

    The start token has the score beta too. It alone has the value 1, so that the head
    puts out w = 1 / (1 + c + m exp(-beta)). It is right while m exp(-beta) < 1/2.
    """
    scores = beta * np.pad(selected.astype(float), ((0, 0), (1, 0)), constant_values=1)
    w = attend(scores, np.eye(scores.shape[1])[:, :1])[:, 0]
    edges = 1 / (np.arange(1, scores.shape[1]) + 0.5)  # a network of steps
    return (w[:, None] < edges).sum(-1)


def look_up(places, asked, values, beta=30.0):
    """The value at place t: the scores 2 t j - j^2 are largest for the place j = t."""
    scores = beta * (2 * np.outer(asked, places) - places**2)
    return attend(scores, values)


def histogram(text):
    """For each letter: how often does the text contain it?"""
    x = np.array(list(text))
    return count(x[:, None] == x)


def sort(numbers):
    """Two heads sort: the first counts smaller numbers, the second fetches by rank."""
    x, place = np.asarray(numbers, float), np.arange(len(numbers))
    smaller = x[None] < x[:, None]  # query i, key j
    tie = (x[None] == x[:, None]) & (place[None] < place[:, None])
    rank = count(smaller | tie)
    return look_up(rank, place, x[:, None])[:, 0]


def backwards(text):
    place, letters = np.arange(len(text)), np.array([[ord(x)] for x in text], float)
    return "".join(chr(round(x)) for x in look_up(place, place[::-1], letters)[:, 0])
