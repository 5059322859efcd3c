"""Checkpoints: the state of a fit on disk, from which a later fit resumes."""

from __future__ import annotations

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
from shortlist._state import State, check_state
from shortlist.errors import StorageError
from shortlist.objectives.loss_parts import LossParts
from shortlist.recommenders.restoring import kind_name
from shortlist.solvers.stopping import EarlyStopping
from shortlist.solvers.train import Epoch, ResumePoint, Trainer
from shortlist.storage import StoredModel, check_writable, load_model, read_manifest, save_model
from shortlist.storage.file_names import MANIFEST, is_ours
from shortlist.storage.wrap_errors import reason, storage_errors

SUFFIX = " checkpoint"  # after the recommender's name in the kind of a stored checkpoint
_STATE = "state."  # before the names of the trainer's state
_BEST = "best."  # before the names of the best epoch's snapshot
_MEMORY = "memory."  # in earlier checkpoints, before the names of the state besides the embeddings
_EARLIER_LOSSES = ["observed", "unobserved", "regularizer"]  # in earlier checkpoints, which do not name them
_NONE = -1.0  # stands for a missing validation score; scores are not negative
_OTHER = "pass another folder as checkpoint="
_ELSEWHERE = f"{_OTHER}, or delete this one to start over"  # not for folders that may hold something else


@dataclass(frozen=True, eq=False)
class CheckpointState:
    """The content of a checkpoint."""

    past: ResumePoint
    best: tuple[float, int, State] | None  # the best validation score, its epoch and its snapshot
    state: State  # of the trainer


class Checkpoint:
    """A folder with the state of one fit after its latest epoch.

    The state is replaced in one step, so a crash leaves either the old state or the new one. `identity` identifies the
    fit by digests of all its data; a checkpoint of another fit is refused.
    """

    def __init__(
        self, path: str | PathLike[str], owner: type, settings: dict[str, Any], identity: dict[str, Any]
    ) -> None:
        self._path, self._owner, self._kind = Path(path), owner, f"{kind_name(owner)}{SUFFIX}"
        self._settings = {name: value for name, value in settings.items() if name != "epochs"}
        self._identity = identity
        self._written, self._took = -math.inf, 0.0  # time of the latest write, and its duration

    def due(self, share: float | None) -> bool:
        """Return whether to write now, if writing may take this fraction of the time; None: always."""
        return share is None or time.perf_counter() - self._written >= self._took / share

    def read(self, epochs: int) -> CheckpointState | None:
        """Return the stored state, or None if the folder is empty; raise StorageError for anything but this fit.

        Args:
            epochs: number of epochs of the fit.
        """
        with storage_errors(f"cannot use the checkpoint '{self._path}'", _ELSEWHERE):
            return self._read(epochs)

    def resume(self, saved: CheckpointState, trainer: Trainer, stopping: EarlyStopping | None) -> None:
        """Restore the state of the trainer and of early stopping; raise StorageError unless all arrays match."""
        try:
            if saved.best is not None and stopping is not None:
                stopping.best, stopping.best_epoch, stopping.snapshot = saved.best
                trainer.restore(stopping.snapshot)  # a check; the state replaces it
            trainer.load_state_dict(saved.state)
        except StorageError as error:
            raise self.unusable(error) from error

    def _read(self, epochs: int) -> CheckpointState | None:
        if not (self._path / MANIFEST).exists():
            exists = os.path.lexists(self._path)
            if exists and not (self._path.is_dir() and all(map(is_ours, os.listdir(self._path)))):
                raise StorageError(f"'{self._path}' is not a checkpoint", code="target-exists", hint=_OTHER)
            check_writable(self._path)  # fail now rather than after the first epoch
            return None
        stored = load_model(self._path, verify=True, mapped=False)
        if stored.kind != self._kind:
            raise self._other_content(stored.kind)
        before = new_settings(self._owner, stored.settings, warn=False)
        if different := _differences(before, self._settings, stored.extra.get("identity"), self._identity):
            message = f"the checkpoint '{self._path}' is of another fit: {different}"
            raise StorageError(message, code="checkpoint-differs", field="checkpoint", hint=_ELSEWHERE)
        try:
            saved = _saved(stored, epochs)
        except (ValueError, StorageError) as error:
            raise self.unusable(error) from error
        if saved.past.number > epochs:
            raise StorageError(
                f"the checkpoint '{self._path}' is already at epoch {saved.past.number}, but epochs is {epochs}",
                code="checkpoint-differs",
                field="epochs",
                hint=f"raise epochs, or {_ELSEWHERE}",
            )
        return saved

    def _other_content(self, kind: str) -> StorageError:
        """Return the exception for a folder with a saved model, or with the checkpoint of another recommender."""
        name = kind.removesuffix(SUFFIX)
        if name != kind:
            return StorageError(
                f"'{self._path}' contains a checkpoint of {name:.80}, not of {self._owner.__name__}",
                code="checkpoint-differs",
                field="checkpoint",
                hint=_ELSEWHERE,
            )
        message = f"'{self._path}' contains a saved {name:.80} model, not a checkpoint"
        return StorageError(message, code="target-exists", field="checkpoint", hint=_OTHER)

    def unusable(self, error: Exception) -> StorageError:
        """Return the exception for damaged content."""
        message = f"the checkpoint '{self._path}' is not usable: {reason(error)}"
        return StorageError(message, code="checkpoint-damaged", field="checkpoint", hint=_ELSEWHERE)

    def write(self, past: ResumePoint, trainer: Trainer, stopping: EarlyStopping | None) -> None:
        """Replace the stored state with the state after the latest epoch."""
        began = time.perf_counter()
        state = trainer.state_dict()
        if not state:
            raise StorageError(f"{type(trainer).__name__} has no state to save, so a fit could not resume from it")
        names = list(past.training[0].loss) if past.training else []
        losses = [[epoch.loss[name] for name in names] for epoch in past.training]
        seconds = [*(epoch.seconds for epoch in past.training), past.seconds]
        arrays: dict[str, npt.NDArray[Any]] = {
            **{f"{_STATE}{name}": array for name, array in state.items()},
            "losses": np.array(losses, np.float64).reshape(len(losses), len(names)),
            "seconds": np.array(seconds, np.float64),
        }
        extra = {"identity": self._identity, "epoch": past.number, "losses": names}
        if stopping is not None:
            scores = [*(epoch.validation for epoch in past.training), past.validation]
            arrays["validation"] = np.array([_NONE if score is None else score for score in scores], np.float64)
            arrays |= {f"{_BEST}{name}": array for name, array in (stopping.snapshot or {}).items()}
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
        message = f"'{path}' contains a checkpoint of a fit"
        raise StorageError(message, code="target-exists", field="path", hint="pass another directory, or delete it")


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


def _saved(stored: StoredModel, epochs: int) -> CheckpointState:
    arrays, extra = _in_current_format(stored.arrays, stored.extra)
    last = integer("its epoch", extra.get("epoch"))
    names = extra["losses"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"the names of its losses are {names!r:.80}; expected a list of names")
    state, best_arrays = (_without_prefix(arrays, prefix) for prefix in (_STATE, _BEST))
    log = {name: array for name, array in arrays.items() if not name.startswith((_STATE, _BEST))}
    shapes = {"losses": (last - 1, len(names)), "seconds": (last,)}
    if validated := "best" in extra:
        shapes["validation"] = (last,)
    check_state(log, {name: np.broadcast_to(0.0, shape) for name, shape in shapes.items()})
    scores = log["validation"].tolist() if validated else [_NONE] * last
    validation = [None if score == _NONE else score for score in scores]
    training = tuple(
        Epoch(k + 1, epochs, LossParts(dict(zip(names, losses))), seconds, validation[k])
        for k, (losses, seconds) in enumerate(zip(log["losses"].tolist(), log["seconds"].tolist()))
    )
    past = ResumePoint(last, training, float(log["seconds"][-1]), validation[-1])
    best = None
    if validated:
        score = number("its best score", extra["best"], -math.inf)
        epoch = integer("its best epoch", extra.get("best_epoch"), least=0)
        if epoch > last:
            raise ValueError(f"its best epoch is {epoch}, beyond its last, {last}")
        # Copies, because loaded arrays are read-only views that keep the whole file in memory.
        best = (score, epoch, {name: array.copy() for name, array in best_arrays.items()}) if epoch else None
    if best is None:
        check_state(best_arrays, {}, _BEST)
    return CheckpointState(past, best, state)


def _without_prefix(arrays: State, prefix: str) -> State:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _in_current_format(arrays: State, extra: dict[str, Any]) -> tuple[State, dict[str, Any]]:
    """Return the content of a checkpoint of this or of the earlier format in the current one."""
    if "losses" in extra:
        return arrays, extra
    names = {"contexts": f"{_STATE}contexts", "items": f"{_STATE}items"}
    for name in arrays:
        if name.startswith(_MEMORY):
            names[name] = f"{_STATE}{name.removeprefix(_MEMORY)}"
    for name in ("contexts", "items"):
        names[f"best_{name}"] = f"{_BEST}{name}"
    if not extra.get("best_epoch"):  # the best arrays stand for nothing
        arrays = {name: array for name, array in arrays.items() if not name.startswith("best_")}
    renamed = {names.get(name, name): array for name, array in arrays.items()}
    if any(name.startswith(_MEMORY) for name in arrays):  # steps on samples also need the number of epochs
        renamed[f"{_STATE}epoch"] = np.array([extra.get("epoch")]).astype(np.int64)
    return renamed, {**extra, "losses": _EARLIER_LOSSES}
