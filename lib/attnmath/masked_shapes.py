"""The shapes of the parameters of a masked language model, as trees; both worlds build and check theirs from these."""

from attnmath import shapes


def masked_head_shapes(d: int, t: int) -> dict:
    """The head of BERT: a linear map, a norm, and a bias for each token; its matrix is the table of the words.

    Parameters
    ----------
    d : width of the rows.
    t : size of the vocabulary.

    Examples
    --------
    >>> masked_head_shapes(4, 11)["transform"], masked_head_shapes(4, 11)["bias"]
    ({'weight': (4, 4), 'bias': (4,)}, (11,))
    """
    return {"transform": shapes.linear_shapes(d, d), "norm": shapes.norm_shapes(d), "bias": (t,)}


def masked_language_model_shapes(
    vocabulary: int, positions: int, segments: int, d: int, f: int, layers: int, **parts
) -> dict:
    """`attnmath.shapes.bert_shapes` and the head.

    Examples
    --------
    >>> list(masked_language_model_shapes(11, 5, 1, 4, 8, 2))
    ['embeddings', 'layers', 'head']
    """
    tower = shapes.bert_shapes(vocabulary, positions, segments, d, f, layers, **parts)
    return tower | {"head": masked_head_shapes(d, vocabulary)}
