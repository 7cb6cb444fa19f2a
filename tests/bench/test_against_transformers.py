"""The layers of Chapter 7 in PyTorch beside the same layers of transformers: forward, equal weights, float32."""

from functools import partial

import torch
from timing import ratio_of_times

import attnmath.torch as at
from attnmath.check import compare

GOAL = 1.1


def drawn(model):
    """The model with weights that keep numbers of size 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, leaf in model.named_parameters():
            if leaf.ndim > 1 and "A_log" not in name:
                leaf.copy_(torch.randn_like(leaf) * leaf.shape[-1] ** -0.5)
    return model.eval()


def rows(n, d):
    return torch.randn(1, n, d, generator=torch.Generator().manual_seed(1))


def timed(benchmark, ratios, name, ours, theirs, sizes, rounds=5):
    with torch.no_grad():
        compare(ours(), theirs(), name=f"what is timed, {name}", atol=1e-4)
        return ratio_of_times(benchmark, ratios, name, ours, theirs, GOAL, sizes, rounds)


def test_mixtral(benchmark, ratios):
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    d, wide, experts, n = 256, 512, 8, 1024
    sizes = dict(hidden_size=d, intermediate_size=wide, num_local_experts=experts, num_experts_per_tok=2)
    model = drawn(MixtralSparseMoeBlock(MixtralConfig(experts_implementation="eager", **sizes)))
    own = {}
    for i, (both, down) in enumerate(zip(model.experts.gate_up_proj, model.experts.down_proj, strict=True)):
        gate, up = both.chunk(2)
        own[str(i)] = {"gate": {"weight": gate.T}, "up": {"weight": up.T}, "down": {"weight": down.T}}
    params, X = {"router": {"weight": model.gate.weight.T}, "experts": own}, rows(n, d)
    ours, theirs = partial(at.mixture_of_experts, X, params, experts, 2), partial(model, X)
    sizes, name = {"n": n, "d": d, "experts": experts}, "torch mixture_of_experts / transformers, Mixtral"
    assert timed(benchmark, ratios, name, ours, theirs, sizes) <= GOAL


def test_mamba(benchmark, ratios):
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    d, n = 128, 512
    model = drawn(MambaMixer(MambaConfig(hidden_size=d, num_hidden_layers=1), 0))
    params = {
        "input": {"weight": model.in_proj.weight.T},
        "conv": {"weight": model.conv1d.weight[:, 0].T, "bias": model.conv1d.bias},
        "select": {"weight": model.x_proj.weight.T},
        "step": {"weight": model.dt_proj.weight.T, "bias": model.dt_proj.bias},
        "rate": model.A_log,
        "skip": model.D,
        "output": {"weight": model.out_proj.weight.T},
    }
    X = rows(n, d)
    ours, theirs = partial(at.mamba, X, params), partial(model, X)
    name = "torch mamba / transformers, torch path"
    assert timed(benchmark, ratios, name, ours, theirs, {"n": n, "d": d, "states": 16}) <= GOAL


def test_mamba2(benchmark, ratios):
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    d, heads, n = 256, 8, 1024
    sizes = dict(hidden_size=d, num_heads=heads, head_dim=2 * d // heads, state_size=64, n_groups=1, chunk_size=64)
    model = drawn(Mamba2Mixer(Mamba2Config(num_hidden_layers=1, expand=2, **sizes), 0))
    params = {
        "input": {"weight": model.in_proj.weight.T},
        "conv": {"weight": model.conv1d.weight[:, 0].T, "bias": model.conv1d.bias},
        "step": model.dt_bias,
        "rate": model.A_log,
        "skip": model.D,
        "norm": {"gain": model.norm.weight},
        "output": {"weight": model.out_proj.weight.T},
    }
    X = rows(n, d)
    ours, theirs = partial(at.mamba2, X, params), partial(model, X)
    name = "torch mamba2 / transformers, torch path"
    assert timed(benchmark, ratios, name, ours, theirs, {"n": n, "d": d, "heads": heads, "states": 64}) <= GOAL


def test_latent_attention(benchmark, ratios):
    """DeepSeek-V3's attention, whose eager form holds the weights; ours goes through PyTorch's kernel."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek_v3

    d, heads, rank, n, k, r = 256, 8, 64, 1024, 32, 16
    rope = {"rope_type": "default", "rope_theta": 1e4}
    config = DeepseekV3Config(
        hidden_size=d, num_attention_heads=heads, num_key_value_heads=heads, q_lora_rank=None, kv_lora_rank=rank,
        qk_nope_head_dim=k, qk_rope_head_dim=r, v_head_dim=k, rope_parameters=rope,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model, X = drawn(deepseek_v3.DeepseekV3Attention(config, 0)), rows(n, d)
    params = {
        "query": {"weight": model.q_proj.weight.T},
        "down": {"weight": model.kv_a_proj_with_mqa.weight.T},
        "norm": {"gain": model.kv_a_layernorm.weight},
        "up": {"weight": model.kv_b_proj.weight.T},
        "output": {"weight": model.o_proj.weight.T},
    }
    angles = deepseek_v3.DeepseekV3RotaryEmbedding(config)(X, torch.arange(n)[None])
    seen = at.causal_mask(n)
    hidden = torch.zeros(n, n).masked_fill(~seen, -torch.inf)[None, None]
    frequencies = at.rotary_frequencies(r)
    turn = partial(at.rotary, frequencies=frequencies)
    ours = partial(at.latent_attention, X, X, X, params, heads, seen, turn=turn)
    name, sizes = "torch latent_attention / transformers, DeepSeek-V3", {"n": n, "d": d, "heads": heads, "rank": rank}
    assert timed(benchmark, ratios, name, ours, lambda: model(X, angles, hidden)[0], sizes) <= GOAL
