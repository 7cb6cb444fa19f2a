"""Low-rank adaptation (LoRA): a linear map that stays as it is, and a change of it that is a product of two factors."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

import torch
from jaxtyping import Float
from torch import nn

from attnmath import _require
from attnmath._require.lora import chosen, rank
from attnmath.lora import lora_scale
from attnmath.torch.half import half_in_float32
from attnmath.torch.linear import linear
from attnmath.torch.modules import ParamTree
from attnmath.torch.types import Array
from attnmath.tree import unflatten


@half_in_float32
def lora_linear(
    X: Float[Array, "... n i"],
    W: Float[Array, "i o"],
    b: Float[Array, " o"],
    A: Float[Array, "... i r"],
    B: Float[Array, "... r o"],
    *,
    alpha: float = 1.0,
    stabilised: bool = False,
) -> Float[Array, "... n o"]:
    r"""An affine map of each row, plus a change of rank at most r, whose matrix is never formed.

    .. math:: Y = X W + b + s\,(X A)\, B,\qquad s = \alpha / r

    Parameters, errors and source as in `attnmath.numpy.lora.lora_linear`.

    Examples
    --------
    >>> X, W, b = torch.tensor([[1.0, 2.0]]), torch.eye(2), torch.zeros(2)
    >>> lora_linear(X, W, b, A=torch.ones(2, 1), B=torch.tensor([[0.0, 10.0]]))
    tensor([[ 1., 32.]])
    """
    specs = {"A": (A, "... i r"), "B": (B, "... r o")}
    sizes = _require.shapes(X=(X, "... n i"), W=(W, "i o"), b=(b, "o"), **specs)
    rank(sizes["r"], tuple(W.shape))
    s = lora_scale(sizes["r"], alpha, stabilised)
    return linear(X, W, b) + s * (X @ A) @ B  # eq:lora


@half_in_float32
def lora_merge(
    W: Float[Array, "i o"],
    A: Float[Array, "... i r"],
    B: Float[Array, "... r o"],
    *,
    alpha: float = 1.0,
    stabilised: bool = False,
) -> Float[Array, "... i o"]:
    r"""The adapter put into the matrix, after which the map costs what it did before.

    .. math:: W' = W + s\, A B

    Parameters, errors and source as in `attnmath.numpy.lora.lora_merge`.

    Examples
    --------
    >>> lora_merge(torch.eye(2), torch.ones(2, 1), torch.tensor([[0.0, 10.0]]))
    tensor([[ 1., 10.],
            [ 0., 11.]])
    """
    sizes = _require.shapes(W=(W, "i o"), A=(A, "... i r"), B=(B, "... r o"))
    rank(sizes["r"], tuple(W.shape))
    return W + lora_scale(sizes["r"], alpha, stabilised) * A @ B  # eq:lora-merge


@half_in_float32
def lora_unmerge(
    M: Float[Array, "... i o"],
    A: Float[Array, "... i r"],
    B: Float[Array, "... r o"],
    *,
    alpha: float = 1.0,
    stabilised: bool = False,
) -> Float[Array, "... i o"]:
    r"""The matrix without its adapter, up to rounding: what `lora_merge` did, undone.

    .. math:: W = W' - s\, A B

    Parameters, errors and source as in `attnmath.numpy.lora.lora_unmerge`.

    Examples
    --------
    >>> A, B = torch.ones(2, 1), torch.tensor([[0.0, 10.0]])
    >>> lora_unmerge(lora_merge(torch.eye(2), A, B), A, B)
    tensor([[1., 0.],
            [0., 1.]])
    """
    sizes = _require.shapes(M=(M, "... i o"), A=(A, "... i r"), B=(B, "... r o"))
    rank(sizes["r"], tuple(M.shape[-2:]), "M")
    return M - lora_scale(sizes["r"], alpha, stabilised) * A @ B


class LoRA(nn.Module):
    """A model whose parameters are frozen, with factors for some of its linear maps: the only numbers that are trained.

    The model's code and its numbers stay as they are. For each call the maps that have factors are read as W + s A B,
    so the values and the gradients are those of `lora_linear`.

    Parameters
    ----------
    model : a model of the library, whose linear maps are parameters named ``weight`` of shape (i, o). They get
        ``requires_grad = False``, all of them.
    r : the rank; 1 <= r <= min(i, o) of each map that is named.
    names : patterns of the names of parameters, such as ``"*.attention.*"``; a map gets factors if one fits.
    alpha, stabilised : give s, see `attnmath.lora.lora_scale`.

    Attributes
    ----------
    factors : what is trained, under the maps' names: A (i, r), with independent numbers of variance 1 / i, and B
        (r, o), zero at the start. ``factors.state_dict()`` is the adapter: save it, and load another's for another
        task.

    Raises
    ------
    ValueError
        If no map is named, or one cannot have a change of rank r.

    Examples
    --------
    >>> from attnmath.torch import DecoderOnly
    >>> model = DecoderOnly(11, 4, 2, 8, layers=2, positions=5)
    >>> adapted = LoRA(model, r=1, names=("*.query.*", "*.value.*"))
    >>> sum(P.numel() for P in adapted.parameters() if P.requires_grad)  # four maps of 4 x 4
    32
    >>> ids = torch.tensor([[3, 1, 4]])
    >>> bool((adapted(ids) == model(ids)).all())
    True
    """

    def __init__(
        self,
        model: nn.Module,
        r: int,
        names: Iterable[str] = ("*",),
        *,
        alpha: float = 1.0,
        stabilised: bool = False,
    ):
        super().__init__()
        patterns = (names,) if isinstance(names, str) else tuple(names)
        maps = {name: P for name, P in model.named_parameters() if name.endswith("weight") and P.ndim == 2}
        self.maps = tuple(name for name in maps if any(fnmatchcase(name, pattern) for pattern in patterns))
        chosen(self.maps, patterns, list(maps))
        shapes = {name: tuple(maps[name].shape) for name in self.maps}
        for name, (i, o) in shapes.items():
            rank(r, (i, o), name)
        self.scale = lora_scale(r, alpha, stabilised)
        self.model = model.requires_grad_(False)
        own = {f"{name.removesuffix('.weight')}": {"A": (i, r), "B": (r, o)} for name, (i, o) in shapes.items()}
        self.factors = ParamTree(unflatten(own))
        for name, P in self.factors.named_parameters():
            like = maps[f"{name.rpartition('.')[0]}.weight"]
            P.data = (torch.zeros_like(P) if name.endswith("B") else P.data).to(like)

    def merged(self) -> dict[str, torch.Tensor]:
        """W + s A B of each map that has factors, under its name; pass ``strict=False`` to ``load_state_dict``."""
        own = dict(self.factors.named_parameters())
        stems = [(name, name.removesuffix(".weight")) for name in self.maps]
        weights = dict(self.model.named_parameters())
        return {
            name: weights[name] + self.scale * own[f"{stem}.A"] @ own[f"{stem}.B"] for name, stem in stems
        }  # eq:lora-merge

    def forward(self, *args, **options):
        return torch.func.functional_call(self.model, self.merged(), args, options)
