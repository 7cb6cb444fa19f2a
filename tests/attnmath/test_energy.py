"""Energy: the runs agree with what was published, and input that cannot be meant is refused in one line."""

import re
from dataclasses import replace

import pytest

from attnmath.energy import RUNS, break_even, device_hours, energy, hours_on_many, utilisation


def test_the_runs_give_the_numbers_that_were_published_beside_them():
    """Patterson et al.: 24.6 TFLOP/s of a V100, 1,287 MWh; Luccioni et al.: 433.196 MWh; Llama 3: 3.8e25 operations."""
    gpt3, bloom, llama = (RUNS[name] for name in ("GPT-3", "BLOOM", "Llama 3.1 405B"))
    attained = utilisation(gpt3.flops, gpt3.hours, gpt3.peak) * gpt3.peak
    assert attained == pytest.approx(24.6e12, rel=5e-3)
    assert energy(gpt3.hours, gpt3.watts, gpt3.overhead) == pytest.approx(1287, rel=5e-3)
    assert energy(bloom.hours, bloom.watts) == pytest.approx(433.196, rel=1e-5)
    assert llama.flops == pytest.approx(3.8e25, rel=5e-3)
    card = sum(RUNS[f"Llama 3.1 {size}"].hours for size in ("8B", "70B", "405B"))
    assert card == pytest.approx(39.3e6, rel=1e-3), "the sum that the model card states"


def test_days_are_hours_over_devices_and_agree_with_what_was_published():
    """Patterson et al.: 14.8 days; Luccioni et al.: 118 days, 5 hours, 41 minutes."""
    assert RUNS["GPT-3"].days == pytest.approx(14.8, rel=1e-9)
    assert RUNS["BLOOM"].days == pytest.approx(118 + (5 + 41 / 60) / 24, rel=0.01)
    assert RUNS["Llama 3.1 405B"].days == pytest.approx(30.84e6 / (16 * 1024) / 24, rel=1e-9)
    assert [name for name, run in RUNS.items() if run.days is None] == ["Llama 3.1 8B", "Llama 3.1 70B"]
    assert [run.devices for run in RUNS.values()] == [10_000, 48 * 8, None, None, 16 * 1024]
    run = replace(RUNS["GPT-3"], devices=20_000)
    assert run.days == pytest.approx(7.4, rel=1e-9) and run.flops == RUNS["GPT-3"].flops


def test_no_run_used_more_than_there_is():
    for name, run in RUNS.items():
        assert 0.1 < utilisation(run.flops, run.hours, run.peak) < 0.5, name


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: device_hours(0, 1e15, 0.4), "flops is 0; it must be > 0"),
        (lambda: device_hours(1e20, -1e15, 0.4), "peak is -1000000000000000.0; it must be > 0"),
        (lambda: device_hours(1e20, 1e15, 40), "utilisation is 40; it is a share, at most 1"),
        (lambda: device_hours(1e20, 1e15, 0), "utilisation is 0; it must be > 0"),
        (lambda: energy(10, 0), "watts is 0; it must be > 0"),
        (lambda: energy(float("nan"), 700), "hours is nan; it must be > 0"),
        (lambda: energy(10, 700, 0.9), "overhead is 0.9; it must be >= 1"),
        (lambda: utilisation(1e20, 0, 1e15), "hours is 0; it must be > 0"),
        (lambda: hours_on_many(0, 0.1), "devices is 0"),
        (lambda: hours_on_many(8, 1.5), "serial is 1.5; it is a share, at most 1"),
        (lambda: hours_on_many(8, -0.1), "serial is -0.1; it must be > 0"),
        (lambda: break_even(-1, 0.4, 0.1), "tokens is -1; it must be > 0"),
        (lambda: break_even(1e9, 0.4, 10), "writing is 10; it is a share, at most 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, said):
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        call()
    assert "\n" not in str(caught.value)
