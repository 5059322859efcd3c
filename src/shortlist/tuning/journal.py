"""The journal of a study: every trial is written to a file as it happens, in the format of Optuna's journal."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shortlist.errors import SettingError, StorageError
from shortlist.storage.files import open_locked
from shortlist.storage.wrap_errors import storage_errors
from shortlist.tuning.optuna_adapter import distributions, optuna, quiet
from shortlist.tuning.tuning_result import State, Trial

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

    from shortlist.recommenders.search_space import Space

NAME = "shortlist"  # of the study in its file
ATTEMPTS = 3  # a trial fails after this many interruptions at the same epoch: it probably kills the process
_ADVICE = "choose another file, or remove this one to start over"
_FIRST_BYTES = b'{"op_code":'  # of every journal


class Journal:
    """The trials of one study: proposed, started, reported epoch by epoch, finished.

    A proposed trial is `"not started"`; a started trial that has not finished is `"unfinished"`. The next process that
    opens the journal runs both. `storage` is one of Optuna's, so that Optuna's own tools can read the file.
    """

    def __init__(self, storage: BaseStorage, space: Space) -> None:
        self._storage, self._distributions = storage, distributions(space)
        studies = storage.get_all_studies()
        if studies and [study.study_name for study in studies] != [NAME]:
            raise ValueError(f"it has a study {studies[0].study_name!r:.80} that is not from Shortlist")
        direction = optuna().study.StudyDirection.MAXIMIZE
        self._study = studies[0]._study_id if studies else storage.create_new_study([direction], NAME)

    # --- the study ---------------------------------------------------------------------------------------------------

    def identify(self, identity: Mapping[str, Any]) -> None:
        """Store the identity of the search; raise an error if the journal has another one."""
        new = json.loads(json.dumps(identity))  # as it is read back from the file
        stored = self._storage.get_study_user_attrs(self._study).get("identity")
        if stored is None:
            if self.trials():
                raise StorageError(
                    "it has trials but does not say which search they belong to",
                    code="checkpoint-differs",
                    field="study",
                )
            self._storage.set_study_user_attr(self._study, "identity", new)
            return
        names = [name for name in {**stored, **new} if stored.get(name) != new.get(name)]
        if names:
            changes = ", ".join(f"{name} {_change(stored.get(name), new.get(name))}" for name in names)
            raise SettingError(
                f"it is the study of another search: {changes}", code="checkpoint-differs", field="study"
            )

    @property
    def seconds(self) -> float:
        """The time spent on the study, over all calls."""
        return float(self._storage.get_study_user_attrs(self._study).get("seconds", 0.0))

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._storage.set_study_user_attr(self._study, "seconds", round(value, 3))

    # --- trials ------------------------------------------------------------------------------------------------------

    def trials(self) -> list[Trial]:
        """Return all trials, ordered by number."""
        return [_trial(frozen) for frozen in self._storage.get_all_trials(self._study, deepcopy=False)]

    def propose(self, proposals: Sequence[Mapping[str, Any]], start: int | None) -> None:
        """Add trials to be run; they start from the embeddings of trial `start` unless it is None."""
        from optuna.trial import TrialState, create_trial

        attributes = {} if start is None else {"start": start}
        for settings in proposals:
            known = {name: self._distributions[name] for name in settings}
            waiting = create_trial(
                state=TrialState.WAITING, params=dict(settings), distributions=known, user_attrs=attributes
            )
            self._storage.create_new_trial(self._study, template_trial=waiting)

    def begin(self, number: int) -> int:
        """Mark a trial as started; return how often it was interrupted before at the epoch where it is now."""
        from optuna.trial import TrialState

        frozen = self._frozen(number)
        reached = len(frozen.intermediate_values)
        attempts, earlier = frozen.user_attrs.get("attempts", (0, 0))
        attempts = attempts if reached == earlier else 0
        if frozen.state is TrialState.WAITING:
            self._storage.set_trial_state_values(frozen._trial_id, TrialState.RUNNING)
        self._storage.set_trial_user_attr(frozen._trial_id, "attempts", [attempts + 1, reached])
        return int(attempts)

    def begin_from(self, number: int, epoch: int) -> None:
        """Store the best epoch of the model that a trial starts from."""
        self._storage.set_trial_user_attr(self._frozen(number)._trial_id, "start_epoch", epoch)

    def report(self, number: int, epoch: int, value: float) -> None:
        """Store the validation score after an epoch, unless it is stored already."""
        frozen = self._frozen(number)
        if epoch not in frozen.intermediate_values:
            self._storage.set_trial_intermediate_value(frozen._trial_id, epoch, value)

    def suspend(self, number: int, seconds: float) -> None:
        """Leave a trial unfinished on purpose; this does not count as a failed attempt."""
        frozen = self._frozen(number)
        attempts, reached = frozen.user_attrs["attempts"]
        self._storage.set_trial_user_attr(frozen._trial_id, "attempts", [attempts - 1, reached])
        self._storage.set_trial_user_attr(frozen._trial_id, "seconds", round(seconds, 3))

    def finish(
        self,
        number: int,
        state: State,
        seconds: float,
        *,
        value: float | None = None,
        epoch: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Store the result of a trial."""
        from optuna.trial import TrialState

        states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        frozen = self._frozen(number)
        attributes = {"seconds": round(seconds, 3), "epoch": epoch, "reason": reason}
        for name, attribute in attributes.items():
            if attribute is not None:
                self._storage.set_trial_user_attr(frozen._trial_id, name, attribute)
        # The state is written last, so that a complete trial always has all its attributes.
        self._storage.set_trial_state_values(frozen._trial_id, states[state], None if value is None else [value])

    def _frozen(self, number: int) -> FrozenTrial:
        return self._storage.get_all_trials(self._study, deepcopy=False)[number]


@contextmanager
def open_journal(path: str | PathLike[str] | None, space: Space, identity: Mapping[str, Any]) -> Iterator[Journal]:
    """Open the journal in a file and lock it until the block ends; without a path, keep the journal in memory."""
    from optuna.storages import InMemoryStorage
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    if path is None:
        with quiet():
            journal = Journal(InMemoryStorage(), space)
        journal.identify(identity)
        yield journal
        return
    if not isinstance(path, str | PathLike):
        raise SettingError(f"study is {path!r:.80}; expected the path of a file", field="study")
    what = f"cannot use the study '{path}'"
    with storage_errors(what, "choose another file"), quiet():
        file = _open_file(Path(path))
    try:
        with storage_errors(what, "choose another file"), quiet():
            _drop_partial_line(file)
            journal = Journal(JournalStorage(JournalFileBackend(str(path), lock_obj=cast(Any, _ThreadLock()))), space)
        try:
            journal.identify(identity)
        except (StorageError, SettingError) as error:
            raise type(error)(
                f"{what}: {error.problem}", code="checkpoint-differs", field="study", hint=_ADVICE
            ) from None
        yield journal
    except StorageError:
        raise
    except OSError as error:
        message = f"cannot write to the study '{path}': {error.strerror or error}"
        raise StorageError(message, code="not-writable", field="study") from error
    finally:
        file.close()  # this also releases the lock


class _ThreadLock:
    """A lock between the threads of this process, in Optuna's interface; the open file locks out other processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self) -> bool:
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()


def _open_file(path: Path) -> io.BufferedRandom:
    """Open a file, create it if it is missing, and lock it against other processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        raise StorageError(
            f"cannot use the study '{path}': it is not a file", field="study", hint="choose another path"
        )
    busy = f"the study '{path}' is in use by another process; wait until it is finished, or choose another file"
    return open_locked(path, busy)


def _drop_partial_line(file: io.BufferedRandom) -> None:
    """Raise ValueError unless the file is a journal; remove a last line that a kill left incomplete."""
    first = file.readline()
    complete = first.endswith(b"\n")
    if first and not (
        first.startswith(_FIRST_BYTES) if complete else _FIRST_BYTES.startswith(first[: len(_FIRST_BYTES)])
    ):
        raise ValueError("it is not a journal of Optuna")
    content = first + file.read()
    if not content.endswith(b"\n"):
        file.truncate(content.rfind(b"\n") + 1)


def _trial(frozen: FrozenTrial) -> Trial:
    from optuna.trial import TrialState

    states: dict[TrialState, State] = {
        TrialState.COMPLETE: "complete",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "failed",
        TrialState.RUNNING: "unfinished",
        TrialState.WAITING: "not started",
    }
    attributes = frozen.user_attrs
    return Trial(
        number=frozen.number,
        settings=frozen.params,
        state=states[frozen.state],
        value=frozen.values[0] if frozen.values and frozen.state is TrialState.COMPLETE else None,
        epoch=attributes.get("epoch"),
        curve=tuple(value for _, value in sorted(frozen.intermediate_values.items())),
        epochs=tuple(sorted(frozen.intermediate_values)),
        seconds=float(attributes.get("seconds", 0.0)),
        reason=attributes.get("reason"),
        start=attributes.get("start"),
        start_epoch=attributes.get("start_epoch"),
    )


def _change(before: object, now: object) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        return ", ".join(f"{name} was {before.get(name)!r:.80} and is {now.get(name)!r:.80}" for name in names)
    return f"was {before!r:.80} and is {now!r:.80}"
