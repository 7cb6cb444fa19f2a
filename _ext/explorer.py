"""The files of the explorer: MiniLM in sixteen bits a number, as scripts that a page can load from a disk too.

A page that is opened from a disk may not fetch, but it may load a script. So the weights are written as scripts that
hand over pieces of base64, below _static/explorer and only there: the reader's browser asks for them after a click.
They come from the library's own loader. Beside them lie the vocabulary, the layout (which number belongs to which
tensor) and a picture of all heads for readers without JavaScript.

A row of a matrix is written as integers of sixteen bits and one factor in float32; biases and gains stay float32. Half
precision has the same size, but spends five of its bits on exponents that the numbers of a row do not need: it moves
the attention weights of a sentence by up to 2e-3, and the integers move them by up to 3e-4.

The scripts and the style sheet in _static/explorer are loaded by the explorer's page alone.
"""

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np

PAGE = "chapters/explorer"
SENTENCE = "The animal didn't cross the street because it was too tired."
LARGEST = 2**15 - 1
PART = 3 * 2**20  # bytes of weights in one file, a multiple of 3: base64 needs no padding then
CELL = 4  # pixels of the picture for one weight
GAP = 8  # pixels between two maps
MATRIX = re.compile(r"layers\..*\.weight")


def data_script(value) -> str:
    return f"Explorer.receive({json.dumps(value, ensure_ascii=False, separators=(',', ':'))});\n"


def by_rows(params) -> dict:
    """The tensors as they are written: matrices of layers have one row for each output."""
    from attnmath.tree import flatten

    return {name: X.T if MATRIX.fullmatch(name) else X for name, X in flatten(params).items()}


def rounded(X) -> tuple[np.ndarray, np.ndarray]:
    """Integers of sixteen bits and one factor for each row; their product is nearly X."""
    factors = (np.abs(X).max(-1, keepdims=True) / LARGEST).astype(np.float32)
    return np.rint(X / np.where(factors == 0, 1, factors)).astype("<i2"), factors[:, 0]


def weight_files(params) -> dict[str, str]:
    """The names and texts of the layout and of the weights' parts: first all float32, then all integers."""
    tensors, floats, shorts, float_count, short_count = {}, [], [], 0, 0
    for name, X in by_rows(params).items():
        tensors[name] = {"shape": X.shape, "floats": float_count}
        if X.ndim == 2:
            integers, X = rounded(X)
            tensors[name]["shorts"] = short_count
            shorts.append(integers.tobytes())
            short_count += integers.size
        floats.append(X.astype("<f4").tobytes())
        float_count += X.size
    data, files, parts = b"".join(floats + shorts), {}, []
    for number, first in enumerate(range(0, len(data), PART)):
        part, name = data[first : first + PART], f"weights-{number:02}.data.js"
        files[name] = data_script(base64.b64encode(part).decode())
        parts.append({"name": name, "start": first, "length": len(part)})
    layout = {"tensors": tensors, "floats": float_count, "bytes": len(data), "parts": parts}
    return files | {"layout.data.js": data_script(layout)}


def vocabulary(tokenizer) -> list[str]:
    return [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]


def picture(model, sentence: str) -> np.ndarray:
    """Grey levels: a row for each layer, a map for each head, dark where the weight is large."""
    from attnmath.numpy import bert

    ids, mask = model.encode([sentence])
    record = {}
    bert(ids, model.params, model.heads, mask, record=record)
    layers = [layer["attention"]["weights"][0] for layer in record["layers"].values()]
    size = ids.shape[1] * CELL + GAP
    sheet = np.full((size * len(layers) - GAP, size * model.heads - GAP), 255, np.uint8)
    for row, heads in enumerate(layers):
        for column, P in enumerate(heads):
            shade = (235 * (1 - np.sqrt(P))).astype(np.uint8)  # no weight is not quite white: the map's outline shows
            tile = shade.repeat(CELL, 0).repeat(CELL, 1)
            sheet[row * size : row * size + len(tile), column * size : column * size + len(tile)] = tile
    return sheet


def _write(app, error):
    if error or app.builder.format != "html":
        return
    from PIL import Image

    from attnmath import minilm

    folder = Path(app.outdir) / "_static" / "explorer"
    folder.mkdir(parents=True, exist_ok=True)
    made_from = hashlib.sha256(Path(__file__).read_bytes() + minilm.SHA256.encode()).hexdigest()
    stamp = folder / "made-from.txt"
    if stamp.is_file() and stamp.read_text() == made_from:  # the stamp is written last
        return
    for old in folder.glob("*.data.js"):
        old.unlink()
    model = minilm.load()
    files = weight_files(model.params) | {"vocabulary.data.js": data_script(vocabulary(model.tokenizer))}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    Image.fromarray(picture(model, SENTENCE)).save(folder / "heads.png")
    stamp.write_text(made_from)


def _only_there(app, pagename, templatename, context, doctree):
    """Jupyter Book puts every script and style sheet below _static on every page; these are of use on one."""
    if pagename == PAGE:
        return
    for key in ("script_files", "css_files"):
        kept = [file for file in context.get(key, []) if "explorer/" not in str(getattr(file, "filename", file))]
        context[key] = kept


def setup(app):
    app.connect("html-page-context", _only_there, priority=900)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
