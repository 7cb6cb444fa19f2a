"""A mixture of experts: a router sends each token to a few of many networks; and the two losses that keep it even."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import experts as _ask
from attnmath.experts import mixture_shapes
from attnmath.shapes import declares, of
from attnmath.torch.feed_forward import gated_feed_forward
from attnmath.torch.half import half_in_float32
from attnmath.torch.linear import affine
from attnmath.torch.look import can_look
from attnmath.torch.modules import ParamTree
from attnmath.torch.types import Array


def dispatch(S: Float[Array, "... n e"], top: int, capacity: int | None = None) -> Bool[Array, "... n e"]:
    r"""Which experts process which tokens: those with a token's highest scores, as long as they have room.

    .. math:: C_{ti} = [\,i \text{ is among the } k \text{ highest scores of token } t\,]

    Parameters, errors and source as in `attnmath.numpy.experts.dispatch`. Where values cannot be looked at
    (`attnmath.torch.look.can_look`) scores that are not finite are not found.

    Examples
    --------
    >>> dispatch(torch.tensor([[3.0, 1.0, 2.0], [2.0, 0.0, 1.0]]), top=1, capacity=1).int()
    tensor([[1, 0, 0],
            [0, 0, 0]], dtype=torch.int32)
    """
    e = _require.shapes(S=(S, "... n e"))["e"]
    _ask.top(top, e)
    _ask.capacity(capacity)
    if can_look(S) and not (finite := torch.isfinite(S.detach())).all():
        at = (~finite).nonzero()[0].tolist()
        _ask.not_finite(at, S[tuple(at)].item())
    choices = torch.argsort(S.detach(), dim=-1, descending=True, stable=True)[..., :top]
    C = choices[..., None] == torch.arange(e, device=S.device)  # (..., n, top, e)
    if capacity is not None:
        queue = C.transpose(-3, -2).flatten(-3, -2)  # all first choices, then all second ones
        queue = queue & (queue.cumsum(-2) <= capacity)
        C = queue.unflatten(-2, (top, -1)).transpose(-3, -2)
    return C.any(-2)  # eq:dispatch


@half_in_float32
def top_k_gates(
    S: Float[Array, "... n e"], top: int = 2, capacity: int | None = None, *, renormalise: bool = True
) -> Float[Array, "... n e"]:
    r"""The weight of each expert in a token's output: a softmax over the chosen ones, zero elsewhere.

    .. math:: G_{ti} = \frac{C_{ti}\,\exp S_{ti}}{\sum_j C_{tj}\,\exp S_{tj}}
              \qquad\text{or}\qquad G_{ti} = \frac{C_{ti}\,\exp S_{ti}}{\sum_j \exp S_{tj}}

    Parameters, errors and source as in `attnmath.numpy.experts.top_k_gates`.

    Examples
    --------
    >>> top_k_gates(torch.tensor([[4.0, 1.0, 3.0, 2.0]]).log())
    tensor([[0.5714, 0.0000, 0.4286, 0.0000]])
    """
    C = dispatch(S, top)
    P = torch.softmax(S.masked_fill(~C, -torch.inf) if renormalise else S, -1)
    kept = C if capacity is None else dispatch(S, top, capacity)
    return P.masked_fill(~kept, 0)  # eq:top-k-gates


@declares(mixture_shapes)
def mixture_of_experts(
    X: Float[Array, "... n d"],
    params: dict,
    experts: int = 8,
    top: int = 2,
    *,
    expert: Callable = gated_feed_forward,
    renormalise: bool = True,
    capacity: int | None = None,
    record: list | None = None,
) -> Float[Array, "... n o"]:
    r"""Each token passes the few networks that a router chooses for it.

    .. math:: Y_t = \sum_{i:\,G_{ti}\ne0} G_{ti}\,E_i(X_t),\qquad G = \operatorname{gates}(X W_r)

    Parameters, errors and source as in `attnmath.numpy.experts.mixture_of_experts`. The scores in the record belong to
    the graph: add a loss of theirs to the loss. Where values cannot be looked at (`attnmath.torch.look.can_look`) every
    expert processes every token, and the gates choose among the values.

    Examples
    --------
    >>> one = {name: {"weight": torch.ones(1, 1)} for name in ("gate", "up", "down")}
    >>> params = {"router": {"weight": torch.tensor([[1.0, -1.0]])}, "experts": {"0": one, "1": one}}
    >>> mixture_of_experts(torch.tensor([[2.0]]), params, experts=2, top=1)
    tensor([[3.5232]])
    """
    _require.shapes(X=(X, "... n d"))
    _require.branches(params, ("router", "experts"))
    S = affine(X, params["router"])
    _ask.number(S.shape[-1], experts)
    names = tuple(map(str, range(experts)))
    _require.branches(params["experts"], names, name="params['experts']")
    G = top_k_gates(S, top, capacity, renormalise=renormalise)
    if record is not None:
        record.append({"scores": S, "gates": G})
    if not can_look(X, G):
        return sum(G[..., i, None] * expert(X, params["experts"][name]) for i, name in enumerate(names))
    rows, gates, Y = X.reshape(-1, X.shape[-1]), G.reshape(-1, experts), None
    for i, name in enumerate(names):
        (t,) = gates[:, i].detach().nonzero(as_tuple=True)  # the tokens of this expert, and no work for the others
        F = expert(rows[t], params["experts"][name])
        F = gates[t, i, None] * F
        Y = F.new_zeros(len(rows), F.shape[-1]) if Y is None else Y
        Y = Y.index_add(0, t, F.to(Y.dtype))  # eq:mixture
    return Y.reshape(*X.shape[:-1], Y.shape[-1])


@half_in_float32
def load_balance(S: Float[Array, "... n e"], top: int = 1) -> Float[Array, ""]:
    r"""The load of each expert times its mean probability, summed; 1 if the load is even.

    .. math:: L = e \sum_{i=1}^{e} f_i\,\bar P_i,\qquad f_i = \frac{1}{kn}\sum_t C_{ti},\quad
              \bar P_i = \frac1n \sum_t \operatorname{softmax}(S_t)_i

    Parameters, errors and source as in `attnmath.numpy.experts.load_balance`.

    Examples
    --------
    >>> load_balance(torch.tensor([[3.0, 1.0], [3.0, 1.0]]).log())
    tensor(1.5000)
    """
    C = dispatch(S, top)
    _require.nonempty("S", S.shape, -2, C[..., 0].numel(), "token")
    f = C.flatten(0, -2).to(S.dtype).mean(0) / top
    return S.shape[-1] * (f * torch.softmax(S, -1)).sum(-1).mean()  # eq:load-balance


@half_in_float32
def router_z_loss(S: Float[Array, "... n e"]) -> Float[Array, ""]:
    r"""The mean square of the log-sum-exp of the router's scores, which keeps them small.

    .. math:: L = \frac1n \sum_t \Bigl(\log \sum_i \exp S_{ti}\Bigr)^2

    Parameters, errors and source as in `attnmath.numpy.experts.router_z_loss`.

    Examples
    --------
    >>> router_z_loss(torch.tensor([[3.0, 1.0], [1.0, 3.0]]).log())
    tensor(1.9218)
    """
    dispatch(S, 1)  # for its checks
    _require.nonempty("S", S.shape, -2, S[..., 0].numel(), "token")
    return torch.logsumexp(S, -1).square().mean()  # eq:router-z-loss


class MixtureOfExperts(ParamTree):
    """`mixture_of_experts` that holds its parameters; options are its keywords."""

    def __init__(self, d: int, f: int, experts: int = 8, top: int = 2, **options):
        _ask.top(top, experts)
        kind = {"expert": options["expert"]} if "expert" in options else {}
        super().__init__(of(mixture_of_experts, d, f, experts=experts, **kind))
        self.options = {"experts": experts, "top": top} | options

    def forward(self, X, **options):
        return mixture_of_experts(X, self.tree(), **self.options | options)
