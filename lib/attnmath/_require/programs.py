"""What compiled programs and their joint are given."""


def no_norm(params):
    """A joint without a norm has no parameters."""
    if params != {}:
        held = ", ".join(map(repr, params)) if isinstance(params, dict) else type(params).__name__
        raise ValueError(
            f"params of a joint without a norm hold {held}; expected an empty dict: take join=sublayer for a norm"
        )


def letters(letters, taken):
    """Different characters, none of which the program uses for itself."""
    if not isinstance(letters, str) or not letters or len(set(letters)) < len(letters):
        raise ValueError(f"letters is {letters!r}; expected a string of different characters")
    if used := sorted(set(letters) & set(taken)):
        raise ValueError(f"letters has {', '.join(map(repr, used))}, which the program uses itself: leave it out")


def text(text, tokens):
    """A text of a program's own characters that begins with its start token and has it nowhere else."""
    if not isinstance(text, str):
        raise ValueError(f"text is a {type(text).__name__}; expected a string of {tokens!r}")
    if unknown := sorted(set(text) - set(tokens)):
        raise ValueError(f"text has {', '.join(map(repr, unknown))}; the program knows {tokens!r}")
    if text.find(tokens[0]) or tokens[0] in text[1:]:
        raise ValueError(f"text is {text!r}; the program wants {tokens[0]!r} in front of it and nowhere else")


def word(word, letters):
    """A word that a program writes again: its own letters, and nothing between them."""
    if not isinstance(word, str) or set(word) - set(letters):
        raise ValueError(f"word is {word!r}; expected a string of {letters!r}")


def length(n, limit):
    """As many places as the program has positions for."""
    if n > limit:
        raise ValueError(f"the text has {n} tokens and the program places for {limit}: compile it for more")
