"""What the values of one library need to cross: a plug-in for each, and the errors that one may raise.

A plug-in is loaded in a process that has imported its library, and where the library is not installed there is none.
Each end of a conversation has an instance of its own, which may keep what belongs to that conversation.
"""

import importlib
import sys

from ..errors import NbrefereeError

__all__ = ["CannotSend", "Changed", "Garbled", "Plugin", "Plugins", "pandas_here", "torch_here"]

_MODULES = {"torch": "torch_values", "pandas": "pandas_values"}


class Garbled(NbrefereeError):
    """What the other side sent makes no sense."""


class CannotSend(NbrefereeError, TypeError):
    """A value of this side that cannot go to the other one; the text says why."""


class Changed(NbrefereeError):
    """The other side changed an object in a way that cannot be repeated here."""


def _loaded(library, *parts):
    """The module, if this process has imported it already, and to the end."""
    module = sys.modules.get(library)
    return module if all(hasattr(module, part) for part in parts) else None


def torch_here():
    """PyTorch, if this process has imported it already."""
    return _loaded("torch", "nn", "autograd")


def pandas_here():
    """pandas, if this process has imported it already."""
    return _loaded("pandas", "DataFrame", "__version__")


_HERE = {"torch": torch_here, "pandas": pandas_here}


class Plugin:
    """The values of a library, at one end of a conversation. A method that is not overridden knows none.

    Parameters
    ----------
    exchange : that end, an `nbreferee.rpc.exchange.Exchange`.

    Attributes
    ----------
    letter : of values that are followed: both sides keep such a one equal, as they do an array.
    kinds : classes of the library whose objects cross as values.
    verbs : questions that the library needs: {verb: the method that answers it}.
    """

    letter, kinds = "", ()

    def __init__(self, exchange):
        self.here, self.verbs = exchange, {}

    # ---- a value that is sent as others

    def node(self, packer, value):
        """The node of a value, or None."""

    def constant(self, family, name):
        """The constant of this name, or None."""

    def built(self, name, parts):
        """A value by its parts, which come from anywhere; None if the name is none of the library's."""

    def by_number(self, letter, number):
        """What this side keeps under a number, or None."""

    def forget(self, key):
        """The other side needs what is kept under a key no more."""

    # ---- values that are followed

    def state(self, value):
        """What is equal as long as the value has not changed."""

    def bumped(self, old, new):
        """Whether the library itself knows of the change from one state to another."""
        return True

    def content(self, packer, value, key, again, bumped):
        """What is sent of a value."""

    def made(self, key, content):
        """A new value of such a content, which comes from anywhere."""

    def change(self, value, content, *, lasting):
        """Do to a value what the other side did; of what does not last only the elements."""

    def snapshot(self, value):
        """What `put_back` needs."""

    def put_back(self, value, before):
        """Undo all changes since; whether they were more than rounding."""

    # ---- sizes, modes, words

    def nbytes(self, value):
        """The bytes of a value of the library's, or None."""

    def modes(self):
        """Modes of the library that differ from the usual ones, by name."""
        return {}

    def applied(self, modes, stack):
        """Enter the other side's modes; Garbled if they are none."""

    def words(self, value, limit):
        """(a value in few words, its elements if they are few or None), or None."""

    def cures(self):
        """{name of a type: what an answer returns instead}."""
        return {}


class Plugins:
    """The plug-ins of one end of a conversation, as far as their libraries have been imported.

    Parameters
    ----------
    exchange : that end.
    """

    def __init__(self, exchange):
        self._exchange, self._made = exchange, {}

    def __iter__(self):
        made = self._made
        for library, here in _HERE.items():
            if library not in made and here():
                self._load(library)
        return iter([plugin for plugin in made.values() if plugin is not None])

    def _load(self, library):
        try:
            module = importlib.import_module(f".{_MODULES[library]}", __package__)
            self._made[library] = module.Values(self._exchange)
        except Exception:  # a module of a student's own that bears the library's name
            self._made[library] = None
        return self._made[library]

    def of(self, library):
        """The plug-in of a library, imported if need be; None where it is not installed."""
        if library not in self._made and library in _HERE:
            try:
                importlib.import_module(library)
            except ImportError:
                return None
            return self._load(library)
        return self._made.get(library)

    def lettered(self, letter):
        """The plug-in that follows values under a letter, or None."""
        return next((plugin for plugin in self if plugin.letter == letter), None)
