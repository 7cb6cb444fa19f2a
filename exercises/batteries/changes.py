"""How the batteries write a wrong answer: the right one with a few of its words exchanged."""


def changed(code: str, *changes: tuple[str, str]) -> str:
    """The code with each (old, new) replaced; an old that does not stand there exactly once is an error."""
    for old, new in changes:
        if code.count(old) != 1:
            raise ValueError(f"{old!r} occurs {code.count(old)} times; choose words that occur once")
        code = code.replace(old, new)
    return code
