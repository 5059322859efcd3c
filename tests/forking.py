"""Calls in a forked child, each under a deadline, so that one that hangs is a failure and not a stuck suite."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

import shortlist as sl

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
HANGS = "it hangs"
Calls = Mapping[str, Callable[[], Any]]


def plain(found: Any) -> Any:
    """An answer as Python values that can be compared and sent."""
    if isinstance(found, sl.Recommendations):
        return [found.queries, found.ids, plain(found.scores), found.skipped]
    if isinstance(found, pl.DataFrame):
        return [found.schema, found.rows()]
    if isinstance(found, np.ndarray):
        return found.tolist()
    return [plain(one) for one in found] if isinstance(found, list | tuple) else found


def result(call: Callable[[], Any]) -> Any:
    """What a call gives, or the error of ours that it ends with."""
    try:
        return plain(call())
    except sl.ShortlistError as error:
        return f"{type(error).__name__}: {error}"


def in_a_child(calls: Calls, deadline: float = 20) -> dict[str, Any]:
    """The results of all calls, made one after the other in a forked child; after one that hangs, in another child."""
    pl.DataFrame({"a": [1], "b": [2]}).cast(pl.Int8)  # polars' threads are running
    context = multiprocessing.get_context("fork")
    found: dict[str, Any] = {}
    while len(found) < len(calls):
        left = {name: call for name, call in calls.items() if name not in found}
        ours, theirs = context.Pipe()
        child = context.Process(target=_answer, args=(theirs, left), daemon=True)
        child.start()
        theirs.close()
        try:
            for name in left:
                if not ours.poll(deadline):
                    found[name] = HANGS
                    break
                found[name] = ours.recv()
        finally:
            child.kill()
            child.join()
    return found


def _answer(pipe: Any, calls: Calls) -> None:
    for call in calls.values():
        try:
            pipe.send(result(call))
        except BaseException as error:
            pipe.send(f"{type(error).__name__}: {error}")
    pipe.recv()  # wait to be killed
