"""BERT as `bert` and `masked_language_model`, and what RoBERTa shares with it."""

from attnmath.torch.hf import parts
from attnmath.torch.hf.converted import Converted


def layer(module):
    inner = module.attention.self
    return {
        "attention": parts.linears(inner, query="query", key="key", value="value")
        | parts.linears(module.attention.output, output="dense"),
        "attention_norm": parts.norm(module.attention.output.LayerNorm),
        "feed_forward": parts.linears(module.intermediate, up="dense") | parts.linears(module.output, down="dense"),
        "feed_forward_norm": parts.norm(module.output.LayerNorm),
    }


def convert(model, config, places=None):
    """``places(ids)`` are the positions where none are given; None counts from 0."""
    parts.only(config, is_decoder=False)
    table, activation = model.embeddings, parts.activation(config.hidden_act)
    embeddings = {
        "word": parts.words(table.word_embeddings),
        "position": parts.words(table.position_embeddings),
        "segment": table.token_type_embeddings.weight,
        "norm": parts.norm(table.LayerNorm),
    }

    def keywords(world, positions=None, segments=None):
        def embed(ids, params, eps):
            at = positions if positions is not None or places is None else places(ids)
            return world.bert_embedding(ids, params, eps, places=at, segments=segments)

        return {"embed": embed, "eps": config.layer_norm_eps} | parts.network(world, "feed_forward", activation)

    params = {"embeddings": embeddings} | parts.layers(model.encoder.layer, layer)
    return Converted("bert", params, config.num_attention_heads, keywords)


def convert_masked(model, config):
    """The tower, and the head that fills in blanks; a padding token's word vector has gradients from the head alone."""
    body, head, words = convert(model.bert, config), model.cls.predictions, model.bert.embeddings.word_embeddings
    own = {"transform": parts.linear(head.transform.dense), "norm": parts.norm(head.transform.LayerNorm)}
    own["bias"] = head.decoder.bias
    if head.decoder.weight is not words.weight or words.padding_idx is not None:
        own["table"] = head.decoder.weight

    def keywords(world, positions=None, segments=None):
        found = body.keywords(world, positions, segments)
        return found | {"activation": found["feed_forward"].keywords["activation"]}

    return Converted("masked_language_model", body.params | {"head": own}, config.num_attention_heads, keywords)


CONVERTERS = {"BertModel": convert, "BertForMaskedLM": convert_masked}
