"""Proposals of settings, and pruning of trials: Optuna's samplers and pruners applied to the finished trials.

Proposals come in rounds. A round depends only on the seed, its number and the trials of earlier rounds. Pruning uses
only the curves of earlier rounds. So the results do not depend on how many trials of a round run at a time, in which
order they finish, or whether the process was killed in between.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist._phrases import join_words
from shortlist.errors import SettingError
from shortlist.recommenders.search_space import Choice, Dimension, Increasing, Real, Space, Value
from shortlist.tuning.optuna_adapter import distributions, optuna, quiet
from shortlist.tuning.tuning_result import Trial

if TYPE_CHECKING:
    from optuna.study import Study

ROUND = 4  # trials in a round
RANDOM = 8  # random trials before the sampler learns from results
CARRIED = 3  # best settings that are repeated at the next larger dimension
_TRIES = 20  # draws to find new settings
_DIGITS = 4  # significant digits of drawn numbers
_WARM_UP = 2  # epochs before a trial can be pruned
_MIN_CURVES = 4  # curves that pruning needs for comparison


def increasing_setting(space: Space) -> str | None:
    """Return the name of the setting whose dimension is `Increasing`, or None."""
    names = [name for name, dimension in space.items() if isinstance(dimension, Increasing)]
    if len(names) > 1:
        raise SettingError(f"{join_words(names)} are Increasing; expected at most one such setting", field="space")
    return names[0] if names else None


class Proposals:
    """A generator of settings to try, one round at a time."""

    def __init__(self, space: Space, first: Mapping[str, Any], seed: int, size: int = ROUND) -> None:
        """Set up the generator; `first` are the settings to try first, moved into the space where needed."""
        self._space, self._given, self._seed, self.size = space, first, seed, size
        self._increasing = increasing_setting(space)
        self._distributions = {
            name: distribution for name, distribution in distributions(space).items() if name != self._increasing
        }
        self._first: dict[str, Any] = {}
        for name in self._in_order():
            if name in first and self._applies(name, self._first):
                self._first[name] = _nearest(space[name], first[name])

    def round(
        self,
        number: int,
        before: Sequence[Trial],
        value: Value | None,
        chosen: Sequence[Mapping[str, Any]] = (),
    ) -> list[dict[str, Any]]:
        """Return new settings for round `number`, fewer than the round's size if no new settings are found.

        Args:
            number: the number of the round, from 0.
            before: the trials of all earlier rounds, all finished.
            value: the value of the increasing setting.
            chosen: settings that this round already has.
        """
        tried = [*(dict(trial.settings) for trial in before), *chosen]
        proposals = [settings for settings in self._carried_over(before, value) if settings not in tried]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna warns that some options in use are experimental
            study = self._study(before, [*chosen, *proposals], number)
            for _ in range(_TRIES * self.size):
                if len(proposals) + len(chosen) >= self.size:
                    break
                drawn = self._complete(self._draw(study), value)
                if drawn not in tried and drawn not in proposals:
                    proposals.append(drawn)
        return proposals

    def _carried_over(self, before: Sequence[Trial], value: Value | None) -> list[dict[str, Any]]:
        """Return the settings to try first at a new dimension: the best at smaller dimensions, or the first settings.

        Empty if there are trials at this dimension already.
        """
        if any(self._increasing is None or trial.settings[self._increasing] == value for trial in before):
            return []
        complete = sorted((trial for trial in before if trial.state == "complete"), key=lambda trial: -trial.merit)
        best = [
            {name: setting for name, setting in trial.settings.items() if name != self._increasing}
            for trial in complete
        ]
        distinct = [settings for k, settings in enumerate(best) if settings not in best[:k]]
        return [
            self._complete(settings, value)
            for settings in distinct[:CARRIED] or [self._first]
            if settings or not self._distributions
        ]

    def _complete(self, settings: dict[str, Any], value: Value | None) -> dict[str, Any]:
        """Return the settings with the increasing one, in the order of the space."""
        every = settings if self._increasing is None else {**settings, self._increasing: value}
        return {name: every[name] for name in self._space if name in every}

    def _study(self, before: Sequence[Trial], running: Sequence[Mapping[str, Any]], number: int) -> Study:
        """Return an Optuna study of the trials so far.

        The value of a trial is its score divided by the best score at the same dimension. A failed trial has the value
        0.
        """
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState, create_trial

        (seed,) = np.random.SeedSequence([self._seed, number]).generate_state(1)
        sampler = TPESampler(
            seed=int(seed),
            n_startup_trials=RANDOM,
            multivariate=True,
            group=any(dimension.when is not None for dimension in self._space.values()),
            constant_liar=True,
            warn_independent_sampling=False,
        )
        with quiet():
            study: Study = optuna().create_study(direction="maximize", sampler=sampler)
        stages = [trial.settings.get(self._increasing or "") for trial in before]
        best = {
            stage: max(trial.merit for trial, other in zip(before, stages) if other == stage) for stage in set(stages)
        }
        for trial, stage in zip(before, stages):
            value = 0.0 if trial.state == "failed" else trial.merit / (best[stage] or 1.0)
            study.add_trial(create_trial(value=value, **self._params(trial.settings)))
        for settings in running:
            study.add_trial(create_trial(state=TrialState.RUNNING, **self._params(settings)))
        return study

    def _params(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        params = {name: setting for name, setting in settings.items() if name != self._increasing}
        return {"params": params, "distributions": {name: self._distributions[name] for name in params}}

    def _in_order(self) -> list[str]:
        """Return the names of all settings but the increasing one; settings that depend on others come last."""
        return sorted(self._distributions, key=lambda name: self._space[name].when is not None)

    def _applies(self, name: str, chosen: Mapping[str, Any]) -> bool:
        when = self._space[name].when
        return when is None or when.holds({**self._given, **chosen})

    def _draw(self, study: Study) -> dict[str, Any]:
        trial = study.ask()
        settings: dict[str, Any] = {}
        for name in self._in_order():
            dimension = self._space[name]
            if not self._applies(name, settings):
                continue
            if isinstance(dimension, Choice):
                settings[name] = trial.suggest_categorical(name, dimension.options)
            elif isinstance(dimension, Real):
                drawn = trial.suggest_float(name, dimension.low, dimension.high, log=dimension.log)
                rounded = float(f"{drawn:.{_DIGITS}g}")
                settings[name] = min(max(rounded, dimension.low), dimension.high)
            else:
                assert not isinstance(dimension, Increasing)
                settings[name] = trial.suggest_int(name, dimension.low, dimension.high, log=dimension.log)
        return settings


class MedianPruning:
    """Pruning of a trial if its best score so far is below the median of other trials after as many epochs (≥ 2)."""

    def __init__(self, others: Sequence[Trial]) -> None:
        from optuna.pruners import PercentilePruner
        from optuna.trial import create_trial

        self._pruner = PercentilePruner(50.0, n_startup_trials=_MIN_CURVES, n_warmup_steps=_WARM_UP)
        with quiet():
            self._study: Study = optuna().create_study(direction="maximize", pruner=self._pruner)
        for trial in others:
            curve = dict(zip(trial.epochs, trial.curve))
            self._study.add_trial(create_trial(value=trial.merit, intermediate_values=curve))

    def should_prune(self, curve: Mapping[int, float]) -> bool:
        """Return whether to prune a trial with these scores by epoch."""
        from optuna.trial import TrialState, create_trial

        trial = create_trial(state=TrialState.RUNNING, intermediate_values=dict(curve))
        return bool(self._pruner.prune(self._study, trial))


def importance(space: Space, trials: Sequence[Trial]) -> dict[str, float]:
    """Return how much each setting matters for reaching the best tenth of the trials (conditional PED-ANOVA).

    A setting that applies to some trials only is compared among those, and is weighted by how many of the best trials
    have it. Empty if there are fewer than ten trials, or if an old version of Optuna cannot handle such a setting.
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
            used = {name: known[name] for name in params}
            study.add_trial(create_trial(value=trial.merit, params=params, distributions=used))
        shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    if shares.keys() != set(names):
        return {}
    return {name: float(share) for name, share in sorted(shares.items(), key=lambda item: -item[1])}


def _nearest(dimension: Dimension, value: Any) -> Any:
    """Return the value of a dimension that is nearest to this one."""
    if isinstance(dimension, Choice):
        return value if value in dimension.options else dimension.options[0]
    assert not isinstance(dimension, Increasing)
    inside = min(max(value, dimension.low), dimension.high)
    return float(inside) if isinstance(dimension, Real) else round(inside)
