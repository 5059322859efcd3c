"""What to try next, and what to give up: Optuna's samplers and pruners over the trials that have ended.

Proposals come in rounds. A round is a function of the seed, its number and the trials of the rounds before it, and a
trial is given up by the curves of those only: so it does not matter how many trials of a round run at a time, in which
order they end, or whether a kill came between.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist.errors import SettingError
from shortlist.recommenders.search_space import Choice, Dimension, Increasing, Real, Space, Value
from shortlist.tuning.optuna_adapter import distributions, optuna, quiet
from shortlist.tuning.tuning_result import Trial

if TYPE_CHECKING:
    from optuna.study import Study

ROUND = 4  # trials
RANDOM = 8  # trials before the sampler learns from them
CARRIED = 3  # settings that a larger dimension takes over from the smaller ones
_TRIES = 20  # draws, until one is new
_DIGITS = 4  # of numbers that are drawn
_WARM_UP = 2  # epochs before a trial may be given up
_LEAST = 4  # trials to compare a curve with


def growing(space: Space) -> str | None:
    """The setting that grows, where there is one."""
    names = [name for name, one in space.items() if isinstance(one, Increasing)]
    if len(names) > 1:
        raise SettingError(f"{' and '.join(names)} grow; expected one setting at most that does")
    return names[0] if names else None


class Proposals:
    """Draws settings to try, a round at a time."""

    def __init__(self, space: Space, first: Mapping[str, Any], seed: int, size: int = ROUND) -> None:
        """`first`: the settings to try before all others, or the nearest to them in the space."""
        self._space, self._given, self._seed, self.size = space, first, seed, size
        self._grows = growing(space)
        self._known = {name: one for name, one in distributions(space).items() if name != self._grows}
        self._first: dict[str, Any] = {}
        for name in self._in_order():
            if name in first and self._has_a_meaning(name, self._first):
                self._first[name] = _nearest(space[name], first[name])

    def round(
        self,
        number: int,
        before: Sequence[Trial],
        value: Value | None,
        chosen: Sequence[Mapping[str, Any]] = (),
    ) -> list[dict[str, Any]]:
        """The settings of round `number`, with `value` for the setting that grows; fewer where no new ones are left.

        `before` are the trials of the rounds before it, all of which have ended; `chosen` are those of this round
        already.
        """
        tried = [*(dict(trial.settings) for trial in before), *chosen]
        found = [one for one in self._carried(before, value) if one not in tried]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it calls experimental, we have chosen
            view = self._view(before, [*chosen, *found], number)
            for _ in range(_TRIES * self.size):
                if len(found) + len(chosen) >= self.size:
                    break
                drawn = self._with(self._drawn(view), value)
                if drawn not in tried and drawn not in found:
                    found.append(drawn)
        return found

    def _carried(self, before: Sequence[Trial], value: Value | None) -> list[dict[str, Any]]:
        """What to begin a dimension with: the first settings, then the best of the dimensions before it."""
        if any(self._grows is None or trial.settings[self._grows] == value for trial in before):
            return []
        ended = sorted((one for one in before if one.state == "complete"), key=lambda one: -one.merit)
        best = [{name: one for name, one in trial.settings.items() if name != self._grows} for trial in ended]
        distinct = [one for k, one in enumerate(best) if one not in best[:k]]
        return [self._with(one, value) for one in distinct[:CARRIED] or [self._first] if one or not self._known]

    def _with(self, settings: dict[str, Any], value: Value | None) -> dict[str, Any]:
        """With the setting that grows, in the space's order."""
        every = settings if self._grows is None else {**settings, self._grows: value}
        return {name: every[name] for name in self._space if name in every}

    def _view(self, before: Sequence[Trial], found: Sequence[Mapping[str, Any]], number: int) -> Study:
        """A study of what has ended, as shares of the best at the same dimension; a failure is as bad as can be."""
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState, create_trial

        (seed,) = np.random.SeedSequence([self._seed, number]).generate_state(1)
        sampler = TPESampler(
            seed=int(seed),
            n_startup_trials=RANDOM,
            multivariate=True,
            group=any(one.when is not None for one in self._space.values()),
            constant_liar=True,
            warn_independent_sampling=False,
        )
        with quiet():
            study: Study = optuna().create_study(direction="maximize", sampler=sampler)
        stage = [trial.settings.get(self._grows or "") for trial in before]
        best = {one: max(trial.merit for trial, own in zip(before, stage) if own == one) for one in set(stage)}
        for trial, own in zip(before, stage):
            value = 0.0 if trial.state == "failed" else trial.merit / (best[own] or 1.0)
            study.add_trial(create_trial(value=value, **self._params(trial.settings)))
        for one in found:
            study.add_trial(create_trial(state=TrialState.RUNNING, **self._params(one)))
        return study

    def _params(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        params = {name: one for name, one in settings.items() if name != self._grows}
        return {"params": params, "distributions": {name: self._known[name] for name in params}}

    def _in_order(self) -> list[str]:
        """The settings, but the one that grows; one that depends on another comes after it."""
        return sorted(self._known, key=lambda one: self._space[one].when is not None)

    def _has_a_meaning(self, name: str, found: Mapping[str, Any]) -> bool:
        when = self._space[name].when
        return when is None or when.holds({**self._given, **found})

    def _drawn(self, view: Study) -> dict[str, Any]:
        trial = view.ask()
        found: dict[str, Any] = {}
        for name in self._in_order():
            one = self._space[name]
            if not self._has_a_meaning(name, found):
                continue
            if isinstance(one, Choice):
                found[name] = trial.suggest_categorical(name, one.options)
            elif isinstance(one, Real):
                drawn = float(f"{trial.suggest_float(name, one.low, one.high, log=one.log):.{_DIGITS}g}")
                found[name] = min(max(drawn, one.low), one.high)
            else:
                assert not isinstance(one, Increasing)
                found[name] = trial.suggest_int(name, one.low, one.high, log=one.log)
        return found


class MedianPruning:
    """Gives a trial up when the best of its curve is below the median of others after as many epochs, two or more."""

    def __init__(self, others: Sequence[Trial]) -> None:
        from optuna.pruners import PercentilePruner
        from optuna.trial import create_trial

        self._pruner = PercentilePruner(50.0, n_startup_trials=_LEAST, n_warmup_steps=_WARM_UP)
        with quiet():
            self._study: Study = optuna().create_study(direction="maximize", pruner=self._pruner)
        for one in others:
            curve = dict(zip(one.epochs, one.curve))
            self._study.add_trial(create_trial(value=one.merit, intermediate_values=curve))

    def hopeless(self, curve: Mapping[int, float]) -> bool:
        """Whether to give up a trial with these figures, by epoch."""
        from optuna.trial import TrialState, create_trial

        trial = create_trial(state=TrialState.RUNNING, intermediate_values=dict(curve))
        return bool(self._pruner.prune(self._study, trial))


def importance(space: Space, trials: Sequence[Trial]) -> dict[str, float]:
    """How much of what tells the best tenth of trials from the others is due to each setting (conditional PED-ANOVA).

    A setting that has a meaning for some trials only is compared among those, and counts by how many of the best have
    it. Empty where there are fewer than ten trials, and where an older Optuna would leave such a setting out.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    ended = [trial for trial in trials if trial.state in ("complete", "pruned")]
    values = {name: {trial.settings[name] for trial in ended if name in trial.settings} for name in space}
    names = [name for name in space if len(values[name]) > 1]
    if len(ended) < 10 or len(names) < 2 or len({trial.merit for trial in ended}) < 2:
        return {}
    known = distributions({name: space[name] for name in names})
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna().create_study(direction="maximize")
        for trial in ended:
            params = {name: trial.settings[name] for name in names if name in trial.settings}
            own = {name: known[name] for name in params}
            study.add_trial(create_trial(value=trial.merit, params=params, distributions=own))
        shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    if shares.keys() != set(names):
        return {}
    return {name: float(share) for name, share in sorted(shares.items(), key=lambda one: -one[1])}


def _nearest(one: Dimension, value: Any) -> Any:
    """The value of a dimension that is nearest to this one."""
    if isinstance(one, Choice):
        return value if value in one.options else one.options[0]
    assert not isinstance(one, Increasing)
    inside = min(max(value, one.low), one.high)
    return float(inside) if isinstance(one, Real) else round(inside)
