"""Low-rank adapters: what is refused, the module that wraps a model, the work, and the committed study."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrize
from torch.utils.flop_counter import FlopCounterMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import lora_study
from attnmath.check import compare
from attnmath.lora import adapting_bytes, lora_numbers, lora_scale
from tests.attnmath.refusals import check_refused

RECORD = Path(__file__).parents[2] / "chapters" / "08_at_work" / "lora.json"
X = np.zeros
MAP = (X((3, 5)), X((5, 7)), X(7))
BAD = [
    ("lora_linear", (*MAP, X((5, 0)), X((0, 7))), {}, r"the rank is 0, but W of shape \(5, 7\).*1 <= r <= 5"),
    ("lora_linear", (*MAP, X((5, 6)), X((6, 7))), {}, r"the rank is 6, but W of shape \(5, 7\).*1 <= r <= 5"),
    ("lora_merge", (X((7, 5)), X((7, 6)), X((6, 5))), {}, r"the rank is 6, but W of shape \(7, 5\).*1 <= r <= 5"),
    ("lora_unmerge", (X((7, 5)), X((7, 6)), X((6, 5))), {}, r"the rank is 6, but M of shape \(7, 5\)"),
    ("lora_linear", (*MAP, X((5, 2)), X((3, 7))), {}, r"B has shape \(3, 7\).*with r = 2"),
    ("lora_linear", (*MAP, X((4, 2)), X((2, 7))), {}, r"A has shape \(4, 2\).*with i = 5"),
    ("lora_linear", (*MAP, X((5, 2)), X((2, 6))), {}, r"B has shape \(2, 6\).*with o = 7"),
    ("lora_linear", (*MAP, X((5, 2)), X((2, 7))), {"alpha": 0.0}, r"alpha is 0\.0; it must be > 0"),
    ("lora_linear", (*MAP, X((5, 2), np.float32), X((2, 7))), {}, r"A has dtype (torch\.)?float32 but X has"),
    ("lora_merge", (X((5, 7)), X((5, 2), int), X((2, 7))), {}, r"A has dtype (torch\.)?int64; floats are expected"),
]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(("name", "args", "options", "said"), BAD, ids=range(len(BAD)))
def test_bad_input_gets_a_sentence(name, args, options, said, world, as_users_call):
    check_refused(world, name, args, options, said)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: at.LoRA(model(), 0), r"the rank is 0, but layers\.0\.attention\.query\.weight of shape \(6, 6\)"),
        (lambda: at.LoRA(model(), 7), r"the rank is 7, but layers\.0\.attention\.query\.weight.*1 <= r <= 6"),
        (lambda: at.LoRA(model(), 2, "*.querry.*"), r"names is \('\*\.querry\.\*',\).*layers\.0\.attention\.query"),
        (lambda: at.LoRA(torch.nn.LayerNorm(3), 1), r"fits no linear map; the model has none at all"),
        (lambda: lora_scale(0), r"r is 0; it must be an integer >= 1"),
        (lambda: lora_scale(2, -1.0), r"alpha is -1\.0; it must be > 0"),
        (lambda: lora_numbers([(5, 7), (3, 7)], 4), r"the rank is 4, but a matrix of shape \(3, 7\)"),
        (lambda: adapting_bytes(10, 11), r"trained is 11; it must be at least 0 and at most the 10 parameters"),
    ],
    ids=range(8),
)
def test_the_module_and_the_counts_refuse_in_one_line(call, said):
    with pytest.raises(ValueError, match=said) as error:
        call()
    assert "\n" not in str(error.value)


# the module ----------------------------------------------------------------------------------------------------------

NAMES = ("*.query.*", "*.down.*")
IDS = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])


def model(seed=0):
    torch.manual_seed(seed)
    return at.DecoderOnly(11, 6, 2, 10, layers=2, positions=5).double()


def adapted(seed=0, r=2, scramble=True):
    """An adapter that is past its start, and its model."""
    found = at.LoRA(model(seed), r, NAMES, alpha=3.0)
    if scramble:
        for name, P in found.factors.named_parameters():
            rng = np.random.default_rng([seed, len(name), sum(map(ord, name))])
            P.data = torch.from_numpy(rng.standard_normal(P.shape))
    return found


def test_the_module_is_the_model_at_the_changed_matrices():
    """Values, and the factors' gradients from those that autograd finds for the full matrices."""
    own, full = adapted(), model()
    factors = dict(own.factors.named_parameters())
    stems = ["layers.0.attention.query", "layers.0.feed_forward.down"]
    stems += [stem.replace("0", "1") for stem in stems]
    with torch.no_grad():
        for stem in stems:
            full.get_parameter(f"{stem}.weight").add_(1.5 * factors[f"{stem}.A"] @ factors[f"{stem}.B"])
    compare(own(IDS), full(IDS), atol=1e-12)
    assert (own(IDS) - model()(IDS)).abs().max() > 0.1
    for net in (own, full):
        at.cross_entropy(net(IDS), IDS).backward()
    assert {name.rpartition(".")[0] for name in factors} == set(stems)
    for stem in stems:
        G, A, B = full.get_parameter(f"{stem}.weight").grad, factors[f"{stem}.A"], factors[f"{stem}.B"]
        assert A.grad.abs().max() > 1e-4 and B.grad.abs().max() > 1e-4
        compare(A.grad, 1.5 * G @ B.detach().T, name=f"{stem}.A", atol=1e-12)
        compare(B.grad, 1.5 * A.detach().T @ G, name=f"{stem}.B", atol=1e-12)


def test_the_layer_is_pytorchs_own_parametrized_linear_map(rng):
    """`torch.nn.utils.parametrize` with an explicit product: value and gradients."""
    X, W, b, A, B, dY = (
        torch.from_numpy(rng.standard_normal(s)) for s in ((3, 4, 5), (5, 7), 7, (5, 2), (2, 7), (3, 4, 7))
    )

    class Change(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.A, self.B = torch.nn.Parameter(A.clone()), torch.nn.Parameter(B.clone())

        def forward(self, weight):
            return weight + 0.75 * (self.A @ self.B).T

    layer = torch.nn.Linear(5, 7, dtype=torch.float64)
    layer.weight.data, layer.bias.data = W.T.clone(), b.clone()
    parametrize.register_parametrization(layer, "weight", Change())
    change = layer.parametrizations.weight[0]
    mine = [T.clone().requires_grad_() for T in (A, B)]
    Y = at.lora_linear(X, W, b, *mine, alpha=1.5)
    compare(Y, layer(X), atol=1e-12)
    Y.backward(dY)
    layer(X).backward(dY)
    compare(mine[0].grad, change.A.grad, atol=1e-12)
    compare(mine[1].grad, change.B.grad, atol=1e-12)


def test_at_the_start_the_model_is_unchanged_and_only_b_learns():
    own = adapted(scramble=False)
    assert torch.equal(own(IDS), model()(IDS))
    at.cross_entropy(own(IDS), IDS).backward()
    for name, P in own.factors.named_parameters():
        assert (P.grad.abs().max() == 0) == name.endswith(".A"), name


def test_training_moves_the_factors_alone():
    own = adapted(scramble=False)
    before = copy.deepcopy(own.model.state_dict())
    trained = [P for P in own.parameters() if P.requires_grad]
    assert {id(P) for P in trained} == {id(P) for P in own.factors.parameters()}
    assert sum(P.numel() for P in trained) == lora_numbers([(6, 6), (10, 6)] * 2, 2) == 112
    adam = torch.optim.AdamW(own.parameters(), 0.05, weight_decay=0.1)
    losses = []
    for _ in range(20):
        loss = at.cross_entropy(own(IDS), IDS)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3
    for name, P in own.model.state_dict().items():
        assert torch.equal(P, before[name]), name
    state = sum(X.numel() for one in adam.state.values() for X in one.values() if X.ndim)
    assert state == 2 * 112, "the optimiser keeps two moments of each trained number"


def test_two_tasks_are_two_adapters_on_one_model():
    one, other = adapted(0), adapted(0)
    for P in other.factors.parameters():
        P.data = P.data.flip(0) * 0.5
    said = [net(IDS) for net in (one, other)]
    assert (said[0] - said[1]).abs().max() > 0.1
    files = [{name: P.clone() for name, P in net.factors.state_dict().items()} for net in (one, other)]
    for k in (1, 0, 1):
        one.factors.load_state_dict(files[k])
        compare(one(IDS), said[k], atol=1e-12)
    plain = model()
    plain.load_state_dict(one.merged(), strict=False)
    compare(plain(IDS), said[1], atol=1e-12)


def test_a_batch_may_hold_an_adapter_for_each_text(rng):
    X, W, b = (rng.standard_normal(s) for s in ((4, 3, 5), (5, 7), 7))
    A, B = rng.standard_normal((4, 5, 2)), rng.standard_normal((4, 2, 7))
    together = an.lora_linear(X, W, b, A, B)[0]
    for k in range(4):
        compare(together[k], X[k] @ an.lora_merge(W, A[k], B[k])[0] + b, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_factors_have_the_dtype_of_their_maps(dtype):
    own = at.LoRA(model().to(dtype), 2, NAMES)
    assert {P.dtype for P in own.factors.parameters()} == {dtype}
    assert own(IDS).dtype == dtype


def test_the_work_is_what_the_page_counts():
    n, i, o, r = 13, 11, 7, 3
    args = [torch.zeros(s) for s in ((n, i), (i, o), (o,), (i, r), (r, o))]
    counts = []
    for call in (lambda: at.linear(*args[:3]), lambda: at.lora_linear(*args)):
        with FlopCounterMode(display=False) as counter:
            call()
        counts.append(counter.get_total_flops())
    assert counts == [2 * n * i * o, 2 * n * i * o + 2 * n * r * (i + o)]


def test_first_factors_have_the_variance_that_the_page_states():
    torch.manual_seed(4)
    own = at.LoRA(at.DecoderOnly(11, 60, 2, 90, layers=1), 20, "*.query.*").factors.tree()
    A = own["layers"]["0"]["attention"]["query"]["A"]
    compare(A.var().item() * 60, 1.0, rtol=0.1)


# the study -----------------------------------------------------------------------------------------------------------


def test_articles_are_in_one_part_and_none_is_repeated():
    parts = lora_study.news()
    every = [text for texts in parts.values() for text in texts]
    assert len(set(every)) == len(every) == 289
    from attnmath.docs import shingles

    seen = {s for text in parts["train"] for s in shingles(text)}
    share = [np.mean([s in seen for s in shingles(text)]) for text in parts["test"]]
    assert max(share) < 0.5


def test_a_method_trains_what_its_name_says():
    counts = {}
    for method in lora_study.METHODS:
        _, own = lora_study.prepared(method, 1)
        counts[method] = sum(P.numel() for P in own)
        assert all(P.requires_grad for P in own)
    maps = [(96, 96)] * 12 + [(96, 384), (384, 96)] * 3
    assert counts["attention 16"] == lora_numbers(maps[:12], 16)
    for r in (1, 4, 16):
        assert counts[f"all {r}"] == lora_numbers(maps, r)
    network, _ = lora_study.prepared("vectors", 1)
    assert counts["full"] == sum(P.numel() for P in network.parameters()) == 446_304
    assert counts["vectors"] == sum(P.numel() for P in network.parameters() if P.ndim == 1)
    assert counts["words"] == 1024 * 96
    assert counts["last"] == sum(P.numel() for P in network.get_submodule("layers.2").parameters()) + 2 * 96


def test_the_committed_record_is_whole():
    record = json.loads(RECORD.read_text())
    assert lora_study.record(record["before"], record["sweep"], record["runs"]) == record
    assert list(record["sweep"]) == list(lora_study.METHODS) == list(lora_study.CHOSEN["news"])
    for method, swept in record["sweep"].items():
        assert list(swept) == [f"{rate:g}" for rate in lora_study.RATES[method]]
    assert len({len(rates) for rates in lora_study.RATES.values()}) == 1, "every method has as many rates"
    pairs = [(aim, method) for aim, chosen in lora_study.CHOSEN.items() for method in chosen]
    assert list(record["runs"]) == [f"{method}, {aim}" for aim, method in pairs]
    for aim, method in pairs:
        runs, rates = record["runs"][f"{method}, {aim}"], lora_study.RATES[method]
        assert list(runs) == [str(seed) for seed in lora_study.SEEDS]
        best = lora_study.best(record["sweep"][method], aim)
        assert {one["rate"] for one in runs.values()} == {lora_study.CHOSEN[aim][method]} == {best}
        assert min(rates) < best < max(rates), "the grid is wide enough"
    assert record["before"]["text"]["train"]["articles"] == len(lora_study.news()["train"])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["full", "all 4", "last"])
def test_the_committed_study_begins_as_a_run_does_today(method):
    record = json.loads(RECORD.read_text())["runs"][f"{method}, news"]["2"]
    _, losses, trained = lora_study.train(method, 2, record["rate"], steps=2)
    compare(np.array(losses), record["first"][:2], name=method, atol=2e-4)
    assert trained == record["trained"]


@pytest.mark.slow
def test_changes_are_cut_to_the_best_of_each_rank():
    from attnmath.low_rank import best_error
    from attnmath.tasks import lm

    changed = lm.load()
    torch.manual_seed(3)
    with torch.no_grad():
        for P in changed.parameters():
            P.add_(0.02 * torch.randn_like(P))
    texts = lora_study.news()["test"][:2]
    whole = lora_study.bits(changed, texts)
    old, new = lora_study.linear_maps(lm.load()), lora_study.linear_maps(changed)
    found = lora_study.changes(changed, texts)
    assert list(found["singular values"]) == list(old) and len(old) == 18
    for name, values in found["singular values"].items():
        left = np.sqrt((np.array(values)[4:] ** 2).sum())
        compare(left, best_error(new[name] - old[name], 4), name=name, atol=1e-3)
    assert found["cut"]["96"] == whole != found["cut"]["0"]
