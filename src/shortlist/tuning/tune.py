"""`tune`: the search for good settings of a recommender."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from shortlist._checks import flag, integer
from shortlist._clock import working_seconds
from shortlist._phrases import count
from shortlist._threads import thread_count
from shortlist.data.features.table import Features
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.errors import DataError, ShortlistWarning
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.fit_options import FitOptions, refuse_epochs
from shortlist.recommenders.search_space import Dimension
from shortlist.tuning.journal import open_journal
from shortlist.tuning.optuna_adapter import optuna
from shortlist.tuning.problem import Problem, as_recommender, effective_space
from shortlist.tuning.proposals import ROUND, Proposals, importance
from shortlist.tuning.search import Budget, Search
from shortlist.tuning.search_progress import search_progress
from shortlist.tuning.tuning_result import Trial, Tuned


def tune(
    model: str | type[Recommender] | Recommender,
    data: Interactions | Split,
    *,
    metric: str = "ndcg@20",
    trials: int | None = None,
    seconds: float | None = None,
    space: Mapping[str, Dimension | None] | None = None,
    study: str | PathLike[str] | None = None,
    seed: int = 0,
    workers: int = 1,
    threads: int | None = None,
    sample: int | None = 5000,
    patience: int = 3,
    warm_start: bool = True,
    refit: bool = True,
    context_features: Features | None = None,
    item_features: Features | None = None,
    progress: bool | None = None,
) -> Tuned:
    """Search for the best settings of a recommender, then refit it with those settings on all of `data`.

    The first trial uses the recommender's current settings, or the nearest ones in the space. Later trials are drawn
    from the recommender's `space()`: at first at random, then by Optuna's TPE sampler, jointly over all settings.

    If a setting is `Increasing`, as `dim` is, the search starts at its smallest value. Then it tries the best settings
    at the next larger value, and so on as long as that improves the metric. Trials at a larger `dim` start from the
    embeddings of the best smaller model (`warm_start`). At the end, the best of these settings are tried again from a
    random start. Any complete trial can win. If the winner started from a smaller model, `start` of the result has the
    settings of that model, and the final `model` is fitted the same way: first the smaller model, then the larger one
    from its embeddings.

    Recommenders that learn in epochs are evaluated after each epoch, or after every fifth if they learn from sampled
    pairs. A trial is pruned if its score is below the median of other trials at the same epoch. Trials that are not
    pruned are scored at their best epoch. If a trial fails, for example because of numerical overflow or lack of
    memory, its error is recorded and the search continues.

    Ctrl-C without a `study` ends the search: the result has the best settings so far, but no fitted model. With a
    `study`, Ctrl-C raises `KeyboardInterrupt`, and a later call resumes the search.

    Args:
        model: a recommender's name such as `"ials"`, its class, or an instance. Settings of an instance that differ
            from the defaults are kept fixed, unless they are in `space`.
        data: a split, whose held-out pairs are used for validation, so do not pass the split you will test on; or
            events, whose newest tenth is used (a random tenth if the events have no times).
        metric: an accuracy metric to maximise.
        trials: the total number of trials, over all calls with the same `study`; 40 if neither `trials` nor `seconds`
            is given.
        seconds: the total time, over all calls with the same `study`. Trials that are running when the time is up stay
            unfinished. For recommenders without epochs, a trial fails if it takes longer than `seconds` / 4. The time
            for compiling kernels, once per machine, does not count.
        space: {setting: search range} that replaces ranges of the recommender's own space; None keeps a setting fixed.
            If the events have weights, `weighting` is searched too.
        study: a file to which each trial is written as soon as it ends, in the format of Optuna's journal. A later call
            with the same arguments resumes the search: finished trials are not repeated, and an interrupted trial
            resumes from its last checkpoint, which is stored next to the file while the trial runs.
        seed: the same seed, data and number of trials give the same trials, however many workers there are and whether
            or not the search was interrupted. Models that learn from sampled negatives also need `threads=1`. With
            `seconds`, the number of trials depends on the machine.
        workers: the number of trials that run at a time, in threads of this process; at most 4 and at most `threads`.
        threads: the number of threads of all workers together; all CPUs by default.
        sample: the number of validation contexts for the evaluation after each epoch; ten times as many are used at
            the end of a trial. None uses all contexts.
        patience: a trial stops after this many evaluations without improvement.
        warm_start: whether trials at larger dimensions start from the best smaller model; if False, all trials have a
            random start.
        refit: whether to fit the best settings to the training and validation parts together at the end. The fitted
            model is `model` of the result.
        context_features: features of contexts, for recommenders that use them, as in `fit`.
        item_features: features of items, for recommenders that use them, as in `fit`.
        progress: whether to show a progress bar with the best score so far; by default only if standard error is a
            terminal. If it is not a terminal, True prints one line per trial.

    >>> import shortlist as sl
    >>> events = sl.datasets.load("online-retail").interactions
    >>> tuned = sl.tune("ease", events, trials=3, progress=False)
    >>> tuned.settings["regularization"] == tuned.model.regularization, len(tuned.trials)
    (True, 3)
    """
    optuna()
    budget = Budget.of(trials, seconds)
    seed, workers = integer("seed", seed, least=0), integer("workers", workers)
    if sample is not None:
        sample = integer("sample", sample)
    flag("refit", refit)
    flag("warm_start", warm_start)
    template = as_recommender(model)
    if not template.learns_in_epochs and patience != FitOptions.patience:
        refuse_epochs(type(template).__name__, patience=patience)
    workers = min(workers, ROUND, thread_count(threads))
    threads_per_trial = thread_count(threads) // workers if workers > 1 else threads
    problem = Problem.of(
        template,
        data,
        metric=metric,
        sample=sample,
        patience=patience,
        seed=seed,
        threads=threads_per_trial,
        context_features=context_features,
        item_features=item_features,
    )
    chosen = effective_space(template, space, problem.split.train.by_context.values is not None)
    identity = {
        **problem.identity(),
        "seed": seed,
        "warm_start": warm_start,
        "the space": {
            name: {"kind": type(dimension).__name__, **asdict(dimension)} for name, dimension in chosen.items()
        },
        "settings": {name: value for name, value in template.settings().items() if name not in chosen},
    }
    interrupted = False
    with (
        open_journal(study, chosen, identity) as journal,
        search_progress(type(template).__name__, problem.metric, budget.trials, budget.seconds, progress) as watch,
    ):
        search = Search(
            problem,
            chosen,
            journal,
            watch,
            budget,
            Proposals(chosen, problem.resolved_settings(), seed),
            workers=workers,
            warm=warm_start and template.learns_in_epochs and isinstance(template, DotProduct),
            checkpoints=None if study is None else Path(study),
        )
        try:
            search.run()
        except KeyboardInterrupt:
            if study is not None or not any(trial.counts for trial in journal.trials()):
                raise
            interrupted = True
        all_trials, spent = journal.trials(), journal.seconds
    best = _best(all_trials, problem.metric)
    settings = _settings(problem, best.settings, best.epoch)
    start = None if best.start is None else _settings(problem, all_trials[best.start].settings, best.start_epoch)
    if interrupted:
        finished = count(sum(trial.ended for trial in all_trials), "finished trial")
        warnings.warn(
            f"the search was interrupted: the result is the best of {finished}, and no model is fitted to all events",
            ShortlistWarning,
            stacklevel=2,
        )
        refit = False
    start_time = working_seconds()
    fitted = problem.fit_final(settings, start, progress, threads) if refit else None
    return Tuned(
        recommender=type(template).__name__,
        metric=problem.metric,
        settings=settings,
        best=best,
        trials=all_trials,
        importance=importance(chosen, all_trials),
        seconds=spent,
        model=fitted,
        refit_seconds=working_seconds() - start_time if refit else None,
        searched=tuple(chosen),
        start=start,
        interrupted=interrupted,
    )


def _settings(problem: Problem, chosen: Mapping[str, Any], epoch: int | None) -> dict[str, Any]:
    """Return all settings of the recommender, with the chosen ones; if it has epochs, they end at the best one."""
    settings = problem.all_settings(chosen)
    return settings if epoch is None else settings | problem.recommender(settings).settings_ending_at(epoch)


def _best(trials: Sequence[Trial], metric: str) -> Trial:
    if complete := [trial for trial in trials if trial.counts]:
        return max(complete, key=lambda trial: trial.place)
    if failed := [trial for trial in trials if trial.state == "failed"]:
        raise DataError(f"no trial has a {metric}: {len(failed)} failed; the last error: {failed[-1].reason}")
    raise DataError("no trial was completed", hint="allow more time")
