"""What figures are drawn with can be read on a light and on a dark page."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from attnmath import viz

ROOT = Path(__file__).parents[2]
LIGHT, DARK = "#ffffff", "#14181e"  # the grounds of the theme's two modes
ENOUGH = 4.5  # of WCAG's contrast, for text
STYLE = (ROOT / "_static" / "book.css").read_text(encoding="utf-8")


def luminance(rgb):
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in rgb]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(one, other):
    """WCAG 2.2's ratio of two colours, from 1 to 21."""
    lower, higher = sorted(map(luminance, (one, other)))
    return (higher + 0.05) / (lower + 0.05)


def on_a_dark_page(rgb, share):
    """A colour after the filter of the dark page: inverted by a share, its hue turned by half a circle."""
    inverted = share + (1 - 2 * share) * np.array(rgb)
    grey = np.array([0.213, 0.715, 0.072])  # the weights of Filter Effects, level 1
    return np.clip(2 * (grey @ inverted) - inverted, 0, 1)


def filter_of_the_dark_page():
    (share,) = re.findall(r'data-theme="dark"\] \.bd-content img \{.*invert\((.\d+)\) hue-rotate\(180deg\)', STYLE)
    return float(share)


@pytest.mark.parametrize("color", [*viz.COLORS.values(), viz.INK])
def test_lines_and_text_can_be_read_on_both_grounds(color):
    assert contrast(to_rgb(color), to_rgb(LIGHT)) >= ENOUGH
    assert contrast(on_a_dark_page(to_rgb(color), filter_of_the_dark_page()), to_rgb(DARK)) >= ENOUGH


def test_the_contrast_is_that_of_the_standard():
    assert contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21)
    assert contrast(to_rgb("#767676"), (1, 1, 1)) == pytest.approx(4.54, abs=0.01)  # the standard's own example


@pytest.mark.parametrize("color", ["#8a8a8a", "#e69f00"])
def test_a_paler_colour_would_be_seen(color):
    assert contrast(to_rgb(color), to_rgb(LIGHT)) < ENOUGH


def test_the_palette_can_be_told_apart():
    colors = np.array([to_rgb(color) for color in viz.COLORS.values()])
    apart = np.abs(colors[:, None] - colors).sum(-1)[~np.eye(len(colors), dtype=bool)]
    assert apart.min() > 0.2
