"""One gradient on many processes equals that of one, what is sent is what the formulas say, a dead process ends all.

The processes are real: `python -m attnmath.parallel` starts them, gloo carries their messages over the loopback.
"""

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import parallel, shapes, splitting
from attnmath.check import compare
from attnmath.tree import map_tree

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=15, deadline=None)


def of(records, mode):
    return next(record for record in records if record["mode"] == mode)


def total(record, kind, operation):
    return sum(one.get(operation, 0) for one in record[kind])


# on real processes


@pytest.fixture(scope="module")
def pair():
    return parallel.launch("data", "tensor", "pipeline", processes=2, oversubscribe=True)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """Under a launcher that is not ours, four processes, single precision, a head that is not the word vectors."""
    report = tmp_path_factory.mktemp("four") / "report.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=4"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    command += ["-m", "attnmath.parallel", "data", "tensor", "pipeline", "--oversubscribe", "--untied"]
    command += ["--dtype=float32", "--micro=8", "--layers=5", f"--report={report}"]
    run = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "4 processes, gloo on cpu, float32" in run.stdout
    return json.loads(report.read_text())


def check_records(records, tolerance):
    """Gradients to rounding, and traffic to the byte."""
    first = records[0]
    N, s, d, L, M = (first[k] for k in ("processes", "itemsize", "width", "layers", "micro"))
    rows, size = first["batch"] * first["length"], first["parameters"] * s
    modes = ["data", "data, ring", "data, unweighted", "tensor", "pipeline, gpipe", "pipeline, 1f1b"]
    assert [record["mode"] for record in records] == modes
    for record in records:
        if record["mode"] == "data, unweighted":
            assert record["error"] > 0.1, "the mean of means is another gradient, and the comparison sees it"
        else:
            assert record["error"] < tolerance and record["loss_error"] < tolerance, record["mode"]
    # one all-reduce of all gradients, one of a number of tokens
    assert of(records, "data")["calls"] == N * [{"all_reduce": 2}]
    assert of(records, "data")["bytes"] == N * [{"all_reduce": size + 8}]
    ring = of(records, "data, ring")
    padded = -(-first["parameters"] // N) * N * s
    assert ring["calls"] == N * [{"all_reduce": 1, "send": 2 * (N - 1)}]
    assert ring["bytes"] == N * [{"all_reduce": 8, "send": parallel.ring_bytes(padded, N)}]
    # two all-reduces a layer forward, two backward
    assert of(records, "tensor")["calls"] == N * [{"all_reduce": 4 * L}]
    assert of(records, "tensor")["bytes"] == N * [{"all_reduce": parallel.tensor_bytes(rows, d, L, s)}]
    for kind in ("gpipe", "1f1b"):
        record = of(records, f"pipeline, {kind}")
        assert total(record, "calls", "send") == 2 * (N - 1) * M
        assert total(record, "bytes", "send") == parallel.pipeline_bytes(rows, d, N, s)
        ends = 2 if first["tied"] else 0
        assert total(record, "calls", "all_reduce") == ends
        assert total(record, "bytes", "all_reduce") == ends * first["vocabulary"] * d * s
        done = [[tuple(what) for what in order] for order in record["order"]]
        assert done == parallel.orders(N, M, kind), "PyTorch's order is the one that we draw"
        assert [parallel.held(order) for order in done] == [M if kind == "gpipe" else min(M, N - i) for i in range(N)]


@pytest.mark.slow
@pytest.mark.claim("lem-mean-of-means", "lem-ring", "lem-tensor-split", "eq:ring-bytes", "eq:tensor-bytes")
@pytest.mark.claim("eq:pipeline-bytes", "lem-pipeline-held")
def test_two_processes_have_the_gradient_of_one(pair):
    assert pair[0]["dtype"] == "float64" and pair[0]["tied"]
    check_records(pair, 1e-12)


@pytest.mark.slow
@pytest.mark.claim("lem-ring", "eq:ring-bytes", "eq:tensor-bytes", "eq:pipeline-bytes")
def test_four_processes_have_the_gradient_of_one_in_single_precision(four):
    assert four[0]["processes"] == 4 and four[0]["layers"] == 5, "stages of unequal size"
    check_records(four, 2e-6)


def begin(mode, *options):
    command = [sys.executable, "-m", "attnmath.parallel", mode, "--processes=2", "--oversubscribe", *options]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes)


def alive(processes):
    """Those that still run; a zombie has ended."""
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


@pytest.mark.slow
def test_whatever_dies_nothing_is_left(tmp_path):
    """Three runs at the same time: a process killed, a process that stalls, the launcher killed."""
    report = tmp_path / "report.json"
    killed = begin("data", "--kill=1", f"--report={report}")
    stalled = begin("pipeline", "--stall=1", "--timeout=5")  # the group of the two ends has to be as impatient
    orphaned = begin("data", "--stall=1")
    try:
        launcher = psutil.Process(orphaned.pid)
        assert wait_until(lambda: len(launcher.children(recursive=True)) >= 2, 100)
        below = launcher.children(recursive=True)  # they are only starting: it is the hardest moment
        orphaned.kill()
        _, said = killed.communicate(timeout=100)
        assert said == "attnmath.parallel: process 1 was killed by SIGKILL; all were stopped\n"
        assert killed.returncode == 1 and not report.exists()
        _, said = stalled.communicate(timeout=100)
        assert said.startswith("attnmath.parallel: process 0 waited 5 s for another that did not come")
        assert stalled.returncode == 1 and said.count("\n") == 1
        assert wait_until(lambda: not alive(below), 30), "the workers follow their launcher"
    finally:
        for run in (killed, stalled, orphaned):
            run.kill()
            run.communicate()


# bad input


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("data --processes 3", "3 processes on 2 cores would take turns: start 2 or fewer, or allow it with --oversub"),
        ("data --processes 3 --oversubscribe", "a batch of 8 does not fall into 3 equal parts: take a multiple of 3"),
        ("tensor --processes 2 --heads 1", "heads is 1, which 2 processes cannot share equally: take a multiple of 2"),
        ("pipeline --processes 2 --layers 1", "layers is 1, and each of 2 stages needs one at least: take 2 layers or"),
        ("pipeline --processes 2 --micro 3", "a batch of 8 does not fall into 3 micro-batches: take a divisor of 8"),
        ("pipeline --processes 4 --oversubscribe --micro 2", "a micro-batch for each of 4 stages: take 4 or more, or"),
        ("tensor --processes 2 --width 18", "width is 18 and heads 4: the heads must divide the width"),
        ("data", "--processes is None; give the number of processes, 1 or more"),
        ("data --processes 0", "--processes is 0; give the number of processes, 1 or more"),
        ("data --processes 2 --length 0", "--length is 0; it must be positive"),
        ("data --processes 2 --timeout 0", "--timeout is 0.0; it must be positive"),
        ("data --processes 2 --kill 2", "--kill is 2; processes count from 0 to 1"),
        ("data --processes 2 --report nowhere/x.json", "its folder does not exist: make it first"),
        ("data --processes 2 --device cuda", "2 processes and 0 GPUs on this machine: one each is needed; take --dev"),
    ],
)
def test_bad_input_gets_one_line(options, said, monkeypatch, capsys):
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert parallel.main(options.split()) == 2
    out = capsys.readouterr()
    assert out.out == "" and out.err.startswith("attnmath.parallel: ") and out.err.count("\n") == 1
    assert said in out.err


def test_without_pytorch_or_its_distributed_package(monkeypatch, capsys):
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    assert parallel.main(["data", "--processes=2"]) == 2
    assert "this PyTorch is built without torch.distributed: install one of" in capsys.readouterr().err
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    assert parallel.main(["data", "--processes=2"]) == 2
    assert "PyTorch is not installed: pip install" in capsys.readouterr().err


def test_under_a_launcher_process_0_speaks_for_all(monkeypatch, capsys):
    monkeypatch.setattr(parallel, "_follow_parent", lambda: None)
    for r in (0, 1):
        for name, value in {"RANK": r, "WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3}.items():
            monkeypatch.setenv(name, str(value))
        assert parallel.main(["data", "--oversubscribe"]) == 2
        assert ("a batch of 8 does not fall into 3" in capsys.readouterr().err) == (r == 0)
    monkeypatch.setenv("RANK", "0")
    assert parallel.main(["data", "--processes=2"]) == 2
    assert "--processes is 2, and the launcher started 3: leave the option out" in capsys.readouterr().err


def test_launch_raises_what_the_command_says():
    with pytest.raises(RuntimeError, match=r"attnmath\.parallel: a batch of 8 does not fall into 3 equal parts"):
        parallel.launch("data", processes=3, oversubscribe=True)


def test_only_what_can_be_split_is_split():
    with pytest.raises(ValueError, match="the model has relative positions, which all heads share"):
        splitting.splittable(at.DecoderOnly(11, 4, 2, 8, layers=1, buckets=8))
    with pytest.raises(ValueError, match="schedule is 'zigzag'; expected one of 'gpipe', '1f1b'"):
        parallel.orders(2, 2, "zigzag")
    with pytest.raises(ValueError, match="stage is 4; expected one of 0, 1, 2, 3"):
        parallel.zero_bytes(1, 2, 4)
    with pytest.raises(ValueError, match="the stages wait for each other"):
        parallel.clock([[("B", 0), ("F", 0)]])


# the results of the page


@pytest.mark.claim("lem-mean-of-means")
@few
@given(seeds, st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_the_mean_of_means_is_the_mean_only_for_equal_shares(seed, counts):
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((c, 3)) for c in counts]
    whole, means = np.concatenate(parts).mean(0), np.array([part.mean(0) for part in parts])
    shares = np.array(counts)[:, None] / sum(counts)
    compare((len(counts) * shares * means).mean(0), whole, name="weighted", atol=1e-12)
    compare((shares * means).sum(0), whole, name="the sum with the shares", atol=1e-12)
    equal = len(set(counts)) == 1
    assert (np.abs(means.mean(0) - whole).max() < 1e-12) == equal


@pytest.mark.claim("lem-mean-of-means")
def test_the_toy_of_the_page():
    parts = [np.array([2.0, 4.0]), np.array([9.0])]
    assert np.mean([part.mean() for part in parts]) == 6 and np.concatenate(parts).mean() == 5


@pytest.mark.claim("lem-ring", "eq:ring-bytes")
@pytest.mark.parametrize("N", range(1, 8))
def test_a_ring_adds_up_in_two_rounds_of_passing_on(N, rng):
    X = rng.standard_normal((N, N, 3))  # process, piece
    state, sent = X.copy(), np.zeros(N)
    for adding in (True, False):
        for step in range(N - 1):
            out = [(r - step + (not adding)) % N for r in range(N)]
            messages = [state[r, out[r]].copy() for r in range(N)]
            for r in range(N):
                came, piece = messages[r - 1], out[r - 1]
                state[r, piece] = state[r, piece] + came if adding else came
                sent[r] += came.nbytes
    compare(state, np.broadcast_to(X.sum(0), X.shape), name="the sum everywhere", atol=1e-12)
    assert (sent == parallel.ring_bytes(X[0].nbytes, N)).all()


def columns(leaf, part, parts):
    return {name: np.split(P, parts, -1)[part] for name, P in leaf.items()}


def rows_of(leaf, part, parts):
    return {"weight": np.split(leaf["weight"], parts)[part]}


@pytest.mark.slow
@pytest.mark.claim("lem-tensor-split")
@few
@given(seeds, st.sampled_from([1, 2, 3, 6]))
def test_heads_and_hidden_units_split_into_a_sum(seed, N):
    rng = np.random.default_rng(seed)
    d, h, f = 6, 6, 12
    p, q = (shapes.random_tree(s, rng) for s in (shapes.attention_shapes(d, h), shapes.feed_forward_shapes(d, f)))
    X, dO = rng.standard_normal((2, 4, d))
    O, vjp = an.multi_head_attention(X, X, X, p, h)
    *dX, dp = vjp(dO)
    Y, network_vjp = an.feed_forward(X, q)
    dZ, dq = network_vjp(dO)
    sums = [p["output"]["bias"] + 0 * O, 0 * X, q["down"]["bias"] + 0 * Y, 0 * X]
    for r in range(N):
        own = {name: columns(p[name], r, N) for name in ("query", "key", "value")}
        part, part_vjp = an.multi_head_attention(X, X, X, own | {"output": rows_of(p["output"], r, N)}, h // N)
        *dX_part, dp_part = part_vjp(dO)
        sums[0], sums[1] = sums[0] + part, sums[1] + sum(dX_part)
        for name in own:
            compare(dp_part[name], columns(dp[name], r, N), name=f"own gradients, {name}", atol=1e-10)
        compare(dp_part["output"], rows_of(dp["output"], r, N), name="own gradients, output", atol=1e-10)
        part, part_vjp = an.feed_forward(X, {"up": columns(q["up"], r, N), "down": rows_of(q["down"], r, N)})
        dX_part, dq_part = part_vjp(dO)
        sums[2], sums[3] = sums[2] + part, sums[3] + dX_part
        compare(dq_part["up"], columns(dq["up"], r, N), name="own gradients, up", atol=1e-10)
        compare(dq_part["down"], rows_of(dq["down"], r, N), name="own gradients, down", atol=1e-10)
    for got, want, name in zip(sums, (O, sum(dX), Y, dZ), ("heads", "dX", "hidden units", "dX"), strict=True):
        compare(got, want, name=name, atol=1e-9, rtol=1e-9)


@pytest.mark.claim("lem-tensor-split")
def test_rows_first_would_need_the_sum_inside_the_activation(rng):
    q = shapes.random_tree(shapes.feed_forward_shapes(6, 12), rng)
    X, zero = rng.standard_normal((4, 6)), np.zeros(12)
    down = q["down"]["weight"]
    halves = [an.linear(X[:, part], q["up"]["weight"][part], zero)[0] for part in (slice(3), slice(3, 6))]
    whole = an.gelu(sum(halves))[0] @ down
    assert np.abs(sum(an.gelu(half)[0] @ down for half in halves) - whole).max() > 0.1


sizes = st.integers(1, 6)


@pytest.mark.claim("lem-bubble", "eq:bubble")
@given(sizes, sizes, st.sampled_from(["gpipe", "1f1b"]), st.integers(1, 3), st.integers(1, 3))
def test_both_schedules_wait_as_long_as_the_lemma_says(S, M, kind, f, b):
    done = parallel.clock(parallel.orders(S, M, kind), f, b)
    length = max(row[-1][3] for row in done)
    assert length == (M + S - 1) * (f + b)
    for row in done:
        busy = sum(end - begin for *_, begin, end in row)
        assert busy == M * (f + b) and np.isclose(1 - busy / length, parallel.bubble(S, M))
        assert all(one[3] <= two[2] for one, two in pairwise(row)), "one thing at a time"
    begins = {(what, m, s): begin for s, row in enumerate(done) for what, m, begin, _ in row}
    for (what, m, s), begin in begins.items():
        if what == "F" and s:
            assert begin >= begins["F", m, s - 1] + f
        if what == "B":
            assert begin >= (begins["F", m, s] + f if s == S - 1 else begins["B", m, s + 1] + b)


@pytest.mark.claim("lem-bubble")
@given(st.integers(0, 10**6), sizes, sizes, st.integers(1, 3), st.integers(1, 3))
def test_no_order_is_faster(seed, S, M, f, b):
    """Orders drawn at random: at each moment a stage takes anything that is ready."""
    rng = random.Random(seed)
    done, rows = set(), [[] for _ in range(S)]
    passes = {(what, m, s) for what in "FB" for m in range(M) for s in range(S)}
    while passes:
        ready = [
            (what, m, s)
            for what, m, s in sorted(passes)
            if (s == 0 if what == "F" else s == S - 1 and ("F", m, s) in done)
            or ((what, m, s - 1) if what == "F" else (what, m, s + 1)) in done
        ]
        what, m, s = rng.choice(ready)
        passes.remove((what, m, s))
        done.add((what, m, s))
        rows[s].append((what, m))
    assert max(row[-1][3] for row in parallel.clock(rows, f, b)) >= (M + S - 1) * (f + b)


@pytest.mark.claim("lem-pipeline-held")
@given(sizes, sizes)
def test_what_a_stage_keeps(S, M):
    for kind, want in (("gpipe", [M] * S), ("1f1b", [min(M, S - s) for s in range(S)])):
        assert [parallel.held(order) for order in parallel.orders(S, M, kind)] == want


@pytest.mark.claim("eq:zero-bytes")
def test_zero_shards_twelve_two_and_two():
    assert [parallel.zero_bytes(10, 4, z) for z in range(4)] == [160, 70, 55, 40]
    assert all(parallel.zero_bytes(7, 1, z) == 7 * 16 for z in range(4)), "one process has it all"
    weights = map_tree(lambda shape: np.zeros(shape, np.float16), shapes.linear_shapes(3, 4))
    whole = sum(P.nbytes + P.nbytes + 3 * P.astype(np.float32).nbytes for P in weights.values())
    assert parallel.zero_bytes(16, 2, 0) == whole, "weights, gradients, and in float32 weights and two moments"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_same_on_gpus():
    count = 1 << (min(torch.cuda.device_count(), 4).bit_length() - 1)
    records = parallel.launch("data", "tensor", "pipeline", processes=count, device="cuda", oversubscribe=True)
    assert all(record["backend"] == "nccl" for record in records)
    check_records(records, 1e-12) if count > 1 else None


def test_signals_have_names():
    class Failure:
        exitcode, timestamp, message = -signal.SIGSEGV, 0, "Signal 11"

    assert parallel._explain({3: Failure}, 1.0) == "process 3 was killed by SIGSEGV; all were stopped"
