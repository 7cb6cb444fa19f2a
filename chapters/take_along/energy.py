# What a training run and a written token take. Put in the numbers of your device.
H100 = {"peak": 989e12, "bandwidth": 3.35e12, "watts": 700}  # 16 bits, dense; SXM


def training(parameters, tokens, device=H100, utilisation=0.4, overhead=1.1):
    """Device hours and kilowatt hours of a run; overhead: of the centre (PUE).

    The watts of a device are not those of its computer: processors, memory, network and
    fans come on top. Use metered watts for each device if you have them.
    """
    hours = 6 * parameters * tokens / (3600 * utilisation * device["peak"])
    return hours, hours * device["watts"] * overhead / 1000


def utilisation(parameters, tokens, hours, device=H100):
    """The share of the peak that a run of so many device hours has attained."""
    used = 6 * parameters * tokens / (3600 * hours * device["peak"])
    if used > 1:
        raise ValueError(f"a utilisation of {used:.2f}: one of the numbers is wrong")
    return used


def joules_per_token(parameters, texts, kept, device=H100, size=2, overhead=1.1):
    """The least energy of a written token while `texts` texts are written together.

    kept: numbers of keys and values that a text keeps. A step reads all weights once
    and all caches; it does 2 operations for each weight and text, and about 2 for each
    number kept (more where heads share keys). The longer of the two times counts.
    """
    traffic = size * (parameters + texts * kept) / device["bandwidth"]
    arithmetic = 2 * texts * (parameters + kept) / device["peak"]
    seconds = max(traffic, arithmetic)
    return seconds * device["watts"] * overhead / texts
