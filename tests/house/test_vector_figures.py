"""A kernel keeps each figure that it shows as vectors too, named by its pixels, and shows what it would show anyway."""

import base64
import hashlib

import nbformat
import pytest
from IPython.core import pylabtools
from matplotlib import pyplot as plt

import vector_figures
from attnmath import viz
from execution import execute_one

NOTEBOOK = (
    "import matplotlib.pyplot as plt\nfrom attnmath import viz\nviz.style()",
    "plt.plot([0, 1], label='one')\nplt.title('$x_1$')\nplt.legend();",
    "sorted(name for name in globals() if name[0] != '_')",
)


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """What shows a figure in this process, as a kernel does that keeps vectors, and the folder where they come."""
    monkeypatch.setattr(pylabtools, "retina_figure", pylabtools.retina_figure)
    vector_figures.keep(str(tmp_path / "figures"))
    with plt.rc_context():
        viz.style()
        yield lambda figure: pylabtools.retina_figure(figure, base64=True)[0], tmp_path / "figures"
        plt.close("all")


def figure():
    """One that is laid out a little differently each time, after the sizes of its letters; those of vectors differ."""
    drawn, (left, right) = plt.subplots(1, 2, figsize=(7, 2.3))
    left.plot([0, 1], [0, 30_000])
    left.set(title="a title", xlabel="$x_1$", ylabel="height")
    right.plot([0, 1], label="x")
    right.legend()
    return drawn


def svg(pixels, folder):
    return folder / f"{hashlib.sha256(base64.b64decode(pixels)).hexdigest()}.svg"


def test_a_figure_shown_again_looks_the_same(shown):
    show, folder = shown
    plain = figure()
    expected = [pylabtools.print_figure(plain, "retina", base64=True) for _ in range(2)]
    drawn = figure()
    assert [show(drawn) for _ in range(2)] == expected
    assert svg(expected[0], folder).exists()


def test_letters_are_outlines(shown):
    show, folder = shown
    text = svg(show(figure()), folder).read_text()
    assert "<path" in text and "<text" not in text


def test_what_is_large_stays_pixels(shown, monkeypatch):
    show, folder = shown
    monkeypatch.setattr(vector_figures, "LARGEST", 1000)
    assert show(figure()) and not folder.exists()


def test_an_empty_figure_is_not_shown(shown):
    assert pylabtools.retina_figure(plt.figure()) is None and not shown[1].exists()


@pytest.mark.slow
def test_a_notebook_leaves_its_figures(tmp_path):
    path = tmp_path / "chapters" / "page.ipynb"
    path.parent.mkdir()
    (tmp_path / "requirements.txt").touch()
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in NOTEBOOK]), path)
    _, notebook, _, _, error = execute_one(path, tmp_path)
    assert error is None
    (pixels,) = [output.data["image/png"] for output in notebook.cells[1].outputs if "image/png" in output.data]
    assert list((tmp_path / "_build" / "figures").iterdir()) == [svg(pixels, tmp_path / "_build" / "figures")]
    names = notebook.cells[2].outputs[0].data["text/plain"]
    assert names == "['In', 'Out', 'exit', 'get_ipython', 'open', 'plt', 'quit', 'viz']"
