"""Adam, AdamW and clipping: both worlds against PyTorch's own, step by step, and every check seen to fail."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import schedules, shapes
from attnmath.check import compare
from attnmath.tree import flatten, map_tree, unflatten

LIBRARY = Path(an.__file__).parents[1]
SHAPES = {"a": {"weight": (3, 5), "bias": (5,)}, "gain": (7,), "scalar": (1,)}

# betas, eps, weight decay, scale of the gradients
SETTINGS = {
    "vaswani": ((0.9, 0.98), 1e-9, 0.0, 1.0),
    "torch": ((0.9, 0.999), 1e-8, 0.0, 1.0),
    "decay": ((0.9, 0.98), 1e-9, 0.1, 1.0),
    "strong decay, large eps": ((0.8, 0.95), 0.3, 2.0, 1.0),
    "no memory": ((0.0, 0.0), 1e-3, 0.01, 1.0),
    "long first memory": ((0.99, 0.5), 1e-3, 0.01, 1.0),
    "tiny gradients": ((0.9, 0.999), 1e-8, 0.01, 1e-9),
    "huge gradients": ((0.9, 0.98), 1e-9, 0.01, 1e100),
}


def gradient_trees(scale, steps, dtype="float64"):
    """Gradients that differ from step to step; one leaf never has any, one entry only at every seventh step."""
    rng = np.random.default_rng(8)
    for t in range(steps):
        grads = shapes.random_tree(SHAPES, rng, scale)
        grads["gain"][0] *= t % 7 == 0
        grads["scalar"] *= 0
        yield map_tree(lambda g: g.astype(dtype), grads)


def check_adam(adam, adam_state, setting, decoupled, steps=50, dtype="float64", tol=1e-12, lift=lambda X: X):
    """A path of steps by ours and by `torch.optim`; `lift` brings arrays into our world."""
    betas, eps, decay, scale = SETTINGS[setting]
    params = map_tree(lambda w: w.astype(dtype), shapes.random_tree(SHAPES, np.random.default_rng(7)))
    theirs = {path: torch.from_numpy(w.copy()).requires_grad_() for path, w in flatten(params).items()}
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimiser = kind(theirs.values(), lr=0.0, betas=betas, eps=eps, weight_decay=decay)
    params = map_tree(lift, params)
    state = adam_state(params)
    for t, grads in enumerate(gradient_trees(scale, steps, dtype), 1):
        optimiser.param_groups[0]["lr"] = lr = schedules.warmup(t, d=16, warmup=10)
        for path, g in flatten(grads).items():
            theirs[path].grad = torch.from_numpy(g.copy())
        optimiser.step()
        options = {"betas": betas, "eps": eps, "weight_decay": decay, "decoupled": decoupled}
        params, state = adam(params, map_tree(lift, grads), state, lr, **options)
        values = {path: w.detach().numpy() for path, w in theirs.items()}
        for path, w in flatten(params).items():
            np.testing.assert_allclose(w, values[path], atol=tol, rtol=tol, err_msg=f"{path} at step {t}")
    for name, key, unit in (("first", "exp_avg", scale), ("second", "exp_avg_sq", scale**2)):
        moments = {path: optimiser.state[w][key] for path, w in theirs.items()}
        compare(flatten(state[name]), moments, name=f"the {name} moments", atol=tol * unit, rtol=tol)
    assert state["step"] == steps
    return params, state


WORLDS = {"numpy": (an, lambda X: X), "torch": (at, lambda X: torch.from_numpy(X.copy()))}
both_worlds = pytest.mark.parametrize("world", WORLDS)


@pytest.mark.slow
@pytest.mark.claim("eq:adam-moments", "eq:adam-correction", "eq:adam-step", "eq:weight-decay", "eq:adamw")
@pytest.mark.parametrize("decoupled", [True, False], ids=["adamw", "adam"])
@pytest.mark.parametrize("setting", SETTINGS)
@both_worlds
def test_fifty_steps_are_those_of_torch(world, setting, decoupled):
    library, lift = WORLDS[world]
    check_adam(library.adam, library.adam_state, setting, decoupled, lift=lift)


@pytest.mark.parametrize("decoupled", [True, False], ids=["adamw", "adam"])
@both_worlds
def test_float32_stays_float32(world, decoupled):
    library, lift = WORLDS[world]
    options = {"dtype": "float32", "tol": 2e-6, "lift": lift}
    params, state = check_adam(library.adam, library.adam_state, "decay", decoupled, **options)
    for tree in (params, state["first"], state["second"]):
        assert all(str(leaf.dtype).endswith("float32") for leaf in flatten(tree).values())


@both_worlds
def test_a_numpy_number_as_rate_does_not_change_the_precision(world):
    library, lift = WORLDS[world]
    params = {"w": lift(np.ones(2, np.float32))}
    rate = np.float64(0.1)
    new, _ = library.adam(params, params, library.adam_state(params), rate, eps=np.float64(1e-9), weight_decay=rate)
    clipped, _ = library.clip_by_norm(params, np.float64(0.5))
    assert str(new["w"].dtype).endswith("float32") and str(clipped["w"].dtype).endswith("float32")


@both_worlds
def test_nothing_given_is_changed(world):
    library, lift = WORLDS[world]
    params, grads = (map_tree(lift, shapes.random_tree(SHAPES, np.random.default_rng(i))) for i in (1, 2))
    _, state = library.adam(params, grads, library.adam_state(params), 0.1)
    given = (params, grads, state)
    before = [
        map_tree(lambda X: np.asarray(X).copy(), tree) for tree in (params, grads, state["first"], state["second"])
    ]
    library.adam(*given, 0.1, weight_decay=0.1)
    library.adam(*given, 0.1, weight_decay=0.1, decoupled=False)
    library.clip_by_norm(grads, 1e-3)
    for tree, old in zip((params, grads, state["first"], state["second"]), before, strict=True):
        compare(tree, old, name="what was given", atol=0.0, rtol=0.0)
    assert state["step"] == 1


@both_worlds
def test_zero_gradients_leave_the_parameters_and_an_empty_leaf_passes(world):
    library, lift = WORLDS[world]
    params = map_tree(lift, {"w": np.ones(3), "none": np.ones((0, 2))})
    grads = map_tree(lift, {"w": np.zeros(3), "none": np.zeros((0, 2))})
    new, _ = library.adam(params, grads, library.adam_state(params), 0.1)
    compare(new, params, name="parameters without gradients", atol=0.0, rtol=0.0)
    clipped, norm = library.clip_by_norm(grads, 1.0)
    compare(clipped, grads, name="clipped zeros", atol=0.0, rtol=0.0)
    assert norm == 0


def train_language_model(optimiser_step, steps=50):
    """The losses and final weights of a small decoder, float64, the gradients by autograd."""
    torch.manual_seed(3)
    tree = at.ParamTree(shapes.decoder_only_shapes(7, 8, 12, 2, 6)).double().tree()
    params = map_tree(lambda w: w.detach().clone().requires_grad_(), tree)
    data, losses = torch.Generator().manual_seed(4), []
    for t in range(1, steps + 1):
        ids = torch.randint(7, (5, 6), generator=data)
        ids[:, 3:] = ids[:, :3]
        Z = at.decoder_only(ids[:, :-1], params, 2)
        loss = torch.nn.functional.cross_entropy(Z.flatten(0, 1), ids[:, 1:].flatten())
        grads = dict(zip(flatten(params), torch.autograd.grad(loss, list(flatten(params).values())), strict=True))
        params = map_tree(lambda w: w.detach().requires_grad_(), optimiser_step(params, grads, t))
        losses.append(loss.item())
    return np.array(losses), flatten(params)


@pytest.mark.slow
@pytest.mark.parametrize("world", [*WORLDS, "numpy, clipped"])
def test_a_real_model_takes_the_path_of_torch(world):
    """The whole loop: schedule, clipping, AdamW, by ours and by PyTorch's optimiser and clipping."""
    library = at if world == "torch" else an
    limit = 0.5 if "clipped" in world else 1e9
    memory = {}

    def ours(params, grads, t):
        lr = schedules.warmup(t, d=8, warmup=20, factor=0.3)
        params, grads = flatten(params), {path: g.detach() for path, g in grads.items()}
        if library is an:
            params, grads = at.to_numpy(params), at.to_numpy(grads)
        grads, norm = library.clip_by_norm(grads, limit)
        memory.setdefault("norms", []).append(norm)
        state = memory.get("state") or library.adam_state(params)
        params, memory["state"] = library.adam(params, grads, state, lr, weight_decay=0.1)
        return unflatten(at.from_numpy(params) if library is an else params)

    def theirs(params, grads, t):
        leaves = flatten(params)
        if "optimiser" not in memory:
            memory["leaves"] = {path: w.detach().clone().requires_grad_() for path, w in leaves.items()}
            memory["optimiser"] = torch.optim.AdamW(
                memory["leaves"].values(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1
            )
        for path, w in memory["leaves"].items():
            w.grad = grads[path].detach().clone()
        norm = torch.nn.utils.clip_grad_norm_(memory["leaves"].values(), limit)
        if norm > limit:  # undo PyTorch's 1e-6
            for w in memory["leaves"].values():
                w.grad *= (norm + 1e-6) / norm
        memory["optimiser"].param_groups[0]["lr"] = schedules.warmup(t, d=8, warmup=20, factor=0.3)
        memory["optimiser"].step()
        return unflatten({path: w.detach().clone() for path, w in memory["leaves"].items()})

    losses, params = train_language_model(ours)
    expected, their_params = train_language_model(theirs)
    compare(losses, expected, name="losses", atol=1e-11)
    for path, w in params.items():  # the gradient of a key's bias is 0 but for rounding, which Adam divides by eps
        tol = 1e-7 if "key.bias" in path else 1e-11
        compare(w, their_params[path], name=path, atol=tol)
    assert losses[-10:].mean() < losses[:10].mean() - 0.1, "and it learns"
    assert (max(memory["norms"]) > limit) == ("clipped" in world)


def check_clip(clip_by_norm, lift=lambda X: X):
    for scale in (1e-3, 1.0, 1e150):
        for limit in (1e-4, 0.7, 1.0, 1e6):
            grads = shapes.random_tree(SHAPES, np.random.default_rng(9), scale)
            theirs = [torch.zeros(g.shape, dtype=torch.float64) for g in flatten(grads).values()]
            for leaf, g in zip(theirs, flatten(grads).values(), strict=True):
                leaf.grad = torch.from_numpy(g.copy())
            their_norm = torch.nn.utils.clip_grad_norm_(theirs, limit)
            clipped, norm = clip_by_norm(map_tree(lift, grads), limit)
            compare(norm, their_norm, name="norm", rtol=1e-12)
            short = 1.0 if norm + 1e-6 <= limit else (norm + 1e-6) / max(norm, limit)  # PyTorch's 1e-6
            expected = dict(zip(flatten(grads), [leaf.grad * short for leaf in theirs], strict=True))
            compare(flatten(clipped), expected, name=f"clipped at {limit}", rtol=1e-12, atol=0.0)
            total = np.sqrt(sum((np.asarray(g) ** 2).sum() for g in flatten(clipped).values()))
            assert abs(total - min(norm, limit)) <= 1e-12 * total, "never longer than the limit, and no shorter"


@pytest.mark.claim("eq:clip")
@both_worlds
def test_clipping_is_that_of_torch_but_for_its_constant(world):
    library, lift = WORLDS[world]
    check_clip(library.clip_by_norm, lift)


@both_worlds
def test_the_norm_of_large_float32_gradients_does_not_overflow(world):
    library, lift = WORLDS[world]
    clipped, norm = library.clip_by_norm({"w": lift(np.array([3e30, 4e30], np.float32))}, 1.0)
    assert abs(norm / 5e30 - 1) < 1e-6 and str(clipped["w"].dtype).endswith("float32")
    compare(clipped["w"], [0.6, 0.8], name="the direction", atol=1e-6)


@pytest.mark.claim("eq:warmup")
@pytest.mark.parametrize(("d", "w"), [(512, 4000), (1, 1), (7, 13)])
def test_the_schedule_is_that_of_the_paper_and_fits_lambda_lr(d, w):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    plan = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda s: schedules.warmup(s + 1, d, w, factor=3.0))
    for step in range(1, 200):
        (rate,) = plan.get_last_lr()
        want = 3 / np.sqrt(d) * (step / w**1.5 if step <= w else 1 / np.sqrt(step))
        assert abs(rate - want) <= 1e-14 * want
        optimiser.step()
        plan.step()


# file, right, wrong: mistakes that people make; the checks above must see each of them
FAULTS = [
    ("numpy/optimisers.py", "g = g + weight_decay * w ", "g = g + 2 * weight_decay * w "),
    ("numpy/optimisers.py", "g = g + weight_decay * w ", "w = w + weight_decay * w "),
    ("numpy/optimisers.py", "b1 * m + (1 - b1) * g", "b1 * m + g"),
    ("numpy/optimisers.py", "(1 - b2) * g * g", "(1 - b2) * g"),
    ("numpy/optimisers.py", "m / (1 - b1**t), v / (1 - b2**t)", "m, v"),
    ("numpy/optimisers.py", "m / (1 - b1**t), v / (1 - b2**t)", "m / (1 - b1**t), v / (1 - b2 ** (t + 1))"),
    ("numpy/optimisers.py", "(1 - lr * weight_decay) * w", "(1 - weight_decay) * w"),
    ("numpy/optimisers.py", "if weight_decay and decoupled", "if weight_decay"),
    ("numpy/optimisers.py", "(np.sqrt(v) + eps)", "np.sqrt(v + eps)"),
    ("numpy/optimisers.py", "lr * m / (np.sqrt(v) + eps)", "lr * m / (np.sqrt(v) + eps / np.sqrt(1 - b2**t))"),
    ("numpy/optimisers.py", "t = state[\"step\"] + 1", "t = state[\"step\"] or 1"),
    ("numpy/optimisers.py", "min(1.0, limit / norm) if norm", "limit / norm if norm"),
    ("numpy/optimisers.py", "math.hypot(*norms.values())", "sum(norms.values())"),
    ("numpy/optimisers.py", "math.hypot(*norms.values())", "max(norms.values())"),
    ("torch/optimisers.py", "(v.sqrt() + eps)", "(v + eps).sqrt()"),
    ("torch/optimisers.py", "if weight_decay and not decoupled", "if weight_decay"),
    ("torch/optimisers.py", "m / (1 - b1**t), v / (1 - b2**t)", "m / (1 - b2**t), v / (1 - b1**t)"),
    ("torch/optimisers.py", "limit / norm) if norm", "limit / (norm + 1e-6)) if norm"),
    ("torch/optimisers.py", "torch.linalg.vector_norm(g.double())", "g.double().abs().max()"),
]  # fmt: skip


def planted(tmp_path, file, right, wrong):
    """The module of a file in which one thing is replaced."""
    source = (LIBRARY / file).read_text(encoding="utf-8")
    assert right in source, f"the line of this fault is gone from {file}: plant it anew"
    path = tmp_path / "planted_optimisers.py"
    path.write_text(source.replace(right, wrong), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_module(module, world):
    _, lift = WORLDS[world]
    for setting in ("vaswani", "decay", "strong decay, large eps"):
        for decoupled in (True, False):
            check_adam(module.adam, module.adam_state, setting, decoupled, steps=12, lift=lift)
    check_clip(module.clip_by_norm, lift)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[0][:5]}: {fault[2][:40]}")
def test_fault_is_seen(fault, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = planted(tmp_path, *fault)
    with pytest.raises((AssertionError, RuntimeWarning)):
        check_module(module, fault[0].split("/")[0])


@pytest.mark.parametrize("world", WORLDS)
def test_without_a_fault_nothing_dies(world, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    check_module(planted(tmp_path, f"{world}/optimisers.py", "math", "math"), world)
