"""The shapes of the parameters of gated layers and of language models that have some; both worlds build from these."""

from collections.abc import Callable

from attnmath import shapes


def gated_sublayer_shapes(d: int, *, norm: Callable | None = None, gates: int = 1) -> dict:
    """A norm, and one gate (``gates=1``) or one for each component (``gates=d``).

    Examples
    --------
    >>> gated_sublayer_shapes(6)
    {'norm': {'gain': (6,), 'bias': (6,)}, 'gate': (1,)}
    """
    return {"norm": shapes.sublayer_shapes(d, norm=norm), "gate": (gates,)}


def gated_cross_attention_shapes(
    d: int, f: int, e: int | None = None, *, heads: int = 1, feed_forward: Callable | None = None, **joint
) -> dict:
    """Attention of rows of width d to pictures of width e (None: d), without biases, and a feed-forward network.

    Parameters
    ----------
    d, f, e, heads : the sizes.
    feed_forward : None for `feed_forward`.
    joint : ``norm`` and ``gates``, as in `gated_sublayer_shapes`.

    Examples
    --------
    >>> sizes = gated_cross_attention_shapes(6, 17, 5)
    >>> sizes["cross_attention"]["key"], sizes["feed_forward_norm"]["gate"]
    ({'weight': (5, 6)}, (1,))
    """
    across = {name: {"weight": leaf["weight"]} for name, leaf in shapes.attention_shapes(d, heads).items()}
    for name in ("key", "value"):
        across[name] = {"weight": (d if e is None else e, across[name]["weight"][1])}
    network = shapes.feed_forward_shapes(d, f) if feed_forward is None else shapes.of(feed_forward, d, f)
    own = gated_sublayer_shapes(d, **joint)
    return {"cross_attention": across, "cross_attention_norm": own, "feed_forward": network, "feed_forward_norm": own}


def flamingo_shapes(language: dict, gated: dict, layers=None) -> dict:
    """A language model's shapes with gated layers in front of some of its layers (None: of all).

    Parameters
    ----------
    language : `attnmath.shapes.decoder_only_shapes`.
    gated : `gated_cross_attention_shapes`, of one of them.
    layers : the numbers of the layers.

    Examples
    --------
    >>> language = shapes.decoder_only_shapes(11, 4, 8, layers=2, positions=5)
    >>> list(flamingo_shapes(language, gated_cross_attention_shapes(4, 8), [1])["gated"])
    ['1']
    """
    chosen = list(language["layers"]) if layers is None else [str(i) for i in layers]
    return language | {"gated": dict.fromkeys(chosen, gated)}
