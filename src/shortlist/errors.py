"""Errors and warnings that a user can cause.

Each message says what is wrong, what was found and what to do.
"""

from __future__ import annotations


class ShortlistError(Exception):
    """Base class of all errors that a user can cause and fix.

    The command line prints only the message, without a traceback.
    """


class DataError(ShortlistError, ValueError):
    """Invalid input data: a missing column, a null id, a negative weight."""


class SettingError(ShortlistError, ValueError):
    """A setting or an argument with an invalid value."""


class UnknownIdError(ShortlistError, KeyError):
    """An id that is not in the model or in the data."""

    def __str__(self) -> str:
        # KeyError would show the repr of the message, with quotes.
        return str(self.args[0]) if self.args else ""


class NotFittedError(ShortlistError, RuntimeError):
    """A recommender was used before it was fitted: call `fit` first."""


class StorageError(ShortlistError, OSError):
    """A model directory cannot be written, or it is damaged, incomplete or not from Shortlist."""


class ShortlistWarning(UserWarning):
    """A call that is allowed but likely to give misleading results."""
