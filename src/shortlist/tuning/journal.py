"""Every trial of a study, written down as it happens, in the format of Optuna's journal."""

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
ATTEMPTS = 3  # so often a trial may be cut off at the same epoch before it is taken for what kills the process
_ELSEWHERE = "name another file, or remove this one to begin anew"
_FIRST = b'{"op_code":'  # what a journal begins with


class Journal:
    """The trials of one study: proposed, begun, epoch by epoch, ended.

    A trial that was proposed is `"not started"`, one that was begun and has not ended `"unfinished"`: whoever opens the
    journal next does both, and no other. `storage` is Optuna's, so that its own tools can look into the file.
    """

    def __init__(self, storage: BaseStorage, space: Space) -> None:
        self._storage, self._distributions = storage, distributions(space)
        studies = storage.get_all_studies()
        if studies and [study.study_name for study in studies] != [NAME]:
            raise ValueError(f"it holds a study {studies[0].study_name!r:.80} that is not of Shortlist")
        direction = optuna().study.StudyDirection.MAXIMIZE
        self._study = studies[0]._study_id if studies else storage.create_new_study([direction], NAME)

    # --- of the whole study ------------------------------------------------------------------------------------------

    def identify(self, identity: Mapping[str, Any]) -> None:
        """Write down what is searched, on what data; refuse a journal of anything else."""
        told = json.loads(json.dumps(identity))  # as it comes back from the file
        before = self._storage.get_study_user_attrs(self._study).get("identity")
        if before is None:
            if self.trials():
                raise StorageError("it does not say what its trials are about")
            self._storage.set_study_user_attr(self._study, "identity", told)
            return
        names = [name for name in {**before, **told} if before.get(name) != told.get(name)]
        if names:
            changes = ", ".join(f"{name} {_change(before.get(name), told.get(name))}" for name in names)
            raise SettingError(f"it is a study of something else: {changes}")

    @property
    def seconds(self) -> float:
        """How long it has been worked on, over all calls."""
        return float(self._storage.get_study_user_attrs(self._study).get("seconds", 0.0))

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._storage.set_study_user_attr(self._study, "seconds", round(value, 3))

    # --- trials ------------------------------------------------------------------------------------------------------

    def trials(self) -> list[Trial]:
        """All of them, by number."""
        return [_trial(one) for one in self._storage.get_all_trials(self._study, deepcopy=False)]

    def propose(self, settings: Sequence[Mapping[str, Any]], start: int | None) -> None:
        """Add trials that are to be done, from the embeddings of trial `start` where it is not None."""
        from optuna.trial import TrialState, create_trial

        told = {} if start is None else {"start": start}
        for one in settings:
            known = {name: self._distributions[name] for name in one}
            waiting = create_trial(state=TrialState.WAITING, params=dict(one), distributions=known, user_attrs=told)
            self._storage.create_new_trial(self._study, template_trial=waiting)

    def begin(self, number: int) -> int:
        """A trial is being worked on; how often it was cut off before without having come any further."""
        from optuna.trial import TrialState

        frozen = self._frozen(number)
        reached = len(frozen.intermediate_values)
        before, earlier = frozen.user_attrs.get("attempts", (0, 0))
        before = before if reached == earlier else 0
        if frozen.state is TrialState.WAITING:
            self._storage.set_trial_state_values(frozen._trial_id, TrialState.RUNNING)
        self._storage.set_trial_user_attr(frozen._trial_id, "attempts", [before + 1, reached])
        return int(before)

    def begin_from(self, number: int, epoch: int) -> None:
        """Write down the best epoch of the model that a trial begins from."""
        self._storage.set_trial_user_attr(self._frozen(number)._trial_id, "start_epoch", epoch)

    def report(self, number: int, epoch: int, value: float) -> None:
        """What the validation says after an epoch; once for each."""
        frozen = self._frozen(number)
        if epoch not in frozen.intermediate_values:
            self._storage.set_trial_intermediate_value(frozen._trial_id, epoch, value)

    def leave(self, number: int, seconds: float) -> None:
        """A trial stays unfinished, by our own will: this was no failed attempt."""
        frozen = self._frozen(number)
        attempts, reached = frozen.user_attrs["attempts"]
        self._storage.set_trial_user_attr(frozen._trial_id, "attempts", [attempts - 1, reached])
        self._storage.set_trial_user_attr(frozen._trial_id, "seconds", round(seconds, 3))

    def end(
        self,
        number: int,
        state: State,
        seconds: float,
        *,
        value: float | None = None,
        epoch: int | None = None,
        reason: str | None = None,
    ) -> None:
        """A trial has ended."""
        from optuna.trial import TrialState

        ends = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        frozen = self._frozen(number)
        told = {"seconds": round(seconds, 3), "epoch": epoch, "reason": reason}
        for name, one in told.items():
            if one is not None:
                self._storage.set_trial_user_attr(frozen._trial_id, name, one)
        # Last of all: a trial that says that it is complete has told everything.
        self._storage.set_trial_state_values(frozen._trial_id, ends[state], None if value is None else [value])

    def _frozen(self, number: int) -> FrozenTrial:
        return self._storage.get_all_trials(self._study, deepcopy=False)[number]


@contextmanager
def opened(path: str | PathLike[str] | None, space: Space, identity: Mapping[str, Any]) -> Iterator[Journal]:
    """The journal in a file, nobody else's as long as it is open; in memory where there is no file."""
    from optuna.storages import InMemoryStorage
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    if path is None:
        with quiet():
            journal = Journal(InMemoryStorage(), space)
        journal.identify(identity)
        yield journal
        return
    if not isinstance(path, str | PathLike):
        raise SettingError(f"study is {path!r:.80}; expected the path of a file")
    what = f"cannot use the study '{path}'"
    with storage_errors(what, "name another file"), quiet():
        file = _locked(Path(path))
    try:
        with storage_errors(what, "name another file"), quiet():
            _mend(file)
            journal = Journal(JournalStorage(JournalFileBackend(str(path), lock_obj=cast(Any, _OwnLock()))), space)
        try:
            journal.identify(identity)
        except (StorageError, SettingError) as error:
            raise type(error)(f"{what}: {error}; {_ELSEWHERE}") from None
        yield journal
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write to the study '{path}': {error.strerror or error}") from error
    finally:
        file.close()  # and with it the lock goes


class _OwnLock:
    """Between the threads of this process; others are kept out as long as the file is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self) -> bool:
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()


def _locked(path: Path) -> io.BufferedRandom:
    """The file, made where there is none, and nobody else's as long as it is open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        raise StorageError(f"cannot use the study '{path}': it is no file; name another one")
    busy = f"the study '{path}' is being worked on by another process; wait for it, or name another file"
    return open_locked(path, busy)


def _mend(file: io.BufferedRandom) -> None:
    """Refuse what is no journal, then cut off a last line that a kill left half-written."""
    first = file.readline()
    whole = first.endswith(b"\n")
    if first and not (first.startswith(_FIRST) if whole else _FIRST.startswith(first[: len(_FIRST)])):
        raise ValueError("it is no journal of Optuna")
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
    told = frozen.user_attrs
    return Trial(
        number=frozen.number,
        settings=frozen.params,
        state=states[frozen.state],
        value=frozen.values[0] if frozen.values and frozen.state is TrialState.COMPLETE else None,
        epoch=told.get("epoch"),
        curve=tuple(value for _, value in sorted(frozen.intermediate_values.items())),
        epochs=tuple(sorted(frozen.intermediate_values)),
        seconds=float(told.get("seconds", 0.0)),
        reason=told.get("reason"),
        start=told.get("start"),
        start_epoch=told.get("start_epoch"),
    )


def _change(before: object, now: object) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        return ", ".join(f"{name} was {before.get(name)!r:.80} and is {now.get(name)!r:.80}" for name in names)
    return f"was {before!r:.80} and is {now!r:.80}"
