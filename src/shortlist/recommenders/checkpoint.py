"""A fit on disk, epoch by epoch, to go on from another day."""

from __future__ import annotations

import hashlib
import math
import os
import time
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import number, whole
from shortlist._renamed import new_settings
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import StorageError
from shortlist.objectives.pointwise_square import LossParts
from shortlist.solvers.epochs import Epoch, Loop, ResumePoint
from shortlist.solvers.stopping import EarlyStopping
from shortlist.storage import StoredModel, check_writable, load_model, read_manifest, save_model
from shortlist.storage import id_tables as table_files
from shortlist.storage.file_names import MANIFEST, is_ours
from shortlist.storage.wrap_errors import reason, storage_errors

SUFFIX = " checkpoint"  # what the kind of a stored checkpoint adds to the name of its recommender
_MEMORY = "memory."  # before the names of what a loop remembers
_NONE = -1.0  # stands for a figure that there is not: figures are not negative
_ELSEWHERE = "pass another folder, or remove this one to begin anew"


@dataclass(frozen=True, eq=False)
class CheckpointState:
    """What a checkpoint holds."""

    contexts: npt.NDArray[np.float32]
    items: npt.NDArray[np.float32]
    past: ResumePoint
    best: tuple[float, int, npt.NDArray[np.float32], npt.NDArray[np.float32] | None] | None
    # the figure, its epoch, the items, and the contexts where they do not follow from these
    memory: dict[str, npt.NDArray[Any]]  # what else its loop remembered

    def resume(self, loop: Loop, stopping: EarlyStopping | None) -> None:
        """Let the loop go on, and let `stopping` judge as if it had been there."""
        if self.best is not None and stopping is not None:
            if loop.joint and self.best[3] is None:
                raise ValueError("it has no array best_contexts")
            stopping.best, stopping.best_epoch, stopping.items, stopping.contexts = self.best
        loop.recall(self.past.number, self.memory)


class Checkpoint:
    """A folder with the state of one fit after its latest epoch, replaced in one step: a kill leaves the older one.

    `identity` says which fit it is, by settings and by digests of all that is learnt from; another fit is refused.
    """

    def __init__(
        self, path: str | PathLike[str], owner: type, settings: dict[str, Any], identity: dict[str, Any]
    ) -> None:
        self._path, self._owner, self._kind = Path(path), owner, f"{owner.__name__}{SUFFIX}"
        self._settings = {name: value for name, value in settings.items() if name != "epochs"}
        self._identity = identity
        self._written, self._took = -math.inf, 0.0  # when it was written last, and how long that took

    def due(self, share: float | None) -> bool:
        """Whether to write now, if writing may take that share of the time; None: always."""
        return share is None or time.perf_counter() - self._written >= self._took / share

    def read(self, contexts: tuple[int, int], items: tuple[int, int], epochs: int) -> CheckpointState | None:
        """What is there, None where nothing is; StorageError where that is of another fit, or of anything else.

        Args:
            contexts: the shape of what is learnt of contexts.
            items: likewise of items.
            epochs: how many there will be.
        """
        with storage_errors(f"cannot use the checkpoint '{self._path}'", _ELSEWHERE):
            return self._read(contexts, items, epochs)

    def _read(self, contexts: tuple[int, int], items: tuple[int, int], epochs: int) -> CheckpointState | None:
        if not (self._path / MANIFEST).exists():
            there = os.path.lexists(self._path)
            if there and not (self._path.is_dir() and all(map(is_ours, os.listdir(self._path)))):
                raise StorageError(f"'{self._path}' is no checkpoint; {_ELSEWHERE}")
            check_writable(self._path)  # now, and not only after the first epoch
            return None
        stored = load_model(self._path)
        if stored.kind != self._kind:
            raise StorageError(f"'{self._path}' holds a {stored.kind!r:.80}, no {self._kind!r}; {_ELSEWHERE}")
        before = new_settings(self._owner, stored.settings, warn=False)
        if different := _differences(before, self._settings, stored.extra.get("identity"), self._identity):
            raise StorageError(f"the checkpoint '{self._path}' is of another fit: {different}; {_ELSEWHERE}")
        try:
            saved = _saved(stored, contexts, items, epochs)
        except ValueError as error:
            raise self.unusable(error) from error
        if saved.past.number > epochs:
            raise StorageError(
                f"the checkpoint '{self._path}' is at epoch {saved.past.number} already, beyond epochs={epochs}; "
                f"ask for more, or {_ELSEWHERE}"
            )
        return saved

    def unusable(self, error: ValueError) -> StorageError:
        """What to raise where something that is in it does not fit."""
        return StorageError(f"the checkpoint '{self._path}' is not usable: {reason(error)}; {_ELSEWHERE}")

    def write(
        self,
        past: ResumePoint,
        loop: Loop,
        stopping: EarlyStopping | None,
    ) -> None:
        """Replace what is there by the state after the latest epoch."""
        began = time.perf_counter()
        losses = [(one.loss.observed, one.loss.unobserved, one.loss.regularizer) for one in past.training]
        seconds = [*(one.seconds for one in past.training), past.seconds]
        contexts, items = loop.embeddings()
        arrays: dict[str, npt.NDArray[Any]] = {
            **{f"{_MEMORY}{name}": array for name, array in loop.memory().items()},
            "contexts": contexts,
            "items": items,
            "losses": np.array(losses, np.float64).reshape(-1, 3),
            "seconds": np.array(seconds, np.float64),
        }
        extra = {"identity": self._identity, "epoch": past.number}
        if stopping is not None:
            items_then = items if stopping.items is None else stopping.items  # none where none was judged yet
            judged = [*(one.validation for one in past.training), past.validation]
            arrays["validation"] = np.array([_NONE if one is None else one for one in judged], np.float64)
            arrays["best_items"] = items_then
            if loop.joint:
                arrays["best_contexts"] = contexts if stopping.contexts is None else stopping.contexts
            extra |= {"best": max(_NONE, stopping.best), "best_epoch": stopping.best_epoch}
        save_model(self._path, StoredModel(self._kind, self._settings, arrays, {}, extra))
        self._written = time.perf_counter()
        self._took = self._written - began


def refuse_checkpoint(path: str | PathLike[str]) -> None:
    """Refuse a place that holds a checkpoint, for whoever would replace it by a model."""
    try:
        kind = read_manifest(path).kind
    except StorageError:
        return  # whoever saves there says what it is
    if kind.endswith(SUFFIX):
        raise StorageError(f"'{path}' holds a checkpoint of a fit; name another directory, or remove it")


def _differences(
    old_settings: dict[str, Any], settings: dict[str, Any], old_identity: object, identity: dict[str, Any]
) -> str:
    differences = []
    for name in sorted(old_settings.keys() | settings.keys()):
        before, now = old_settings.get(name), settings.get(name)
        if before != now:
            differences.append(f"{name} was {before!r:.80} and is {now!r:.80}")
    old_parts = old_identity if isinstance(old_identity, dict) else {}
    differences += [f"{name} changed" for name, now in identity.items() if old_parts.get(name) != now]
    return ", ".join(differences)


def _saved(stored: StoredModel, contexts: tuple[int, int], items: tuple[int, int], epochs: int) -> CheckpointState:
    # Copies: what is loaded is read-only, and its parts would keep each other in memory.
    arrays = {name: array.copy() for name, array in stored.arrays.items()}
    last = whole("its epoch", stored.extra.get("epoch"))
    sizes: dict[str, tuple[int, ...]] = {
        "contexts": contexts,
        "items": items,
        "losses": (last - 1, 3),
        "seconds": (last,),
    }
    if judged := "best" in stored.extra:
        sizes |= {"validation": (last,), "best_items": sizes["items"]}
        if "best_contexts" in arrays:
            sizes["best_contexts"] = sizes["contexts"]
    for name, size in sizes.items():
        wanted = np.dtype(np.float32 if name.endswith(("contexts", "items")) else np.float64)
        if name not in arrays:
            raise ValueError(f"it has no array {name}")
        if arrays[name].shape != size or arrays[name].dtype != wanted:
            raise ValueError(f"{name} is {arrays[name].dtype} {arrays[name].shape}, expected {wanted} {size}")
    told = arrays["validation"].tolist() if judged else [_NONE] * last
    validation = [None if one == _NONE else one for one in told]
    training = tuple(
        Epoch(k + 1, epochs, LossParts(*map(float, loss)), float(arrays["seconds"][k]), validation[k])
        for k, loss in enumerate(arrays["losses"])
    )
    past = ResumePoint(last, training, float(arrays["seconds"][-1]), validation[-1])
    best = None
    if judged:
        figure = number("its best figure", stored.extra["best"], -math.inf)
        epoch = whole("its best epoch", stored.extra.get("best_epoch"), least=0)
        if epoch > last:
            raise ValueError(f"its best epoch is {epoch}, beyond its last, {last}")
        best = (figure, epoch, arrays["best_items"], arrays.get("best_contexts")) if epoch else None
    memory = {name.removeprefix(_MEMORY): array for name, array in arrays.items() if name.startswith(_MEMORY)}
    return CheckpointState(arrays["contexts"], arrays["items"], past, best, memory)


def digest(*parts: Vocabulary | SparseRows | npt.NDArray[Any]) -> str:
    """A sha256 of ids, rows and arrays: the same for the same content."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, Vocabulary):
            found.update(hashlib.sha256(table_files.encode(part.frame)).digest())
            continue
        arrays = (part.indptr, part.indices, part.values) if isinstance(part, SparseRows) else (part,)
        for array in arrays:
            described = "none" if array is None else f"{array.dtype} {array.shape}"
            found.update(described.encode())
            if array is not None:
                found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
