"""The fingerprint of an environment: another version of what grades is another environment."""

import importlib

import pytest

from nbreferee.workers.fingerprint import FingerprintError, fingerprint


@pytest.mark.slow
def test_the_fingerprint_sees_a_changed_source(tmp_path, monkeypatch):
    package = tmp_path / "coursepack"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = fingerprint(("coursepack",))
    assert first != fingerprint()
    (package / "__init__.py").write_text("x = 2\n")
    fingerprint.cache_clear()
    assert fingerprint(("coursepack",)) != first
    with pytest.raises(FingerprintError, match="no_such_pack, and there is none; install it"):
        fingerprint(("no_such_pack",))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed modules."""
    place = tmp_path / "site-packages"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    return place


def fresh(*packages):
    importlib.invalidate_caches()
    fingerprint.cache_clear()
    return fingerprint(packages)


@pytest.mark.slow
def test_the_fingerprint_sees_another_version_of_a_distribution_with_another_name(site):
    (site / "imp_name.py").write_text("x = 1\n")
    info, seen = site / "DistName.dist-info", set()
    info.mkdir()
    (info / "top_level.txt").write_text("imp_name\n")
    for version in ("1.0", "2.0"):
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: DistName\nVersion: {version}\n")
        seen.add(fresh("imp_name"))
    assert len(seen) == 2


@pytest.mark.slow
def test_the_fingerprint_sees_a_module_of_one_file(site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for place in (tmp_path, site):  # in site-packages too, if no distribution brought it
        file = place / f"one_file_{place.name.replace('-', '_')}.py"
        file.write_text("x = 1\n")
        first = fresh(file.stem)
        file.write_text("x = 2\n")
        assert fresh(file.stem) != first


@pytest.mark.parametrize("name", ["", "no_such_pack.sub"])
def test_a_name_that_is_no_module_is_said(name):
    with pytest.raises(FingerprintError, match="and there is none; install it"):
        fresh(name)
