"""Errors and warnings that a user can cause.

Each message says what is wrong, what was found and what to do. Programs branch on the attributes:

* `code`: a short stable name of the problem, one of `CODES`;
* `field`: the name of the argument, setting or column at fault, or None;
* `hint`: what to do, or None;
* `problem`: what is wrong and what was found. The message is the problem and the hint.
"""

from __future__ import annotations

from typing import Self

from shortlist._wording import Message, with_hint

CODES = {
    "error": "any other problem",
    "invalid-data": "other invalid input data",
    "invalid-setting": "a setting or an argument with an invalid value",
    "unknown-id": "another unknown id",
    "not-fitted": "the recommender has not been fitted",
    "storage": "another problem with a file or directory of Shortlist",
    "no-such-file": "no file, folder or match at the path",
    "unreadable-file": "a data file that cannot be read: not its format, not UTF-8, damaged",
    "empty-data": "no events, no rows or no contexts",
    "missing-column": "no column of that name",
    "column-type": "a column of a type that cannot be used",
    "bad-rows": "rows with null, negative or otherwise unusable values",
    "no-times": "the events have no times, but the call needs them",
    "leaked-data": "test events among the events to learn from",
    "unknown-context": "a context that the model or the data does not have",
    "unknown-item": "an item that the model or the data does not have",
    "unknown-setting": "a setting that does not exist",
    "unknown-metric": "a metric that does not exist or was not evaluated",
    "unknown-model": "no recommender of that name",
    "unknown-dataset": "no bundled data set of that name",
    "no-effect": "a setting that would be ignored",
    "diverged": "numbers grew out of range while fitting",
    "too-large": "more than fits in memory",
    "package-missing": "an optional package that is not installed",
    "model-missing": "no model at the path",
    "model-damaged": "a model with missing, altered or impossible content",
    "model-unsupported": "a model of a kind or format that this version cannot read or save",
    "checkpoint-differs": "a checkpoint, draft or study of another fit, job or search",
    "checkpoint-damaged": "a checkpoint, draft or study with missing or altered content",
    "target-exists": "the place to write to is taken",
    "not-writable": "the place cannot be written to",
    "busy": "another process uses the file",
    "stale-index": "an index of another model, or of the model before it changed",
    "kernel-cache": "compiled kernels cannot be cached",
    "forked": "a call that does not work after a fork",
}
"""The codes of errors and warnings with their meaning."""


class ShortlistError(Exception):
    """Base class of all errors that a user can cause and fix.

    The command line prints only the message, without a traceback.

    Args:
        message: the problem: what is wrong and what was found.
        code: one of `CODES`; by default that of the class.
        field: the argument, setting or column at fault.
        hint: what to do; it is appended to the message.
    """

    code: str = "error"
    field: str | None = None
    hint: str | None = None

    def __init__(
        self, message: str = "", *, code: str | None = None, field: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(with_hint(message, hint))
        self.problem = message
        self.code = code or type(self).code
        self.field = field
        self.hint = hint

    def prefixed(self, prefix: str, *, code: str | None = None) -> Self:
        """Return the same error with `prefix` before its message; `code` replaces a code that is that of the class."""
        kept = self.code if code is None or self.code != type(self).code else code
        return type(self)(Message("{}{}", prefix, self.problem), code=kept, field=self.field, hint=self.hint)


class DataError(ShortlistError, ValueError):
    """Invalid input data: a missing column, a null id, a negative weight."""

    code = "invalid-data"


class SettingError(ShortlistError, ValueError):
    """A setting or an argument with an invalid value."""

    code = "invalid-setting"


class UnknownIdError(ShortlistError, KeyError):
    """An id that is not in the model or in the data."""

    code = "unknown-id"

    def __str__(self) -> str:
        # KeyError would show the repr of the message, with quotes.
        return str(self.args[0]) if self.args else ""


class NotFittedError(ShortlistError, RuntimeError):
    """A recommender was used before it was fitted: call `fit` first."""

    code = "not-fitted"


class StorageError(ShortlistError, OSError):
    """A model directory cannot be written, or it is damaged, incomplete or not from Shortlist."""

    code = "storage"


class ShortlistWarning(UserWarning):
    """A call that is allowed but likely to give misleading results. `hint` says what to do, or is None."""

    hint: str | None = None

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(with_hint(message, hint))
        self.hint = hint
