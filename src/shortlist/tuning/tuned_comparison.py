"""Which recommender to take: each at its best settings, all asked the same question, once."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from shortlist._clock import working_seconds
from shortlist._compile_notes import silent
from shortlist.data import splits
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split, among
from shortlist.errors import DataError, SettingError, ShortlistWarning
from shortlist.evaluation import Comparison, Evaluation, compare, evaluate
from shortlist.evaluation.comparison import verdict_of
from shortlist.metrics import Metric, parse_metric, parse_metrics
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.fit_progress import is_shown
from shortlist.recommenders.popularity import Popularity
from shortlist.recommenders.registry import recommender_class
from shortlist.recommenders.search_space import Dimension
from shortlist.tuning.problem import searched
from shortlist.tuning.tune import tune

Model: TypeAlias = str | type[Recommender] | Recommender
MODELS = ("popularity", "itemknn", "userknn", "ease", "slim", "ials")
LISTS = ("coverage@20", "popularity@20")  # what the lists of each are like, beside the accuracy
LEFT_OUT = "left out"
MUCH = 2  # times as fast: less is no reason to take one that may be worse
_EQUAL = ("best", "no real difference")


@dataclass(frozen=True, eq=False, kw_only=True)
class TunedModel:
    """A recommender at its best settings, fitted to the training part and measured on the test; or why it is not.

    Args:
        name: the recommender's.
        settings: the best ones, for its constructor.
        start: the settings of the model that it begins from, None where it begins from nothing; see `Tuned`.
        searched: the names of those that were searched.
        model: fitted to the training part; None where it was left out.
        result: on the test; likewise.
        validation: the metric on the validation split, by which its settings were chosen.
        trials: how many settings were tried.
        search_seconds: how long that took.
        fit_seconds: how long it takes to fit with the best ones, its start included.
        reason: why it was left out.
        difference: to the best, in the metric of the verdict.
        low: of the difference's interval; NaN where there are too few contexts.
        high: likewise.
        verdict: `"best"`, `"worse"`, `"no real difference"`, `"too few contexts to tell"` or `"left out"`.
        frontier: no other recommender that is as good or better is faster to fit.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] | None = None
    searched: tuple[str, ...] = ()
    model: Recommender | None = None
    result: Evaluation | None = None
    validation: float | None = None
    trials: int = 0
    search_seconds: float = 0.0
    fit_seconds: float = float("nan")
    reason: str | None = None
    difference: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    verdict: str = LEFT_OUT
    frontier: bool = False


@dataclass(frozen=True, eq=False)
class TunedComparison:
    """Recommenders at their best settings, side by side.

    `rows` has the best first and those that were left out last; `comparison` all metrics, None where there is nothing
    to compare. `winner` is the best, or, where others cannot be told from it and are much faster to fit, the fastest of
    them. `verdict` says so in a sentence.
    """

    metric: str
    rows: list[TunedModel]
    comparison: Comparison | None
    winner: TunedModel
    verdict: str

    def to_polars(self) -> pl.DataFrame:
        """A row for each recommender: its metrics with their standard errors, the verdict, what it costs."""
        results = [row.result for row in self.rows if row.result is not None]
        figures: list[dict[str, Any]] = []
        for row in self.rows:
            figures.append({"model": row.name})
            for metric in results[0]:
                mean, error = (None, None) if row.result is None else (row.result[metric], row.result.stderr[metric])
                figures[-1] |= {metric: mean, f"{metric} stderr": error}
            names = ("difference", "low", "high", "verdict", "frontier", "validation", "trials", "search_seconds")
            figures[-1] |= {name: getattr(row, name) for name in (*names, "fit_seconds", "reason")}
        types = {"validation": pl.Float64, "reason": pl.String}
        return pl.DataFrame(figures, schema_overrides=types, infer_schema_length=None)

    def __repr__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = [f"{self.metric} (difference to the best)"]
        for row in self.rows:
            if row.result is None:
                told = f"left out: {row.reason}"
            else:
                difference = "" if row.verdict == "best" else f"  {row.difference:+.4f}{interval(row, ' [{}, {}]')}"
                told = f"{row.result.figure(self.metric)}{difference}  {row.verdict}, fitted in {row.fit_seconds:.1f} s"
            lines.append(f"  {row.name:<{width}}  {told}")
        return "\n".join([*lines, self.verdict])


def compare_tuned(
    split: Split,
    *,
    models: Sequence[Model] = MODELS,
    spaces: Mapping[str, Mapping[str, Dimension | None]] | None = None,
    validation: Split | None = None,
    metric: str = "ndcg@20",
    metrics: str | Sequence[str | Metric] = ("recall@20", "ndcg@20"),
    trials: int | None = None,
    seconds: float | None = None,
    study: str | PathLike[str] | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: bool | None = None,
) -> TunedComparison:
    """Tune each recommender with the same budget, fit it anew, measure all once, and say which differences are real.

    Settings are searched on a validation split within `split.train`; with the best ones each recommender is fitted to
    the whole of `split.train`, and `split.truth` is asked for once. A recommender that the data is too large for is
    left out, with the reason. Popularity always takes part.

    Args:
        split: the question.
        models: the recommenders by name, class or instance; settings of an instance stay, where they are not searched.
        spaces: by the name of a recommender, what is searched instead of its own space; see `tune`.
        validation: a split of `split.train`. By default one of the same kind as `split`; see `validation_within`.
        metric: by which settings are chosen and recommenders are told apart, such as "ndcg@20".
        metrics: to measure beside it; `coverage@20` and `popularity@20` are always there.
        trials: for each recommender; see `tune`.
        seconds: likewise, without the time in which kernels are compiled; neither given: 40 trials.
        study: a folder for a file of each recommender's trials, from which a later call goes on.
        seed: of the search, of the order of equal scores, and of a random validation split.
        threads: how many to use; all CPUs by default.
        progress: tell on standard error how far it is; by default where that is a terminal.

    >>> from shortlist.data import datasets
    >>> split = splits.by_time(datasets.load("online-retail").interactions)
    >>> result = contest(split, models=["itemknn"], trials=2, progress=False)
    >>> result.winner.name, [row.verdict for row in result.rows]
    ('ItemKNN', ['best', 'worse'])
    """
    if not isinstance(split, Split):
        raise SettingError(f"contest takes a Split, got {type(split).__name__}; make one with shortlist.splits")
    metric = str(parse_metric(metric))
    if parse_metric(metric).beyond_accuracy:
        raise SettingError(f"metric is {metric!r}; expected a metric of accuracy, the higher the better")
    wanted = [str(one) for one in parse_metrics(metrics)]
    wanted = list(dict.fromkeys([*([] if metric in wanted else [metric]), *wanted, *LISTS]))
    entrants = _entrants(models)
    if spaces is not None and not (isinstance(spaces, Mapping) and all(isinstance(name, str) for name in spaces)):
        raise SettingError(f"spaces is {spaces!r:.80}; expected a search space by the name of each model")
    strange = [name for name in spaces or {} if name.lower() not in [type(one).__name__.lower() for one in entrants]]
    if strange:
        raise SettingError(f"spaces has {strange[0]!r}, which is not among the models")
    own = {name.lower(): space for name, space in (spaces or {}).items()}
    if len(own) < len(spaces or {}):
        raise SettingError("spaces has the same model twice; expected one space for each")
    if not split.truth.n_contexts:
        raise DataError("the split asks for no context; take a larger test part")
    inner = validation_within(split, seed=seed) if validation is None else validation
    _refuse_leak(split, inner)
    told = is_shown(progress)
    if study is not None and not isinstance(study, str | PathLike):
        raise SettingError(f"study is {study!r:.80}; expected the path of a folder")
    rows = []
    for k, entrant in enumerate(entrants, 1):
        name = type(entrant).__name__
        if told:
            sys.stderr.write(f"{name}, {k} of {len(entrants)}\n")
        how = {
            "metric": metric,
            "trials": trials,
            "seconds": seconds,
            "space": own.get(name.lower()),
            "study": None if study is None else os.fspath(Path(study) / f"{name.lower()}.study"),
            "seed": seed,
            "threads": threads,
            "progress": progress,
        }
        try:
            with silent(progress is not None and not told):
                rows.append(_tried(entrant, split, inner, wanted, how))
        except (DataError, MemoryError) as error:
            rows.append(TunedModel(name=name, reason=str(error) or type(error).__name__))
            if told:
                sys.stderr.write(f"{name} is left out: {rows[-1].reason}\n")
    return judged(rows, metric, seed=seed)


def validation_within(split: Split, *, fold_in: float | None = None, seed: int = 0) -> Split:
    """A split of `split.train` of the same kind as `split` itself, and of about the same size.

    By time, of each context's last events, by contexts or at random; of a published split it is by contexts where the
    contexts asked for are strangers, else at random.

    Args:
        split: the outer one.
        fold_in: the share of a held-out context's pairs that is shown, where it is by contexts; as in `split` itself
            by default, drawn at random.
        seed: of random ones.
    """
    train, repeats = split.train, split.repeats
    try:
        if split.fold_in:
            shown, asked = split.history.n_pairs, split.truth.n_pairs
            share = min(0.95, max(0.05, round(shown / (shown + asked), 2))) if fold_in is None else fold_in
            count = min(split.truth.n_contexts, train.n_contexts // 2)
            return splits.held_out_contexts(train, count, fold_in=share, seed=seed)
        if split.protocol.startswith("time"):
            return splits.by_time(train, _share(split), repeats=repeats)
        if split.protocol.startswith("leaving"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ShortlistWarning)  # which came with the outer split
                most = int(split.truth.by_context.lengths.max())
                return splits.leave_last_out(train, most, repeats=repeats)
        return splits.at_random(train, _share(split), seed=seed, repeats=repeats)
    except DataError as error:
        raise DataError(f"for the validation split, within the training part: {error}") from error


def judged(rows: Sequence[TunedModel], metric: str, *, seed: int = 0) -> TunedComparison:
    """The rows in their order, with what can be said about each, and about all of them together."""
    fitted = [row for row in rows if row.result is not None]
    left_out = [row for row in rows if row.result is None]
    if not fitted:
        raise DataError(f"no recommender could be fitted: {'; '.join(f'{one.name}: {one.reason}' for one in left_out)}")
    results = [row.result for row in fitted if row.result is not None]
    comparison = None
    verdicts: list[dict[str, Any]] = [
        {"model": fitted[0].name, "mean": results[0][metric], "difference": 0.0, "low": 0.0, "high": 0.0}
    ]
    if len(fitted) > 1:
        comparison = compare(*results, names=[row.name for row in fitted], seed=seed)
        verdicts = [row for row in comparison.rows if row["metric"] == metric]
    means = {one["model"]: one["mean"] for one in verdicts}
    by_name = {row.name: row for row in fitted}
    ordered = [
        replace(
            by_name[one["model"]],
            difference=one["difference"],
            low=one["low"],
            high=one["high"],
            verdict=verdict_of(one),
            frontier=not any(
                means[other.name] >= one["mean"] and other.fit_seconds < by_name[one["model"]].fit_seconds
                for other in fitted
            ),
        )
        for one in verdicts
    ]
    winner, words = _verdict(ordered, metric, results[0].contexts.height, comparison)
    return TunedComparison(metric, [*ordered, *left_out], comparison, winner, words)


def interval(row: TunedModel, form: str) -> str:
    """The interval of the difference in that form; nothing where there is none.

    >>> interval(Row(name="EASE", low=-0.02, high=0.01), "{} … {}")
    '-0.0200 … +0.0100'
    """
    return "" if np.isnan(row.low) else form.format(f"{row.low:+.4f}", f"{row.high:+.4f}")


# --- how it is done --------------------------------------------------------------------------------------------------


def _entrants(models: Sequence[Model]) -> list[Recommender]:
    """Unfitted recommenders, Popularity among them."""
    if isinstance(models, str | Recommender | type):
        models = [models]
    if not isinstance(models, Iterable):
        raise SettingError(f"models is {models!r:.80}; expected names, classes or instances of recommenders")
    found: list[Recommender] = []
    for one in models:
        made = recommender_class(one)() if isinstance(one, str) else one() if isinstance(one, type) else one
        if not isinstance(made, Recommender):
            raise SettingError(f"models has {one!r:.80}; expected names, classes or instances of recommenders")
        found.append(made)
    if not any(isinstance(one, Popularity) for one in found):
        found.insert(0, Popularity())
    names = [type(one).__name__ for one in found]
    if len(set(names)) < len(names):
        raise SettingError(f"models are {', '.join(names)}; each recommender can take part once")
    return found


def _tried(
    entrant: Recommender, split: Split, validation: Split, metrics: list[str], how: dict[str, Any]
) -> TunedModel:
    """Tune, fit anew, measure."""
    kind = type(entrant)
    row = TunedModel(name=kind.__name__, settings=entrant.settings())
    if searched(entrant, how["space"], validation.train.by_context.values is not None):
        tuned = tune(entrant, validation, refit=False, **how)
        if tuned.interrupted:
            raise KeyboardInterrupt
        row = replace(
            row,
            settings={**row.settings, **tuned.settings},
            start=tuned.start,
            searched=tuple(tuned.best.settings),
            validation=tuned.value,
            trials=sum(one.ended for one in tuned.trials),
            search_seconds=tuned.seconds,
        )
    began = working_seconds()
    model = _fitted(kind, row.settings, row.start, split.train, how["threads"])
    fit_seconds = working_seconds() - began
    result = evaluate(model, split, metrics, seed=how["seed"], threads=how["threads"])
    settings = {**row.settings, **model.derived_}
    return replace(row, model=model, settings=settings, fit_seconds=fit_seconds, result=result)


def _fitted(
    kind: type[Recommender],
    settings: Mapping[str, Any],
    start: Mapping[str, Any] | None,
    events: Interactions,
    threads: int | None,
) -> Recommender:
    """A recommender of these settings fitted to the events; from a model with the settings `start`, if any."""
    smaller = None if start is None else _fitted(kind, start, None, events, threads)
    return kind(**settings).fit(events, start=smaller, progress=False, threads=threads)


def _refuse_leak(split: Split, validation: Split) -> None:
    """Refuse to choose settings by what the test asks for."""
    if not isinstance(validation, Split):
        raise SettingError(f"validation is of type {type(validation).__name__}; expected a Split of split.train")
    truth = split.truth
    leaked = int((among(truth, validation.events()) & ~among(truth, split.train)).sum())
    if leaked:
        raise DataError(
            f"{leaked:,} of the {len(truth):,} pairs that the test asks for are in the validation; make it a split of "
            "split.train"
        )


def _share(split: Split) -> float:
    """The share of the events that was asked for, whatever became of them."""
    counted = [n for what, n in split.dropped.items() if what.startswith(("test events", "test pairs"))]
    asked = len(split.truth) + sum(counted)
    return min(0.5, max(0.01, asked / (asked + len(split.train))))


def _verdict(
    rows: list[TunedModel], metric: str, contexts: int, comparison: Comparison | None
) -> tuple[TunedModel, str]:
    """Whom to take, and why."""
    best = rows[0]
    if comparison is None:
        return best, f"{best.name} is the only one that could be fitted"
    if any(row.verdict == "too few contexts to tell" for row in rows):
        return best, f"too few contexts to tell ({contexts:,}): {best.name} has the highest {metric}, perhaps by chance"
    equal = [row for row in rows if row.verdict in _EQUAL]
    other = rows[1] if len(equal) == 1 else equal[1]
    told = f"{metric} {other.difference:+.4f}, {comparison.confidence:.0%} interval {interval(other, '{} … {}')}"
    if len(equal) == 1:
        return best, f"{best.name} is best; the difference to {other.name} ({told}) is real"
    fastest = min(equal, key=lambda row: row.fit_seconds)
    winner = fastest if fastest.fit_seconds * MUCH <= best.fit_seconds else best
    names = f"{', '.join(row.name for row in equal[:-1])} and {equal[-1].name}"
    detail = f" ({told})" if len(equal) == 2 else ""
    why = f"is the {'faster' if len(equal) == 2 else 'fastest'} to train"
    if winner is not fastest:
        why = f"has the highest {metric}, and none of them is much faster to train"
    return winner, f"none: {names} cannot be told apart{detail}; {winner.name} {why}"
