"""The search for good settings."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from shortlist._checks import flag, whole
from shortlist._clock import working_seconds
from shortlist._threads import thread_count
from shortlist.data.features.table import Features
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.errors import DataError, ShortlistWarning
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.fit_options import FitOptions, refuse_epochs
from shortlist.recommenders.search_space import Dimension
from shortlist.tuning.journal import opened
from shortlist.tuning.optuna_adapter import optuna
from shortlist.tuning.problem import Problem, made, searched
from shortlist.tuning.proposals import ROUND, Proposals, importance
from shortlist.tuning.search import Budget, Search
from shortlist.tuning.search_progress import watched
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
    """Search the settings of a recommender, and fit the best to all the events.

    The first trial has the settings as they are, or the nearest that the space has; the next ones are drawn from the
    recommender's `space()`, at random and then where it was good so far (Optuna's TPE, over all settings at once).
    Where a setting grows, as `dim` does, the search begins at its smallest value and takes the best settings on to the
    next larger one, as long as that is better; its trials begin from the embeddings of the best smaller model, and the
    best of them are done again from nothing at the end. Every trial that is complete can be the best. Where the best
    one began from a smaller model, `start` of the result has the settings of that model, and `model` is fitted the same
    way.

    Ctrl-C without a `study` ends the search with the best so far, not fitted to all the events; with a `study` it is
    raised, and a later call goes on.

    Recommenders that learn in epochs are judged after each of them, or every fifth where they learn by sampling; a
    trial is given up when its curve is below the median of those that came as far, and stops at its best epoch
    otherwise. A trial that fails, for want of memory or because numbers overflow, is written down as such, and the
    search goes on.

    Args:
        model: a name such as `"ials"`, a class, or a recommender: settings of it that are not the class's defaults
            stay as they are, and so do those that nobody searches.
        data: a split whose truth is the validation; or events, of which the newest tenth (a random one where they have
            no times) is taken for validation.
        metric: of accuracy, the higher the better.
        trials: how many there shall be in the study, over all calls that share its file; 40 where nothing is said.
        seconds: how long the study may be worked on, likewise. What is then running stays unfinished. Of a recommender
            without epochs, a trial that takes more than a quarter of it has failed. The time in which kernels are
            compiled, once on a machine, does not count.
        space: instead of the recommender's own, setting by setting; None keeps a setting as it is. Where pairs have
            weights, `weighting` is searched too.
        study: a file that every trial is written to at once, in the format of Optuna's journal. A later call with the
            same arguments goes on where it was: a trial that a kill has cut off is done from its last checkpoint,
            which lies beside the file while the trial runs, and no trial is done twice.
        seed: the same seed, data and number of trials give the same trials, however many workers there are, and whether
            it was interrupted or not. With `seconds` it depends on the machine how far it gets.
        workers: how many trials run at a time, in threads of this process: four at most, and no more than `threads`.
        threads: how many to use, over all workers; all CPUs by default.
        sample: so many contexts of the validation are asked for after each epoch, and ten times as many at the end of
            a trial; None: all of them.
        patience: a trial stops when it was judged so often without a better epoch.
        warm_start: whether trials at larger dimensions begin from the best model of the smaller ones; False: all from
            nothing.
        refit: fit the best settings to training and validation part together at the end; it is `model` of the result.
        context_features: what is known of contexts, for recommenders that learn from it, as in `fit`.
        item_features: likewise of items.
        progress: show a bar with the best so far; by default where standard error is a terminal. Elsewhere True prints
            a line a trial.

    >>> import shortlist as sl
    >>> events = sl.datasets.load("online-retail").interactions
    >>> tuned = sl.tune("ease", events, trials=3, progress=False)
    >>> tuned.settings["regularization"] == tuned.model.regularization, len(tuned.trials)
    (True, 3)
    """
    optuna()
    budget = Budget.of(trials, seconds)
    seed, workers = whole("seed", seed, least=0), whole("workers", workers)
    if sample is not None:
        sample = whole("sample", sample)
    flag("refit", refit)
    flag("warm_start", warm_start)
    template = made(model)
    if not template._in_epochs and patience != FitOptions.patience:
        refuse_epochs(type(template).__name__, patience=patience)
    workers = min(workers, ROUND, thread_count(threads))
    each = thread_count(threads) // workers if workers > 1 else threads
    problem = Problem.of(
        template,
        data,
        metric=metric,
        sample=sample,
        patience=patience,
        seed=seed,
        threads=each,
        context_features=context_features,
        item_features=item_features,
    )
    chosen = searched(template, space, problem.split.train.by_context.values is not None)
    identity = {
        **problem.identity(),
        "seed": seed,
        "warm_start": warm_start,
        "the space": {name: {"kind": type(one).__name__, **asdict(one)} for name, one in chosen.items()},
        "settings": {name: one for name, one in template.settings().items() if name not in chosen},
    }
    interrupted = False
    with (
        opened(study, chosen, identity) as journal,
        watched(type(template).__name__, problem.metric, budget.trials, budget.seconds, progress) as watch,
    ):
        search = Search(
            problem,
            chosen,
            journal,
            watch,
            budget,
            Proposals(chosen, problem.usual(), seed),
            workers=workers,
            warm=warm_start and template._in_epochs and isinstance(template, DotProduct),
            checkpoints=None if study is None else Path(study),
        )
        try:
            search.run()
        except KeyboardInterrupt:
            if study is not None or not any(one.counts for one in journal.trials()):
                raise
            interrupted = True
        found, spent = journal.trials(), journal.seconds
    best = _best(found, problem.metric)
    settings = _settings(problem, best.settings, best.epoch)
    start = None if best.start is None else _settings(problem, found[best.start].settings, best.start_epoch)
    if interrupted:
        ended = sum(one.ended for one in found)
        warnings.warn(
            f"the search was interrupted: the result is the best of the {ended:,} trials that ended, not fitted to all "
            "the events",
            ShortlistWarning,
            stacklevel=2,
        )
        refit = False
    began = working_seconds()
    fitted = problem.final(settings, start, progress, threads) if refit else None
    return Tuned(
        recommender=type(template).__name__,
        metric=problem.metric,
        settings=settings,
        best=best,
        trials=found,
        importance=importance(chosen, found),
        seconds=spent,
        model=fitted,
        refit_seconds=working_seconds() - began if refit else None,
        searched=tuple(chosen),
        start=start,
        interrupted=interrupted,
    )


def _settings(problem: Problem, chosen: Mapping[str, Any], epoch: int | None) -> dict[str, Any]:
    """All settings of a recommender with these chosen, to end with what was its best epoch, if it has epochs."""
    settings = problem.completed(chosen)
    return settings if epoch is None else settings | problem.recommender(settings)._ending_at(epoch)


def _best(trials: Sequence[Trial], metric: str) -> Trial:
    if complete := [one for one in trials if one.counts]:
        return max(complete, key=lambda one: one.place)
    if failed := [one for one in trials if one.state == "failed"]:
        raise DataError(f"no trial has a {metric}: {len(failed)} failed, the last one thus: {failed[-1].reason}")
    raise DataError("no trial came to its end; give it more time")
