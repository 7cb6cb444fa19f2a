"""What a course says in nbreferee.toml, and what it is told when that makes no sense."""

import re

import pytest

from nbreferee.course import settings
from nbreferee.course.settings import Settings, SettingsError, load
from nbreferee.judge.job import RunLimits
from nbreferee.walls.sandbox import Policy


def test_the_documented_file_holds(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "nbreferee.toml").write_text(settings.__doc__.partition("\n\n")[2])
    got = load(tmp_path)
    assert got.preload == ("numpy", "torch") and got.packages == ("mycourse",)
    assert got.code_stub == 'raise NotImplementedError("Your answer here.")' and got.text_stub == "*Your answer here.*"
    assert got.limits == RunLimits(cell_s=20, total_s=120)
    mb = 1 << 20
    assert got.policy == Policy(2048 * mb, 64, 256, 64 * mb, 64 * mb, readable=(str(tmp_path / "data"),))


def test_what_is_not_said_is_the_default(tmp_path):
    assert load(tmp_path) == Settings()
    (tmp_path / "nbreferee.toml").write_text("")
    assert load(tmp_path) == Settings()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("packges = []", r"no setting packges; there are .*packages.*sandbox"),
        ("limits.cels = 3", r"no setting limits.cels; there are cell_s, "),
        ("[sandbox]\nmemory = 3", r"no setting sandbox.memory; there are .*memory_mb"),
        ("[sandbox]\nmemory_bytes = 3", r"no setting sandbox.memory_bytes; there are .*memory_mb"),
        ("sandbox = 3", r"sandbox is 3; it must be a table"),
        ("preload = 'numpy'", r"preload is 'numpy'; it must be a list"),
        ("preload = ['numpy', 3]", r"preload.1 is 3; it must be a text"),
        ("code_stub = 3", r"code_stub is 3; it must be a text"),
        ("[sandbox]\nmemory_mb = 0", r"sandbox.memory_mb is 0; it must be a whole number >= 1"),
        ("[sandbox]\nmemory_mb = 2.5", r"sandbox.memory_mb is 2.5; it must be a whole number"),
        ("[sandbox]\nprocesses = true", r"sandbox.processes is True; it must be a whole number"),
        ("[sandbox]\nreadable = ['no']", r"sandbox.readable names 'no', and there is no such folder; make it"),
        ("[limits]\ncell_s = 'long'", r"limits.cell_s is 'long'; it must be a number"),
        ("[limits]\ncell_s = 0", r"the limit cell_s is 0.*; it must be a positive number"),
        ("[limits]\ntotal_s = inf", r"the limit total_s is inf; it must be a positive number"),
        ("x = \ny = 1", r"cannot be read: .*line 1.*; correct it"),
    ],
)
def test_a_slip_is_one_line_with_the_file_the_key_and_the_cure(tmp_path, text, told):
    (tmp_path / "nbreferee.toml").write_text(text)
    with pytest.raises(SettingsError) as error:
        load(tmp_path)
    assert re.search(told, str(error.value)) and str(error.value).startswith("nbreferee.toml")
    assert "\n" not in str(error.value)
