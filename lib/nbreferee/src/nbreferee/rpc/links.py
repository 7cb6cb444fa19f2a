"""The objects that both sides have: which they are, how long their changes are followed, what has changed.

An array or a tensor is followed as long as both sides have it, a list, dict or set during the question in which it
crosses. What crosses in a question is held on both sides until that question ends, so there it is sent once.
A frame is one question under way; frames end at the same moment on both sides.

All this costs the same whether a test asks ten questions or ten thousand: what one side lets go is told to the other,
and of arrays that both keep, beyond the first few only those are followed that crossed or changed a short while ago.
"""

import weakref
from collections import deque

import numpy as np

__all__ = ["DEAD", "HISTORY", "OBJECT", "Links"]

OBJECT, HISTORY, DEAD = 0, 1, 2  # what is told to be let go: a kept object, a history, a link
FEW = 128  # arrays that are followed however long ago they crossed
RECENT = 128  # questions for which any other is followed
FOLLOWED = 1 << 20  # bytes of an array; larger ones are followed during the question alone
FOLLOWED_TOGETHER = 16 << 20
LENT = 16  # arrays that the test's functions have returned last: changes count even if the answer has dropped them
LISTS = 64  # lists, dicts and sets of ended callbacks that are followed until the whole question ends
PLACES = 32  # of the last digits: so much rounding is no change


class _Frame:
    """A question under way, what crossed in it, and the one inside it that ended last."""

    __slots__ = ("aside", "inner", "links")

    def __init__(self, aside=False):
        self.links, self.inner, self.aside = [], None, aside


class _Link:
    """One object, and what it was like after the last message."""

    __slots__ = ("frame", "key", "letter", "number", "ref", "size", "state", "strong", "turn")

    def __init__(self, key, letter, value, size, forget):
        self.key, self.letter, self.number, self.strong, self.size = key, letter, id(value), None, size
        self.ref = None if letter in "lds" else weakref.ref(value, forget)
        self.state = self.frame = None
        self.turn = 0

    def get(self):
        return self.strong if self.strong is not None else self.ref and self.ref()


class Links:
    """The links of one end of a conversation.

    Parameters
    ----------
    exchange : that end.
    first : the number before its first key: keys of the trusted side are even, those of the other odd.

    Attributes
    ----------
    drops : what the other side need not keep for us any more, as pairs of a number and DEAD, HISTORY or OBJECT.
    """

    def __init__(self, exchange, first):
        self._plugins, self._last = exchange.plugins, first
        self._links, self._keys, self._cuts = {}, {}, {}  # by key; key by id; key by id of what goes without history
        self._frames, self._ended = [], None
        self._lists = deque()  # links of lists, …, that crossed in callbacks which have ended
        self._lent, self._guest = deque(maxlen=LENT), first % 2
        self._turn = self._bytes = 0
        self.drops = {}

    def __len__(self):
        return len(self._links)

    def new_key(self):
        self._last += 2
        return self._last

    def get(self, key):
        """The link with a key whose object is alive, or None."""
        link = self._links.get(key)
        return link if link is not None and link.get() is not None else None

    def key_of(self, value, cut=False):
        """The key of an object, or None."""
        key = (self._cuts if cut else self._keys).get(id(value))
        link = self._links.get(key)
        return key if link is not None and link.get() is value else None

    def containers(self):
        """The lists, dicts and sets that are followed."""
        return [link.get() for link in self._links.values() if link.letter in "lds"]

    def held(self, key):
        """Whether both sides hold this object: then its key says all."""
        link = self._links.get(key)
        return link is not None and link.frame is not None

    # ---- a link begins and ends

    def link(self, key, letter, value, cut=False):
        """Follow an object from now on."""
        known = self._links.get(key)
        if known is not None and known.get() is not value:
            self.unlink(known)
        if key not in self._links:
            size = self.nbytes(letter, value)
            self._links[key] = _Link(key, letter, value, size, self._forgetter(key))
            self._bytes += size
            self.drops.pop((key, DEAD), None)
        (self._cuts if cut else self._keys)[id(value)] = key
        link = self._links[key]
        link.state = self.state(letter, value)
        self.hold(link, value)

    def _forgetter(self, key):
        links = weakref.ref(self)

        def forget(_):
            here = links()
            if here is not None and key in here._links:
                here.unlink(here._links[key])
                here.drops[key, DEAD] = None

        return forget

    def unlink(self, link):
        if self._links.pop(link.key, None) is None:
            return
        self._bytes -= link.size
        link.frame = link.strong = None
        for keys in (self._keys, self._cuts):
            if keys.get(link.number) == link.key:
                del keys[link.number]

    def let_go(self, link):
        """Follow an object no more, and say so."""
        self.unlink(link)
        self.drops[link.key, DEAD] = None

    def dead(self, key):
        """The other side has the object no more."""
        if key in self._links:
            self.unlink(self._links[key])

    def clear(self):
        for link in list(self._links.values()):
            self.let_go(link)

    # ---- frames

    def begin(self, aside=False):
        """A question begins; aside, if it is none of the test's and ends nothing that is held for one question more."""
        self._frames.append(_Frame(aside))

    def hold(self, link, value):
        """An object crosses: hold it until the present question has ended."""
        frame = self._frames[-1]
        if link.frame not in self._frames:
            link.frame = frame
            frame.links.append(link)
        link.strong = value
        self._used(link)

    def _used(self, link):
        link.turn = self._turn
        self._links[link.key] = self._links.pop(link.key)  # the last one now

    def end(self):
        """The present question has ended. What came in it is held for one question more: ``net.weight.fill_(1)``."""
        frame = self._frames.pop()
        self._turn += 1
        self._relax(frame.inner)
        if self._frames:
            outer = self._frames[-1]
            self._relax(outer.inner)
            outer.inner = frame
            for link in frame.links:
                if link.letter in "lds" and link.frame is frame:
                    link.frame = self._frames[0]
                    self._lists.append(link)
                elif self._guest and link.key % 2 == 0 and link.size <= FOLLOWED:
                    self._lent.append(link.strong)
            return
        self._lists.clear()
        self._lent.clear()
        if not frame.aside or self._ended is None:
            self._relax(self._ended)
            self._ended = _Frame()
        for link in [link for link in self._links.values() if link.frame is not None]:
            if link.key % 2:
                link.frame = self._ended
                self._ended.links.append(link)
            else:
                self._loosen(link)

    def _relax(self, frame):
        for link in frame.links if frame is not None else ():
            if link.frame is frame:
                self._loosen(link)

    def _loosen(self, link):
        link.strong = link.frame = None
        if link.ref is None or link.size > FOLLOWED:
            self.unlink(link)

    def prune(self):
        """Before a message is written: follow no more than what is used."""
        while len(self._lists) > LISTS:
            link = self._lists.popleft()
            if self._links.get(link.key) is link and link not in self._lists:
                self.let_go(link)
        if len(self._links) <= FEW and self._bytes <= FOLLOWED_TOGETHER:
            return
        loose = [link for link in self._links.values() if link.frame is None]
        number = len(loose)
        for link in loose:
            if number > FEW and link.turn < self._turn - RECENT:
                number -= 1
            elif self._bytes <= FOLLOWED_TOGETHER:
                return
            self.let_go(link)

    # ---- changes

    def nbytes(self, letter, value):
        if letter in "lds":
            return 0
        return value.nbytes if letter == "a" else self._plugins.lettered(letter).nbytes(value)

    def state(self, letter, value):
        """What is equal as long as the object has not changed."""
        if letter in "ls":
            return tuple(value)
        if letter == "d":
            return tuple(x for pair in tuple(value.items()) for x in pair)
        if letter == "a":
            return value.shape, value.dtype, hash(value.tobytes()), value.flags.writeable
        return self._plugins.lettered(letter).state(value)

    def renew(self, link, value):
        """It is on both sides as it is here now."""
        link.state = self.state(link.letter, value)
        self._used(link)

    def changed(self):
        """[(link, object, whether its library knows of the change)] of all that changed here since the last message."""
        out = []
        for link in list(self._links.values()):
            value = link.get()
            if value is None:
                continue
            new = self.state(link.letter, value)
            if not _same(link.letter, link.state, new):
                plugin = self._plugins.lettered(link.letter) if link.letter not in "ldsa" else None
                out.append((link, value, plugin is None or link.state is None or plugin.bumped(link.state, new)))
                link.state = new
                self._used(link)
        return out


def _same(letter, old, new):
    if old is None:
        return False
    if letter == "s":
        return sorted(map(id, old)) == sorted(map(id, new))
    if letter in "ld":
        return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
    return old == new


# ---- what is changed for a while


def snapshot(letter, value, plugin):
    """What `put_back` needs."""
    return plugin.snapshot(value) if plugin is not None else value.copy()


def put_back(letter, value, before, plugin):
    """Undo all changes since `snapshot`; whether they were more than what adding and subtracting a step leaves."""
    if plugin is not None:
        return plugin.put_back(value, before)
    if letter == "a":
        moved = rounded = False
        if value.tobytes() != before.tobytes():
            moved, rounded = True, close(value, before)
            writeable = value.flags.writeable
            set_writeable(value, True)
            value[...] = before
            set_writeable(value, writeable)
        return moved and not rounded
    if letter == "s":
        moved = value != before
    elif letter == "l":
        moved = len(value) != len(before) or not all(map(_alike, value, before))
    else:
        moved = list(value) != list(before) or not all(_alike(value[key], before[key]) for key in before)
    if letter == "l":
        value[:] = before
    else:
        value.clear()
        value.update(before)
    return moved


def close(new, old):
    """Whether two arrays differ by rounding alone: ``x[i] += h`` and ``x[i] -= h`` leave a last digit behind."""
    if not np.issubdtype(old.dtype, np.inexact):
        return False
    with np.errstate(all="ignore"):
        room = (
            PLACES * np.finfo(old.dtype).eps * max(1.0, float(np.max(np.abs(old), where=np.isfinite(old), initial=0)))
        )
        return bool(np.all((new == old) | (abs(new - old) <= room) | ((new != new) & (old != old))))


def _alike(new, old):
    if new is old:
        return True
    if type(new) is not type(old):
        return False
    if type(new) in (float, complex):
        return close(np.asarray(new), np.asarray(old))
    return type(new) in (int, bool, str, bytes) and new == old


def set_writeable(value, flag):
    try:
        value.flags.writeable = flag
    except ValueError:  # a view of memory that is not writeable
        pass
