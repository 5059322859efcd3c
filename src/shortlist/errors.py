"""What goes wrong on a user's side, in the user's words.

Every message names the thing, what was found and what was expected, and the way out.
"""

from __future__ import annotations


class ShortlistError(Exception):
    """Base of every error a user can cause and mend; the command line prints its message without a traceback."""


class DataError(ShortlistError, ValueError):
    """The events handed in cannot be used as they are: a missing column, a null id, a negative weight."""


class SettingError(ShortlistError, ValueError):
    """A setting or an argument is outside of what is allowed."""


class UnknownIdError(ShortlistError, KeyError):
    """An id was asked for that the model or the data does not know."""

    def __str__(self) -> str:
        # KeyError would show the repr of the message, quotes and all.
        return str(self.args[0]) if self.args else ""


class NotFittedError(ShortlistError, RuntimeError):
    """A recommender was asked for answers before `fit`."""


class StorageError(ShortlistError, OSError):
    """A model directory cannot be written, or what is there is not a whole, unaltered Shortlist model."""


class ShortlistWarning(UserWarning):
    """Something is legal but likely to mislead."""
