"""What a training run takes: device hours, energy, and how much of the devices' peak it used.

`RUNS` holds what was published about real runs. Everything else is computed from it.
"""

from dataclasses import dataclass

from attnmath import _require

Number = float | int


@dataclass(frozen=True)
class TrainingRun:
    """What was published about one run.

    Attributes
    ----------
    parameters, tokens : N and D.
    hours : device hours, all devices together.
    peak : operations a second of one device, dense, in the format of the run.
    watts : for one device.
    metered : whether the watts were measured; otherwise they are the most that the device may draw.
    overhead : the energy of the whole centre over that of its computers (PUE), None if it was not published.
    devices : how many worked at a time, None if it was not published; where it changed, the most.
    """

    parameters: Number
    tokens: Number
    hours: Number
    peak: Number
    watts: Number
    metered: bool
    overhead: Number | None
    devices: int | None

    @property
    def flops(self) -> float:
        """6ND, the operations that the model itself needs."""
        return 6 * self.parameters * self.tokens

    @property
    def days(self) -> float | None:
        """The hours divided evenly among the devices, without a pause; None where their number was not published."""
        return None if self.devices is None else self.hours / self.devices / 24


V100, A100, H100 = 125e12, 312e12, 989e12  # peaks in 16 bits, dense, as published
# GPT-3: Patterson et al. (2021), table 4. BLOOM: Luccioni et al. (2023), devices as 48 computers of 8 on average.
# Llama 3.1: the model card; "up to 16K" devices for the largest in Dubey et al. (2024), section 3.3.1.
RUNS = {
    "GPT-3": TrainingRun(175e9, 300e9, 10_000 * 14.8 * 24, V100, 330, True, 1.1, 10_000),
    "BLOOM": TrainingRun(176e9, 366e9, 1_082_990, A100, 400, False, 1.2, 384),
    "Llama 3.1 8B": TrainingRun(8.03e9, 15e12, 1.46e6, H100, 700, False, None, None),
    "Llama 3.1 70B": TrainingRun(70.6e9, 15e12, 7.0e6, H100, 700, False, None, None),
    "Llama 3.1 405B": TrainingRun(405e9, 15.6e12, 30.84e6, H100, 700, False, None, 16_384),
}


def device_hours(flops: Number, peak: Number, utilisation: Number) -> float:
    r"""The hours that one device would need.

    .. math:: H = \frac{C}{3600\,u\,F}

    Parameters
    ----------
    flops : C, the operations of the run.
    peak : F, operations a second of a device.
    utilisation : u, the share of the peak that the run attains, in (0, 1].

    Returns
    -------
    Hours; several devices share them.

    Raises
    ------
    ValueError
        If an argument is not positive, or the utilisation is above 1.

    References
    ----------
    Chowdhery et al. (2022), section 4.1, for the utilisation. Chapter 8, eq:device-hours.

    Examples
    --------
    >>> round(device_hours(6 * 7e9 * 1.4e11, 989e12, 0.4))  # 7 billion parameters, 20 tokens each
    4129
    """
    _require.positive("flops", flops)
    _require.positive("peak", peak)
    _share("utilisation", utilisation)
    return flops / (3600 * utilisation * peak)  # eq:device-hours


def energy(hours: Number, watts: Number, overhead: Number = 1.0) -> float:
    r"""The energy of a run in megawatt hours.

    .. math:: E = H\,p\,\eta

    Parameters
    ----------
    hours : H, device hours, all devices together.
    watts : p, for one device and its share of the rest of its computer.
    overhead : :math:`\eta`, at least 1: the energy of the whole centre over that of its computers.

    Returns
    -------
    MWh.

    Raises
    ------
    ValueError
        If hours or watts are not positive, or the overhead is below 1.

    References
    ----------
    Patterson et al. (2021), section 2. Chapter 8, eq:training-energy.

    Examples
    --------
    >>> round(energy(hours=1000, watts=700, overhead=1.1), 3)
    0.77
    """
    _require.positive("hours", hours)
    _require.positive("watts", watts)
    if not overhead >= 1:
        raise ValueError(
            f"overhead is {overhead!r}; it must be >= 1, since a centre takes at least what its computers do"
        )
    return hours * watts * overhead / 1e6  # eq:training-energy


def utilisation(flops: Number, hours: Number, peak: Number) -> float:
    r"""The share of the devices' peak that a run used.

    .. math:: u = \frac{C}{3600\,H\,F}

    Parameters
    ----------
    flops : C, the operations that the model needs: 6ND, and nothing that is computed twice.
    hours : H, device hours, all devices together.
    peak : F, operations a second of a device.

    Returns
    -------
    u. A value above 1 means that one of the three is wrong.

    References
    ----------
    Chowdhery et al. (2022), section 4.1 (model FLOPs utilisation). Chapter 8, eq:utilisation.

    Examples
    --------
    >>> run = RUNS["GPT-3"]
    >>> round(utilisation(run.flops, run.hours, run.peak), 3)
    0.197
    """
    for name, value in (("flops", flops), ("hours", hours), ("peak", peak)):
        _require.positive(name, value)
    return flops / (3600 * hours * peak)  # eq:utilisation


def hours_on_many(devices: int, serial: Number) -> float:
    r"""The device hours of a run on several devices, in units of those on one.

    .. math:: H_N / H_1 = 1 + s\,(N - 1)

    Parameters
    ----------
    devices : N.
    serial : s, the share of the time on one device that does not get shorter, in [0, 1].

    Returns
    -------
    The ratio; the energy grows by the same, as long as a device that waits draws what a working one draws.

    Raises
    ------
    ValueError
        If there is no device, or the share is outside [0, 1].

    References
    ----------
    Amdahl (1967). Chapter 8, eq:hours-on-many.

    Examples
    --------
    >>> hours_on_many(devices=11, serial=0.01)
    1.1
    """
    _require.count("devices", devices)
    if serial:
        _share("serial", serial)
    return 1 + serial * (devices - 1)  # eq:hours-on-many


def break_even(tokens: Number, reading: Number, writing: Number) -> float:
    r"""After how many written tokens a model has cost as much in use as in training.

    .. math:: T = 3 D\,\frac{u_w}{u_r}

    Parameters
    ----------
    tokens : D, the tokens of the training.
    reading, writing : :math:`u_r` and :math:`u_w`, the utilisation of the training and of the writing, in (0, 1].

    Returns
    -------
    T, for devices of the same kind that draw the same.

    References
    ----------
    Chapter 8, eq:break-even.

    Examples
    --------
    >>> break_even(tokens=1e9, reading=0.4, writing=0.04)
    300000000.0
    """
    _require.positive("tokens", tokens)
    _share("reading", reading)
    _share("writing", writing)
    return 3 * tokens * writing / reading  # eq:break-even


def _share(name, value):
    _require.positive(name, value)
    if value > 1:
        raise ValueError(f"{name} is {value!r}; it is a share, at most 1")
