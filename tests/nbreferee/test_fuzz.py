"""libFuzzer for a bounded time over what reads strangers' bytes; Hypothesis does the same in the files of each part."""

import importlib.util
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from nbreferee.rpc.codec import encode

pytestmark = pytest.mark.slow
FUZZ = Path(__file__).with_name("fuzz.py")
SECONDS = 15


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has no package for this system")
@pytest.mark.parametrize(
    ("target", "seed"),
    [
        ("codec", encode({"a": [1, 2.5, "x", (None, True)], "b": {3}})[2:]),
        ("notebook", json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [
            {"cell_type": "code", "id": "a", "source": "x", "metadata": {"nbgrader": {"grade_id": "a"}}, "outputs": []},
        ]}).encode()),
    ],
)  # fmt: skip
def test_no_bytes_are_found_that_do_harm(target, seed, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "seed").write_bytes(seed)
    inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # a child begins with its parent's peak, in MB
    options = [f"-artifact_prefix={tmp_path}/", f"-rss_limit_mb={2048 + inherited}"]
    command = [sys.executable, str(FUZZ), target, str(SECONDS), *options, str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * SECONDS + 60)
    assert done.returncode == 0, done.stderr[-3000:]
    runs = int(re.search(r"number_of_executed_units: (\d+)", done.stderr)[1])
    assert runs > 500, f"only {runs} trials: {done.stderr[-500:]}"
