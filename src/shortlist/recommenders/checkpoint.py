"""Checkpoints: the state of a fit on disk, from which a later fit resumes."""

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

from shortlist._checks import integer, number
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

SUFFIX = " checkpoint"  # after the recommender's name in the kind of a stored checkpoint
_MEMORY = "memory."  # before the names of a loop's own arrays
_NONE = -1.0  # stands for a missing validation score; scores are not negative
_OTHER = "pass another folder as checkpoint="
_ELSEWHERE = f"{_OTHER}, or delete this one to start over"  # not for folders that may hold something else


@dataclass(frozen=True, eq=False)
class CheckpointState:
    """The content of a checkpoint."""

    contexts: npt.NDArray[np.float32]
    items: npt.NDArray[np.float32]
    past: ResumePoint
    best: tuple[float, int, npt.NDArray[np.float32], npt.NDArray[np.float32] | None] | None
    # the best validation score, its epoch, the items, and the contexts unless they follow from the items
    memory: dict[str, npt.NDArray[Any]]  # the loop's own arrays

    def resume(self, loop: Loop, stopping: EarlyStopping | None) -> None:
        """Restore the state of the loop and of early stopping."""
        if self.best is not None and stopping is not None:
            if loop.joint and self.best[3] is None:
                raise ValueError("it has no array best_contexts")
            stopping.best, stopping.best_epoch, stopping.items, stopping.contexts = self.best
        loop.load_state_dict(self.past.number, self.memory)


class Checkpoint:
    """A folder with the state of one fit after its latest epoch.

    The state is replaced in one step, so a crash leaves either the old state or the new one. `identity` identifies the
    fit by digests of all its data; a checkpoint of another fit is refused.
    """

    def __init__(
        self, path: str | PathLike[str], owner: type, settings: dict[str, Any], identity: dict[str, Any]
    ) -> None:
        self._path, self._owner, self._kind = Path(path), owner, f"{owner.__name__}{SUFFIX}"
        self._settings = {name: value for name, value in settings.items() if name != "epochs"}
        self._identity = identity
        self._written, self._took = -math.inf, 0.0  # time of the latest write, and its duration

    def due(self, share: float | None) -> bool:
        """Return whether to write now, if writing may take this fraction of the time; None: always."""
        return share is None or time.perf_counter() - self._written >= self._took / share

    def read(self, contexts: tuple[int, int], items: tuple[int, int], epochs: int) -> CheckpointState | None:
        """Return the stored state, or None if the folder is empty; raise StorageError for anything but this fit.

        Args:
            contexts: shape of the contexts' parameters.
            items: shape of the items' parameters.
            epochs: number of epochs of the fit.
        """
        with storage_errors(f"cannot use the checkpoint '{self._path}'", _ELSEWHERE):
            return self._read(contexts, items, epochs)

    def _read(self, contexts: tuple[int, int], items: tuple[int, int], epochs: int) -> CheckpointState | None:
        if not (self._path / MANIFEST).exists():
            exists = os.path.lexists(self._path)
            if exists and not (self._path.is_dir() and all(map(is_ours, os.listdir(self._path)))):
                raise StorageError(f"'{self._path}' is not a checkpoint; {_OTHER}")
            check_writable(self._path)  # fail now rather than after the first epoch
            return None
        stored = load_model(self._path, verify=True, mapped=False)
        if stored.kind != self._kind:
            raise self._other_content(stored.kind)
        before = new_settings(self._owner, stored.settings, warn=False)
        if different := _differences(before, self._settings, stored.extra.get("identity"), self._identity):
            raise StorageError(f"the checkpoint '{self._path}' is of another fit: {different}; {_ELSEWHERE}")
        try:
            saved = _saved(stored, contexts, items, epochs)
        except ValueError as error:
            raise self.unusable(error) from error
        if saved.past.number > epochs:
            raise StorageError(
                f"the checkpoint '{self._path}' is already at epoch {saved.past.number}, but epochs is {epochs}; "
                f"raise epochs, or {_ELSEWHERE}"
            )
        return saved

    def _other_content(self, kind: str) -> StorageError:
        """Return the exception for a folder with a saved model, or with the checkpoint of another recommender."""
        name = kind.removesuffix(SUFFIX)
        if name != kind:
            return StorageError(
                f"'{self._path}' contains a checkpoint of {name:.80}, not of {self._owner.__name__}; {_ELSEWHERE}"
            )
        return StorageError(f"'{self._path}' contains a saved {name:.80} model, not a checkpoint; {_OTHER}")

    def unusable(self, error: ValueError) -> StorageError:
        """Return the exception for damaged content."""
        return StorageError(f"the checkpoint '{self._path}' is not usable: {reason(error)}; {_ELSEWHERE}")

    def write(
        self,
        past: ResumePoint,
        loop: Loop,
        stopping: EarlyStopping | None,
    ) -> None:
        """Replace the stored state with the state after the latest epoch."""
        began = time.perf_counter()
        losses = [(epoch.loss.observed, epoch.loss.unobserved, epoch.loss.regularizer) for epoch in past.training]
        seconds = [*(epoch.seconds for epoch in past.training), past.seconds]
        contexts, items = loop.embeddings()
        arrays: dict[str, npt.NDArray[Any]] = {
            **{f"{_MEMORY}{name}": array for name, array in loop.state_dict().items()},
            "contexts": contexts,
            "items": items,
            "losses": np.array(losses, np.float64).reshape(-1, 3),
            "seconds": np.array(seconds, np.float64),
        }
        extra = {"identity": self._identity, "epoch": past.number}
        if stopping is not None:
            best_items = items if stopping.items is None else stopping.items  # None before the first evaluation
            scores = [*(epoch.validation for epoch in past.training), past.validation]
            arrays["validation"] = np.array([_NONE if score is None else score for score in scores], np.float64)
            arrays["best_items"] = best_items
            if loop.joint:
                arrays["best_contexts"] = contexts if stopping.contexts is None else stopping.contexts
            extra |= {"best": max(_NONE, stopping.best), "best_epoch": stopping.best_epoch}
        save_model(self._path, StoredModel(self._kind, self._settings, arrays, {}, extra))
        self._written = time.perf_counter()
        self._took = self._written - began


def refuse_checkpoint(path: str | PathLike[str]) -> None:
    """Refuse to replace a checkpoint with a model."""
    try:
        kind = read_manifest(path).kind
    except StorageError:
        return  # not a stored model at all; saving reports that itself
    if kind.endswith(SUFFIX):
        raise StorageError(f"'{path}' contains a checkpoint of a fit; pass another directory, or delete it")


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
    # Copies, because loaded arrays are read-only views that keep the whole file in memory.
    arrays = {name: array.copy() for name, array in stored.arrays.items()}
    last = integer("its epoch", stored.extra.get("epoch"))
    sizes: dict[str, tuple[int, ...]] = {
        "contexts": contexts,
        "items": items,
        "losses": (last - 1, 3),
        "seconds": (last,),
    }
    if validated := "best" in stored.extra:
        sizes |= {"validation": (last,), "best_items": sizes["items"]}
        if "best_contexts" in arrays:
            sizes["best_contexts"] = sizes["contexts"]
    for name, size in sizes.items():
        dtype = np.dtype(np.float32 if name.endswith(("contexts", "items")) else np.float64)
        if name not in arrays:
            raise ValueError(f"it has no array {name}")
        if arrays[name].shape != size or arrays[name].dtype != dtype:
            raise ValueError(f"{name} is {arrays[name].dtype} {arrays[name].shape}; expected {dtype} {size}")
    scores = arrays["validation"].tolist() if validated else [_NONE] * last
    validation = [None if score == _NONE else score for score in scores]
    training = tuple(
        Epoch(k + 1, epochs, LossParts(*map(float, loss)), float(arrays["seconds"][k]), validation[k])
        for k, loss in enumerate(arrays["losses"])
    )
    past = ResumePoint(last, training, float(arrays["seconds"][-1]), validation[-1])
    best = None
    if validated:
        score = number("its best score", stored.extra["best"], -math.inf)
        epoch = integer("its best epoch", stored.extra.get("best_epoch"), least=0)
        if epoch > last:
            raise ValueError(f"its best epoch is {epoch}, beyond its last, {last}")
        best = (score, epoch, arrays["best_items"], arrays.get("best_contexts")) if epoch else None
    memory = {name.removeprefix(_MEMORY): array for name, array in arrays.items() if name.startswith(_MEMORY)}
    return CheckpointState(arrays["contexts"], arrays["items"], past, best, memory)


def digest(*parts: Vocabulary | SparseRows | npt.NDArray[Any]) -> str:
    """Return a sha256 of the content of ids, rows and arrays."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, Vocabulary):
            sha.update(hashlib.sha256(table_files.encode(part.frame)).digest())
            continue
        arrays = (part.indptr, part.indices, part.values) if isinstance(part, SparseRows) else (part,)
        for array in arrays:
            described = "none" if array is None else f"{array.dtype} {array.shape}"
            sha.update(described.encode())
            if array is not None:
                sha.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return sha.hexdigest()
