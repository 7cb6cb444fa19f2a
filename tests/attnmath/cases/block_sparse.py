"""The rows of block-sparse attention: layouts of several kinds, tiles that do not fit, masks beside them."""

import numpy as np
import torch
import torch.nn.functional as F

from attnmath import layouts as L
from tests.attnmath.cases.case import HEADS, B, Case, K, V, const, draw

N, M, SIZE = 11, 17, 4  # three strips and five columns of tiles, the last of each cut
CASE = {
    "window": L.window(3),
    "causal": L.causal(),
    "strided": L.strided(3),
    "fixed": L.fixed(5, 2),
    "longformer": L.longformer(2, [0, 13]),
    "bigbird": L.bigbird(3, width=0, ends=1, random=1),
    "sinks": L.sinks(2, 3),
}
TILES = np.random.default_rng(8).random((3, 5)) < 0.4
TILES[:, 1], TILES[0], TILES[0, 3] = True, False, True
MASK = np.random.default_rng(9).random((HEADS, N, M)) < 0.6
MASK[..., N // 2], MASK[..., 6:12:2] = True, True


def dense(Q, K, V, allowed, **options):
    """PyTorch's own attention with the layout written down as a mask; zeros for an empty row."""
    allowed = torch.from_numpy(np.array(np.broadcast_to(allowed, (*Q.shape[:-1], K.shape[-2]))))
    some = allowed.any(-1, keepdim=True)
    O = F.scaled_dot_product_attention(Q, K, V, attn_mask=allowed | ~some, **options)
    return O * some


def case(circumstance, layout, args, mask=True, vjp_atol=1e-12, allowed=None, **options):
    allowed = layout.mask(N, M) if allowed is None else allowed
    scale = {"scale": options["scale"]} if "scale" in options else {}

    def call(world, Q, K, V):
        given = True if mask is True else const(world, mask)
        own = layout if isinstance(layout, L.Layout) else const(world, layout)
        return world.block_sparse_attention(Q, K, V, given, layout=own, size=SIZE, **options)

    def reference(Q, K, V):
        return dense(Q, K, V, allowed & mask, **scale)

    return Case("block_sparse_attention", circumstance, args, call, reference, vjp_atol)


HEADED = draw((B, HEADS, N, K), (B, HEADS, M, K), (B, HEADS, M, V))
SIMPLE = draw((N, K), (M, K), (M, V))
WHOLE = TILES.repeat(SIZE, 0).repeat(SIZE, 1)[:N, :M]
ALONE = WHOLE & (np.arange(N) != 5)[:, None]

CASES = [
    *(case(name, layout, SIMPLE) for name, layout in CASE.items()),
    case("heads", CASE["longformer"], HEADED, scale=0.7),
    case("heads-mask", CASE["window"], HEADED, mask=MASK, empty_rows="zero"),
    case("tiles", TILES, HEADED, allowed=WHOLE),
    case("empty-row", TILES, SIMPLE, allowed=WHOLE, mask=np.arange(N)[:, None] != 5, empty_rows="zero"),
    case("shared-keys", CASE["sinks"], draw((B, HEADS, N, K), (M, K), (1, M, V))),
    case("one-key", L.everything(), draw((N, K), (1, K), (1, V)), allowed=np.ones((N, 1), bool)),
    case("no-batch", CASE["causal"], draw((0, HEADS, N, K), (0, HEADS, M, K), (0, HEADS, M, V))),
    case(
        "huge",
        CASE["fixed"],
        lambda rng: [x * X for x, X in zip((300, 300, 1), SIMPLE(rng), strict=True)],
        vjp_atol=1e-9,
    ),
]
