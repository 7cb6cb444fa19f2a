"""libFuzzer, by atheris, looks for bytes that a stranger could send and that do harm.

    python tests/nbreferee/fuzz.py codec|notebook SECONDS

What it may find: an error that is not the one agreed upon, an object of a type that the codec's table does not list, a
notebook that nbformat does not accept, five seconds without an answer, two gigabytes of memory. It ends with an error
then and leaves the bytes in a file.
"""

import sys

import atheris

with atheris.instrument_imports(include=["nbreferee"]):
    import nbformat
    import numpy as np

    from nbreferee.intake import notebook
    from nbreferee.rpc import codec

PLAIN = {
    type(None), bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, slice, type(...),
    np.ndarray, np.str_, np.bytes_,
}  # fmt: skip


def types(value):
    """The types of a value and of all that it holds."""
    yield type(value)
    inner = ()
    if isinstance(value, dict):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = value
    elif isinstance(value, slice):
        inner = (value.start, value.stop, value.step)
    for each in inner:
        yield from types(each)


def fuzz_codec(data):
    try:
        value = codec.decode(b"R1" + data)
    except codec.CodecError:
        return
    strangers = {kind for kind in types(value) if kind not in PLAIN and not issubclass(kind, np.generic)}
    assert not strangers, strangers
    codec.decode(codec.encode(value))


def fuzz_notebook(data):
    try:
        made, notes = notebook.read(data)
    except notebook.Refused as refusal:
        assert str(refusal).isprintable()
        return
    nbformat.validate(made)
    assert all(note.isprintable() for note in notes)


def main():
    target, seconds = {"codec": fuzz_codec, "notebook": fuzz_notebook}[sys.argv[1]], float(sys.argv[2])
    bounds = [f"-max_total_time={seconds:.0f}", "-timeout=5", "-rss_limit_mb=2048", "-max_len=4096"]
    atheris.Setup([sys.argv[0], *bounds, "-print_final_stats=1", *sys.argv[3:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
