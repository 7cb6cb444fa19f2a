# The 256 bytes in the order of GPT-2, printable ones first. An id is a place here.
BYTES = sorted(range(256), key=lambda b: not (33 <= b < 127 or 161 <= b != 173))


def pieces(text):  # letters, figures or signs with the one space before them, as ids
    out, last = [], None
    for c in text:
        kind = (c.isalpha(), c.isnumeric(), c.isspace())
        if kind == last:
            out[-1] += c
        elif out and last[2]:
            end = [" " + c] if out[-1][-1] == " " else [out[-1][-1], c]
            out[-1:] = [s for s in (out[-1][:-1], *end) if s]
        else:
            out.append(c)
        last = kind
    return [tuple(BYTES.index(b) for b in piece.encode()) for piece in out]


def join(ids, pair, new):  # wherever the pair occurs, from left to right
    out = ()
    for i in ids:
        out = (*out[:-1], new) if (*out[-1:], i) == pair else (*out, i)
    return out


def train(text, size):  # the merges, pairs of ids: token 256, token 257, ...
    words, merges = {}, []
    for ids in pieces(text):
        words[ids] = words.get(ids, 0) + 1
    for new in range(256, size):
        pairs = {}
        for ids, often in words.items():
            for i in range(len(ids) - 1):
                pairs[ids[i : i + 2]] = pairs.get(ids[i : i + 2], 0) + often
        merges.append(min(pairs, key=lambda pair: (-pairs[pair], pair)))
        words = {join(ids, merges[-1], new): often for ids, often in words.items()}
    return merges


def encode(text, merges):
    rank, out = {pair: 256 + i for i, pair in enumerate(merges)}, []
    for ids in pieces(text):
        while known := rank.keys() & {ids[i : i + 2] for i in range(len(ids))}:
            first = min(known, key=rank.get)  # the pair that was learned first
            ids = join(ids, first, rank[first])
        out += ids
    return out


def decode(ids, merges):
    tokens = [bytes([b]) for b in BYTES]
    for a, b in merges:
        tokens.append(tokens[a] + tokens[b])
    return b"".join(tokens[i] for i in ids).decode(errors="replace")
