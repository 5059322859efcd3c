"""Files of numbers, a line a user: `user item item …`.

LightGCN's and S3-Rec's lists, SASRec's pairs (a list of one item) and NCF's negatives, which begin with `(user,item)`,
are all read by one kernel that goes over the bytes once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist.data.csv_lines import SHOWN, blocks_of_lines, lines_at
from shortlist.data.encode import OnBad
from shortlist.data.sniff import refuse_other_content
from shortlist.errors import DataError

Numbers: TypeAlias = npt.NDArray[np.int64]

_MOST_DIGITS = 18  # so many fit into 64 bits whatever they are
_BAD, _DIGIT, _SPACE, _END = range(4)


@dataclass(frozen=True)
class UserLines:
    """The events in the order of the file, and which are the `first` of their lines; `n_dropped` lines were bad."""

    users: Numbers
    items: Numbers
    first: npt.NDArray[np.bool_]
    n_dropped: int

    def dropped(self, path: Path, pattern: str) -> dict[str, int]:
        """What was left out, in words; nothing where every line could be read."""
        return {f"lines of {path.name} that are not {pattern}": self.n_dropped} if self.n_dropped else {}


def read_lists(
    path: Path, pattern: str, *, on_bad: OnBad = "raise", separators: bytes = b"", least: int = 1, most: int = 0
) -> UserLines:
    """Read a file of lists.

    Args:
        path: the file; it may be gzipped.
        pattern: how a line is written, for messages.
        on_bad: whether lines that are not written so are refused or left out.
        separators: what may stand between numbers besides blanks and tabs.
        least: how many numbers a line has at least, blank lines apart.
        most: how many it has at most; 0: any number.
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
            f"{path}: {n_bad:,} of {n_lines - n_blank:,} lines are not written as {pattern} with whole numbers "
            f"(first: {shown}). Mend the file, or pass on_bad='drop' to leave those lines out"
        )
    users, items = np.concatenate(chunks, axis=1) if chunks else np.empty((2, 0), np.int64)
    if not len(items):
        raise DataError(f"{path}: there are no items in its {n_lines:,} lines; expected lines written as {pattern}")
    return UserLines(users, items, np.concatenate(firsts), n_bad)


def refuse_several_lines(path: Path, lists: UserLines, expected: str) -> None:
    """Refuse a file in which a user has several lines; `expected` ends the message."""
    heads = np.sort(lists.users[lists.first])
    twice = np.unique(heads[1:][heads[1:] == heads[:-1]])
    if len(twice):
        raise DataError(f"{path}: {len(twice):,} users such as {twice[0]} have several lines; expected {expected}")


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
    """Fill `out` with user and item of each event; a line that cannot be read adds none. Returns their number.

    `first` says which are the first of their lines. `state` holds the number of lines, of bad ones and of blank ones,
    then where the first bad ones are.
    """
    at = begin = 0  # where the next event goes, and where those of this line began
    user = number = 0
    digits = count = 0  # of the number that is being read; of numbers in this line
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
