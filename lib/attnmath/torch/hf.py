"""Models of `transformers` as functions of this library: parameters renamed, transposed and, where needed, folded.

========================== =============== ==========================================================================
theirs                     ours            what the conversion does besides renaming
========================== =============== ==========================================================================
BertModel                  `bert`          transposes linear maps; leaves the pooler out
GPT2LMHeadModel            `decoder_only`  cuts the joint query-key-value map in three (it is not transposed there)
LlamaForCausalLM           `decoder_only`  transposes linear maps; rotary positions in the "half" pairing
T5ForConditionalGeneration `transformer`   transposes; multiplies query weights by the square root of the key width,
                                           because T5 does not divide scores by it; multiplies the decoder's last gain
                                           by d^-1/2 if T5 scales its outputs by that
========================== =============== ==========================================================================

Weights tied there are one leaf here. `transformers` itself is not imported: the model brings it.
"""

from dataclasses import dataclass
from functools import partial
from importlib import import_module

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
    options : its keywords; functions by name, and ``rotate`` as the keywords of `rotary`.
    """

    function: str
    params: dict
    heads: int
    options: dict

    def keywords(self, world) -> dict:
        """The options with each function's name replaced by the function, of `attnmath.numpy` or `attnmath.torch`."""
        options = dict(self.options)
        for name in ("activation", "norm", "feed_forward"):
            if name in options:
                options[name] = getattr(world, options[name])
        if "rotate" in options:
            options["rotate"] = partial(world.rotary, **options["rotate"])
        return options

    def __call__(self, *ids, mask=None, params: dict | None = None, world=None, record: dict | None = None):
        """Call the function: on ids (source and target for an encoder-decoder) and a mask of tokens (of the source).

        In the NumPy world give arrays, with ``params=to_numpy(converted.params)``, and get the pair of value and vjp.
        """
        world = import_module("attnmath.torch") if world is None else world
        params = self.params if params is None else params
        f = getattr(world, self.function)
        return f(
            *ids, params, self.heads, mask, **self.keywords(world), **({} if record is None else {"record": record})
        )


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


def _head(model, table):
    """Nothing if the head is tied to the table."""
    return {} if model.lm_head.weight is table else {"head": _linear(model.lm_head)}


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
        "word": table.word_embeddings.weight,
        "position": table.position_embeddings.weight,
        "segment": table.token_type_embeddings.weight,
        "norm": _norm(table.LayerNorm),
    }
    params = {"embeddings": embeddings} | _layers(model.encoder.layer, layer)
    return Converted("bert", params, config.num_attention_heads, {"eps": config.layer_norm_eps})


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

    embeddings = {"word": body.wte.weight, "position": body.wpe.weight}
    params = (
        {"embeddings": embeddings, "norm": _norm(body.ln_f)} | _layers(body.h, layer) | _head(model, body.wte.weight)
    )
    activation = _activation(config.activation_function)
    options = {"norm_first": True, "activation": activation, "eps": config.layer_norm_epsilon}
    return Converted("decoder_only", params, config.n_head, options)


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

    table = body.embed_tokens.weight
    params = (
        {"embeddings": {"word": table}, "norm": _norm(body.norm)} | _layers(body.layers, layer) | _head(model, table)
    )
    options = {
        "norm_first": True,
        "norm": "rms_norm",
        "eps": config.rms_norm_eps,
        "feed_forward": "gated_feed_forward",
        "activation": _activation(config.hidden_act),
        "key_heads": config.num_key_value_heads,
        "rotate": {"base": rope["rope_theta"], "pairing": "half"},
    }
    return Converted("decoder_only", params, config.num_attention_heads, options)


def _t5(model, config):
    def attention(module):
        leaves = _linears(module, query="q", key="k", value="v", output="o")
        return leaves | {"query": {"weight": config.d_kv**0.5 * leaves["query"]["weight"]}}

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

    table = model.shared.weight
    params = {"embeddings": {"word": table}, "encoder": stack(model.encoder), "decoder": stack(model.decoder)}
    if config.scale_decoder_outputs:
        params["decoder"]["norm"] = map_tree(lambda gain: config.d_model**-0.5 * gain, params["decoder"]["norm"])
    options = {
        "norm_first": True,
        "norm": "rms_norm",
        "eps": config.layer_norm_epsilon,
        "feed_forward": "gated_feed_forward" if config.is_gated_act else "feed_forward",
        "activation": _activation(config.dense_act_fn),
        "distance": config.relative_attention_max_distance,
    }
    return Converted("transformer", params | _head(model, table), config.num_heads, options)


CONVERTERS = {
    "BertModel": _bert,
    "GPT2LMHeadModel": _gpt2,
    "LlamaForCausalLM": _llama,
    "T5ForConditionalGeneration": _t5,
}


def load_nn(module: nn.Transformer) -> dict:
    """The parameters of an `nn.Transformer` as the trees of `encoder` and `decoder`.

    Parameters
    ----------
    module : any `nn.Transformer` with biases; its norms are layer norms.

    Returns
    -------
    ``{"encoder", "decoder"}``, tensors that are functions of the module's own, so that gradients reach those.

    Examples
    --------
    >>> import torch
    >>> trees = load_nn(nn.Transformer(6, 2, 1, 1, 17, batch_first=True))
    >>> trees["decoder"]["layers"]["0"]["cross_attention"]["query"]["weight"].shape
    torch.Size([6, 6])
    """

    def linear(weight, bias):
        return {"weight": weight.T, "bias": bias}

    def norm(m):
        return {"gain": m.weight, "bias": m.bias}

    def attention(m):
        parts = zip(("query", "key", "value"), m.in_proj_weight.chunk(3), m.in_proj_bias.chunk(3), strict=True)
        return {name: linear(W, b) for name, W, b in parts} | {"output": linear(m.out_proj.weight, m.out_proj.bias)}

    def layer(m):
        norms = ["attention_norm", "feed_forward_norm"]
        params = {"attention": attention(m.self_attn)}
        if hasattr(m, "multihead_attn"):
            norms.insert(1, "cross_attention_norm")
            params["cross_attention"] = attention(m.multihead_attn)
        params |= {name: norm(getattr(m, f"norm{i}")) for i, name in enumerate(norms, 1)}
        up, down = m.linear1, m.linear2
        return params | {"feed_forward": {"up": linear(up.weight, up.bias), "down": linear(down.weight, down.bias)}}

    def stack(m):
        return {"layers": {str(i): layer(x) for i, x in enumerate(m.layers)}, "norm": norm(m.norm)}

    return {"encoder": stack(module.encoder), "decoder": stack(module.decoder)}
