"""Files of integers with lines `user item item …`.

One kernel reads the lists of LightGCN and S3-Rec, the pairs of SASRec (lists of one item) and the negatives of NCF
(lines that begin with `(user,item)`). It goes over the bytes once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist.data.csv_lines import SHOWN, blocks_of_lines, lines_at
from shortlist.data.encode import OnBad, fix_or_drop
from shortlist.data.sniff import refuse_other_content
from shortlist.errors import DataError

Numbers: TypeAlias = npt.NDArray[np.int64]

_MOST_DIGITS = 18  # any number of 18 digits fits into 64 bits
_BAD, _DIGIT, _SPACE, _END = range(4)


@dataclass(frozen=True)
class UserLines:
    """The events in file order. `first` marks the first event of each line; `n_dropped` lines could not be read."""

    users: Numbers
    items: Numbers
    first: npt.NDArray[np.bool_]
    n_dropped: int

    def dropped(self, path: Path, pattern: str) -> dict[str, int]:
        """Return the number of dropped lines with its cause; empty if there are none."""
        return {f"lines of {path.name} that are not {pattern}": self.n_dropped} if self.n_dropped else {}


def read_lists(
    path: Path, pattern: str, *, on_bad: OnBad = "raise", separators: bytes = b"", least: int = 1, most: int = 0
) -> UserLines:
    """Read a file of lists.

    Args:
        path: the file; it may be gzipped.
        pattern: how a line is written, for messages.
        on_bad: `"raise"` an error for lines that do not match the pattern, or `"drop"` them.
        separators: characters allowed between numbers besides blanks and tabs.
        least: minimum number of numbers in a line that is not blank.
        most: maximum number of numbers; 0 for no limit.
    """
    refuse_other_content(path, None)
    kinds = np.full(256, _BAD, np.uint8)
    kinds[list(b"0123456789")] = _DIGIT
    kinds[list(b" \t\r" + separators)] = _SPACE
    kinds[10] = _END
    state = np.zeros(3 + SHOWN, np.int64)
    chunks, firsts = [], []
    for block in blocks_of_lines(path):
        data = np.frombuffer(block, np.uint8)
        out = np.empty((2, len(block) // 2 + 1), np.int64)
        first = np.empty(out.shape[1], np.bool_)
        size = _parse(data, kinds, least, most, state, out, first)
        chunks.append(out[:, :size].copy())
        firsts.append(first[:size].copy())
    n_lines, n_bad, n_blank = state[:3].tolist()
    if n_bad and on_bad == "raise":
        numbers = state[3 : 3 + n_bad].tolist()
        shown = ", ".join(f"line {number:,} {text}" for number, text in zip(numbers, lines_at(path, numbers)))
        raise DataError(
            f"{path}: {n_bad:,} of {n_lines - n_blank:,} lines are not written as {pattern} with integers "
            f"(first: {shown})",
            code="bad-rows",
            hint=fix_or_drop("file", "lines"),
        )
    users, items = np.concatenate(chunks, axis=1) if chunks else np.empty((2, 0), np.int64)
    if not len(items):
        raise DataError(
            f"{path} has no items in its {n_lines:,} lines; expected lines written as {pattern}", code="empty-data"
        )
    return UserLines(users, items, np.concatenate(firsts), n_bad)


def refuse_several_lines(path: Path, lists: UserLines, expected: str) -> None:
    """Refuse a file in which a user has several lines; `expected` ends the message."""
    heads = np.sort(lists.users[lists.first])
    repeated = np.unique(heads[1:][heads[1:] == heads[:-1]])
    if len(repeated):
        raise DataError(
            f"{path}: {len(repeated):,} users have several lines (first: user {repeated[0]}); expected {expected}",
            code="bad-rows",
        )


@kernel
def _parse(
    data: npt.NDArray[np.uint8],
    kinds: npt.NDArray[np.uint8],
    least: int,
    most: int,
    state: Numbers,
    out: npt.NDArray[np.int64],
    first: npt.NDArray[np.bool_],
) -> Any:
    """Fill `out` with the user and item of each event and return the number of events; skip bad lines.

    `first` marks the first event of each line. `state` counts lines, bad lines and blank lines, followed by the line
    numbers of the first bad lines.
    """
    at = begin = 0  # positions of the next event and of the line's first event
    user = number = 0
    digits = count = 0  # digits of the current number; numbers in the current line
    good = True
    for p in range(len(data)):
        kind = kinds[data[p]]
        if kind == _DIGIT:
            digits += 1
            number = number * 10 + (data[p] - 48)
            continue
        if digits > 0:
            good = good and digits <= _MOST_DIGITS
            if count == 0:
                user = number
            else:
                out[0, at], out[1, at] = user, number
                first[at] = count == 1
                at += 1
            count += 1
            number = digits = 0
        if kind == _BAD:
            good = False
        elif kind == _END:
            state[0] += 1
            if good and count == 0:
                state[2] += 1
            elif not good or count < least or (most > 0 and count > most):
                if state[1] < SHOWN:
                    state[3 + state[1]] = state[0]
                state[1] += 1
                at = begin
            begin, count, good = at, 0, True
    return at
