"""Models of `transformers` as functions of this library: parameters renamed, transposed and, where needed, folded.

========================== =============== ==========================================================================
theirs                     ours            what the conversion does besides renaming
========================== =============== ==========================================================================
BertModel                  `bert`          transposes linear maps; leaves the pooler out
GPT2LMHeadModel            `decoder_only`  cuts the joint query-key-value map in three (it is not transposed there)
LlamaForCausalLM           `decoder_only`  transposes linear maps; rotary positions in the "half" pairing
T5ForConditionalGeneration `transformer`   transposes; scores are not scaled; multiplies the decoder's last gain by
                                           d^-1/2 if T5 scales its outputs by that
========================== =============== ==========================================================================

Weights tied there are one leaf here, unless a padding token's word vector gets no gradient there: then it gets none
here either. `transformers` itself is not imported: the model brings it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import torch
from torch import nn

from attnmath.tree import map_tree

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class Converted:
    """One of our functions with the parameters and options that make it equal to a model of `transformers`.

    Parameters
    ----------
    function : the function's name in both worlds: ``"bert"``, ``"decoder_only"`` or ``"transformer"``.
    params : its tree of parameters, tensors that are functions of the model's own, so that gradients reach those.
    heads : number of query heads.
    keywords : ``keywords(world)`` gives the function's keywords, with parts of `attnmath.numpy` or `attnmath.torch`.
    """

    function: str
    params: dict
    heads: int
    keywords: Callable

    def __call__(self, *ids, mask=None, params: dict | None = None, world=None, **options):
        """Call the function: on ids (source and target for an encoder-decoder) and a mask of tokens (of the source).

        In the NumPy world give arrays, with ``params=to_numpy(converted.params)``, and get the pair of value and vjp.
        Options go before the model's own: ``record``, ``cache`` or another ``attend``.
        """
        world = import_module("attnmath.torch") if world is None else world
        params = self.params if params is None else params
        f = getattr(world, self.function)
        return f(*ids, params, self.heads, mask, **self.keywords(world) | options)


def load_hf(model: nn.Module) -> Converted:
    """A model of `transformers`, with its weights, as a function of this library.

    Parameters
    ----------
    model : a ``BertModel``, ``GPT2LMHeadModel``, ``LlamaForCausalLM`` or ``T5ForConditionalGeneration``.

    Returns
    -------
    converted : call it on token ids; it gives hidden states (BERT) or logits, without dropout.

    Raises
    ------
    ValueError
        If the model is of another class, or its configuration asks for something that our function does not do.

    Examples
    --------
    >>> import torch
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> sizes = {"vocab_size": 11, "n_positions": 5, "n_embd": 4, "n_layer": 1, "n_head": 2, "eos_token_id": 0}
    >>> gpt2 = load_hf(GPT2LMHeadModel(GPT2Config(**sizes)))
    >>> gpt2(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 11])
    """
    name = type(model).__name__
    if name not in CONVERTERS:
        raise ValueError(f"model is a {name}; expected one of {', '.join(CONVERTERS)}")
    return CONVERTERS[name](model, model.config)


def _only(config, **wanted):
    """Refuse a configuration that our functions do not compute."""
    for name, value in wanted.items():
        if getattr(config, name, value) != value:
            raise ValueError(f"config.{name} is {getattr(config, name)!r}; only {value!r} can be converted")


def _activation(name):
    if name not in ACTIVATIONS:
        raise ValueError(f"the model's activation is {name!r}; expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _linear(module):
    """``nn.Linear`` keeps the transpose of our weight."""
    return {"weight": module.weight.T} | ({} if module.bias is None else {"bias": module.bias})


def _norm(module):
    return {"gain": module.weight} | ({"bias": module.bias} if getattr(module, "bias", None) is not None else {})


def _linears(owner, **names):
    return {ours: _linear(getattr(owner, theirs)) for ours, theirs in names.items()}


def _words(module):
    """The word vectors of an `nn.Embedding`: that of its padding token gets no gradient from there."""
    if module.padding_idx is None:
        return module.weight
    padding = torch.arange(len(module.weight), device=module.weight.device)[:, None] == module.padding_idx
    return torch.where(padding, module.weight.detach(), module.weight)


def _head(model, module):
    """Nothing if the head is tied to the word vectors, and these have the same gradients as the head."""
    tied = model.lm_head.weight is module.weight and module.padding_idx is None
    return {} if tied else {"head": _linear(model.lm_head)}


def _joint(world, norm, eps, norm_first=True):
    """The keywords of a model whose norms, the last one too, are of one kind."""
    norm = partial(getattr(world, norm), eps=eps)
    return {"norm": norm, "join": partial(world.sublayer, norm_first=norm_first, norm=norm)}


def _network(world, feed_forward, activation):
    return {"feed_forward": partial(getattr(world, feed_forward), activation=getattr(world, activation))}


def _layers(modules, convert):
    return {"layers": {str(i): convert(module) for i, module in enumerate(modules)}}


def _bert(model, config):
    _only(config, hidden_act="gelu", is_decoder=False)
    table = model.embeddings

    def layer(module):
        inner = module.attention.self
        return {
            "attention": _linears(inner, query="query", key="key", value="value")
            | _linears(module.attention.output, output="dense"),
            "attention_norm": _norm(module.attention.output.LayerNorm),
            "feed_forward": _linears(module.intermediate, up="dense") | _linears(module.output, down="dense"),
            "feed_forward_norm": _norm(module.output.LayerNorm),
        }

    embeddings = {
        "word": _words(table.word_embeddings),
        "position": table.position_embeddings.weight,
        "segment": table.token_type_embeddings.weight,
        "norm": _norm(table.LayerNorm),
    }
    params = {"embeddings": embeddings} | _layers(model.encoder.layer, layer)
    return Converted("bert", params, config.num_attention_heads, lambda world: {"eps": config.layer_norm_eps})


def _gpt2(model, config):
    _only(config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    body = model.transformer

    def conv(module):  # GPT-2's Conv1D keeps its weight as ours
        return {"weight": module.weight, "bias": module.bias}

    def layer(module):
        joint = map_tree(lambda P: P.chunk(3, -1), conv(module.attn.c_attn))
        thirds = {name: map_tree(lambda P, i=i: P[i], joint) for i, name in enumerate(("query", "key", "value"))}
        return {
            "attention": thirds | {"output": conv(module.attn.c_proj)},
            "attention_norm": _norm(module.ln_1),
            "feed_forward": {"up": conv(module.mlp.c_fc), "down": conv(module.mlp.c_proj)},
            "feed_forward_norm": _norm(module.ln_2),
        }

    embeddings = {"word": _words(body.wte), "position": body.wpe.weight}
    params = {"embeddings": embeddings, "norm": _norm(body.ln_f)} | _layers(body.h, layer) | _head(model, body.wte)
    activation = _activation(config.activation_function)

    def keywords(world):
        return _joint(world, "layer_norm", config.layer_norm_epsilon) | _network(world, "feed_forward", activation)

    return Converted("decoder_only", params, config.n_head, keywords)


def _llama(model, config):
    rope = config.rope_parameters
    if rope["rope_type"] != "default":
        raise ValueError(f"config.rope_parameters has rope_type {rope['rope_type']!r}; only 'default' can be converted")
    body = model.model

    def layer(module):
        inner = module.self_attn
        return {
            "attention": _linears(inner, query="q_proj", key="k_proj", value="v_proj", output="o_proj"),
            "attention_norm": _norm(module.input_layernorm),
            "feed_forward": _linears(module.mlp, gate="gate_proj", up="up_proj", down="down_proj"),
            "feed_forward_norm": _norm(module.post_attention_layernorm),
        }

    words = {"embeddings": {"word": _words(body.embed_tokens)}}
    params = words | {"norm": _norm(body.norm)} | _layers(body.layers, layer) | _head(model, body.embed_tokens)
    activation, turn = _activation(config.hidden_act), {"base": rope["rope_theta"], "pairing": "half"}

    def keywords(world):
        attention = partial(world.multi_head_attention, turn=partial(world.rotary, **turn))
        network = _network(world, "gated_feed_forward", activation)
        return _joint(world, "rms_norm", config.rms_norm_eps) | network | {"attention": attention}

    return Converted("decoder_only", params, config.num_attention_heads, keywords)


def _t5(model, config):
    def attention(module):
        return _linears(module, query="q", key="k", value="v", output="o")

    def layer(module):
        *attentions, network = module.layer
        dense = network.DenseReluDense
        names = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if config.is_gated_act else {"up": "wi", "down": "wo"}
        params = {"feed_forward": _linears(dense, **names), "feed_forward_norm": _norm(network.layer_norm)}
        params |= {"attention": attention(attentions[0].SelfAttention)}
        params |= {"attention_norm": _norm(attentions[0].layer_norm)}
        for cross in attentions[1:]:
            params |= {"cross_attention": attention(cross.EncDecAttention)}
            params |= {"cross_attention_norm": _norm(cross.layer_norm)}
        return params

    def stack(module):
        relative = module.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        return _layers(module.block, layer) | {"norm": _norm(module.final_layer_norm), "relative": relative}

    params = {
        "embeddings": {"word": _words(model.shared)},
        "encoder": stack(model.encoder),
        "decoder": stack(model.decoder),
    }
    if config.scale_decoder_outputs:
        params["decoder"]["norm"] = map_tree(lambda gain: config.d_model**-0.5 * gain, params["decoder"]["norm"])
    network = "gated_feed_forward" if config.is_gated_act else "feed_forward"
    activation, distance = _activation(config.dense_act_fn), config.relative_attention_max_distance

    def keywords(world):
        core = {"attend": partial(world.attention_fused, scale=1.0)}
        relative = {"relative": partial(world.relative_bias, distance=distance)}
        joint = _joint(world, "rms_norm", config.layer_norm_epsilon)
        return joint | _network(world, network, activation) | core | relative

    return Converted("transformer", params | _head(model, model.shared), config.num_heads, keywords)


CONVERTERS = {
    "BertModel": _bert,
    "GPT2LMHeadModel": _gpt2,
    "LlamaForCausalLM": _llama,
    "T5ForConditionalGeneration": _t5,
}


def load_nn(module: nn.Module) -> dict:
    """The parameters of an `nn.Transformer`, or of a part of it, as the trees of `encoder` and `decoder`.

    Parameters
    ----------
    module : an `nn.Transformer`, `nn.TransformerEncoder` or `nn.TransformerDecoder`, with biases or without; its norms
        are layer norms, and where they have no bias, ours is zero.

    Returns
    -------
    ``{"encoder", "decoder"}``, or the one tree of a stack; tensors that are functions of the module's own, so that
    gradients reach those.

    Raises
    ------
    ValueError
        If the module is another, or its layers are not those of PyTorch.

    Examples
    --------
    >>> import torch
    >>> trees = load_nn(nn.Transformer(6, 2, 1, 1, 17, batch_first=True))
    >>> trees["decoder"]["layers"]["0"]["cross_attention"]["query"]["weight"].shape
    torch.Size([6, 6])
    """

    if isinstance(module, nn.Transformer):
        return {"encoder": load_nn(module.encoder), "decoder": load_nn(module.decoder)}
    if not isinstance(module, nn.TransformerEncoder | nn.TransformerDecoder):
        raise ValueError(
            f"module is a {type(module).__name__}; expected an nn.Transformer, nn.TransformerEncoder or "
            "nn.TransformerDecoder"
        )
    stack = _layers(module.layers, _torch_layer)
    return stack if module.norm is None else stack | {"norm": _torch_norm(module.norm)}


def _torch_norm(module):
    bias = torch.zeros_like(module.weight) if module.bias is None else module.bias
    return {"gain": module.weight, "bias": bias}


def _torch_attention(module):
    weights = module.in_proj_weight.chunk(3)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    parts = zip(("query", "key", "value"), weights, biases, strict=True)
    leaves = {name: {"weight": W.T} | ({} if b is None else {"bias": b}) for name, W, b in parts}
    return leaves | {"output": _linear(module.out_proj)}


def _torch_layer(module):
    if not isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        raise ValueError(f"a layer is a {type(module).__name__}; only PyTorch's own layers can be converted")
    norms = ["attention_norm", "feed_forward_norm"]
    params = {"attention": _torch_attention(module.self_attn)}
    if hasattr(module, "multihead_attn"):
        norms.insert(1, "cross_attention_norm")
        params["cross_attention"] = _torch_attention(module.multihead_attn)
    params |= {name: _torch_norm(getattr(module, f"norm{i}")) for i, name in enumerate(norms, 1)}
    return params | {"feed_forward": _linears(module, up="linear1", down="linear2")}
