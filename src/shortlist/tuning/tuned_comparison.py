"""`compare_tuned`: comparison of recommenders, each with its best settings, on one test split."""

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
from shortlist._phrases import join_words
from shortlist._progress import is_shown
from shortlist.data import splits
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split, among
from shortlist.errors import DataError, SettingError, ShortlistWarning
from shortlist.evaluation import Comparison, Evaluation, compare, evaluate
from shortlist.evaluation.comparison import verdict_of
from shortlist.metrics import Metric, parse_metric, parse_metrics
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.popularity import Popularity
from shortlist.recommenders.registry import recommender_class
from shortlist.recommenders.search_space import Dimension
from shortlist.tuning.problem import effective_space
from shortlist.tuning.tune import tune

Model: TypeAlias = str | type[Recommender] | Recommender
MODELS = ("popularity", "itemknn", "userknn", "ease", "slim", "ials")
LISTS = ("coverage@20", "popularity@20")  # always measured, in addition to the accuracy
LEFT_OUT = "left out"
MIN_SPEEDUP = 2  # the winner is a faster model only if it is at least this many times as fast as the best one
_EQUAL = ("best", "no real difference")


@dataclass(frozen=True, eq=False, kw_only=True)
class TunedModel:
    """A recommender with its best settings and its result on the test split, or the reason why it was left out.

    Args:
        name: the class name of the recommender.
        settings: the best settings, for the constructor.
        start: the settings of the smaller model that it starts from; None for a random start. See `Tuned`.
        searched: the names of the searched settings.
        model: the model fitted to the training part; None if it was left out.
        result: the evaluation on the test split; None if it was left out.
        validation: the metric of the best settings on the validation split.
        trials: the number of finished trials.
        search_seconds: the time of the search.
        fit_seconds: the time of the fit with the best settings, including that of the start model.
        reason: the error message if it was left out.
        difference: the difference to the best recommender in the metric.
        low: the lower end of the difference's confidence interval; NaN if there are too few contexts.
        high: the upper end of the interval; NaN if there are too few contexts.
        verdict: `"best"`, `"worse"`, `"no real difference"`, `"too few contexts to tell"` or `"left out"`.
        frontier: whether no other recommender is both at least as good and faster to fit.
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
    """The result of `compare_tuned`.

    Attributes:
        metric: the metric of the verdicts.
        rows: one `TunedModel` per recommender, the best first; those that were left out come last.
        comparison: the comparison in all metrics; None if only one recommender could be fitted.
        winner: the recommender to use: the best one, or the fastest of those without a real difference to it if that
            one fits at least twice as fast.
        verdict: the outcome in one sentence.
    """

    metric: str
    rows: list[TunedModel]
    comparison: Comparison | None
    winner: TunedModel
    verdict: str

    def to_polars(self) -> pl.DataFrame:
        """Return one row per recommender: metrics with standard errors, verdict, number of trials and times."""
        results = [row.result for row in self.rows if row.result is not None]
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            rows.append({"model": row.name})
            for metric in results[0]:
                mean, error = (None, None) if row.result is None else (row.result[metric], row.result.stderr[metric])
                rows[-1] |= {metric: mean, f"{metric} stderr": error}
            names = ("difference", "low", "high", "verdict", "frontier", "validation", "trials", "search_seconds")
            rows[-1] |= {name: getattr(row, name) for name in (*names, "fit_seconds", "reason")}
        types = {"validation": pl.Float64, "reason": pl.String}
        return pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None)

    def __repr__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = [f"{self.metric} (difference to the best)"]
        for row in self.rows:
            if row.result is None:
                outcome = f"left out: {row.reason}"
            else:
                difference = "" if row.verdict == "best" else f"  {row.difference:+.4f}{interval(row, ' [{}, {}]')}"
                score, seconds = row.result.text(self.metric), f"{row.fit_seconds:.1f} s"
                outcome = f"{score}{difference}  {row.verdict}, fitted in {seconds}"
            lines.append(f"  {row.name:<{width}}  {outcome}")
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
    """Tune several recommenders with the same budget, and compare them on the test split.

    The settings of each recommender are searched on a validation split of `split.train`. Then each recommender is
    fitted with its best settings to all of `split.train` and evaluated once on the test part. The result says which
    differences are statistically real. A recommender that fails, for example because the data is too large for it, is
    left out with the reason. `Popularity` is always included as a baseline.

    Args:
        split: the training and test parts.
        models: the recommenders by name, class or instance. Settings of an instance that differ from the defaults are
            kept fixed, unless they are in `spaces`.
        spaces: for each recommender by name, dimensions that replace those of its own space; see `tune`.
        validation: a split of `split.train`; by default one of the same type as `split`, see `validation_within`.
        metric: the metric for choosing settings and for the verdict, such as `"ndcg@20"`.
        metrics: other metrics to measure; `coverage@20` and `popularity@20` are always included.
        trials: the number of trials of each recommender; 40 if neither `trials` nor `seconds` is given.
        seconds: the time for the search of each recommender, without compilation of kernels; see `tune`.
        study: a folder with one study file per recommender, from which a later call resumes.
        seed: the seed of the search, of the order of equal scores, and of a random validation split.
        threads: the number of threads; all CPUs by default.
        progress: whether to show the progress on standard error; by default only if that is a terminal.

    >>> from shortlist.data import datasets
    >>> split = splits.by_time(datasets.load("online-retail").interactions)
    >>> result = compare_tuned(split, models=["itemknn"], trials=2, progress=False)
    >>> result.winner.name, [row.verdict for row in result.rows]
    ('ItemKNN', ['best', 'worse'])
    """
    if not isinstance(split, Split):
        raise SettingError(
            f"compare_tuned takes a Split, got {type(split).__name__}",
            field="split",
            hint="make one with shortlist.splits",
        )
    metric = str(parse_metric(metric))
    if parse_metric(metric).beyond_accuracy:
        raise SettingError(
            f"metric is {metric!r}; expected an accuracy metric, where higher is better, such as 'ndcg@20'",
            field="metric",
        )
    measured = [str(parsed) for parsed in parse_metrics(metrics)]
    measured = list(dict.fromkeys([*([] if metric in measured else [metric]), *measured, *LISTS]))
    templates = _templates(models)
    if spaces is not None and not (isinstance(spaces, Mapping) and all(isinstance(name, str) for name in spaces)):
        raise SettingError(
            f"spaces is {spaces!r:.80}; expected a mapping from model names to search spaces", field="spaces"
        )
    names = [type(template).__name__.lower() for template in templates]
    unknown = [name for name in spaces or {} if name.lower() not in names]
    if unknown:
        raise SettingError(f"spaces has {unknown[0]!r}, which is not among the models", field="spaces")
    space_of = {name.lower(): space for name, space in (spaces or {}).items()}
    if len(space_of) < len(spaces or {}):
        raise SettingError("spaces has the same model twice; expected one space for each", field="spaces")
    if not split.truth.n_contexts:
        raise DataError("the test part of the split has no contexts", code="empty-data", hint="make it larger")
    inner = validation_within(split, seed=seed) if validation is None else validation
    _refuse_leak(split, inner)
    shown = is_shown(progress)
    if study is not None and not isinstance(study, str | PathLike):
        raise SettingError(f"study is {study!r:.80}; expected the path of a folder", field="study")
    rows = []
    for k, template in enumerate(templates, 1):
        name = type(template).__name__
        if shown:
            sys.stderr.write(f"{name}, {k} of {len(templates)}\n")
        options = {
            "metric": metric,
            "trials": trials,
            "seconds": seconds,
            "space": space_of.get(name.lower()),
            "study": None if study is None else os.fspath(Path(study) / f"{name.lower()}.study"),
            "seed": seed,
            "threads": threads,
            "progress": progress,
        }
        try:
            with silent(progress is not None and not shown):
                rows.append(_tune_and_evaluate(template, split, inner, measured, options))
        except (DataError, MemoryError) as error:
            rows.append(TunedModel(name=name, reason=str(error) or type(error).__name__))
            if shown:
                sys.stderr.write(f"{name} is left out: {rows[-1].reason}\n")
    return rank_models(rows, metric, seed=seed)


def validation_within(split: Split, *, fold_in: float | None = None, seed: int = 0) -> Split:
    """Return a validation split of `split.train`, of the same type as `split` and with about the same test fraction.

    The types are: by time, last events of each context, held-out contexts, and at random. For a published split, the
    result has held-out contexts if the test contexts are unknown in training, else it is at random.

    Args:
        split: the outer split, into training and test parts.
        fold_in: for held-out contexts, the fraction of a context's pairs that is its history; by default the same
            fraction as in `split`.
        seed: the seed of random splits.
    """
    train, repeats = split.train, split.repeats
    try:
        if split.fold_in:
            shown, hidden = split.history.n_pairs, split.truth.n_pairs
            fraction = min(0.95, max(0.05, round(shown / (shown + hidden), 2))) if fold_in is None else fold_in
            n_contexts = min(split.truth.n_contexts, train.n_contexts // 2)
            return splits.held_out_contexts(train, n_contexts, fold_in=fraction, seed=seed)
        if split.protocol.startswith("time"):
            return splits.by_time(train, _test_fraction(split), repeats=repeats)
        if split.protocol.startswith("leaving"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ShortlistWarning)  # the outer split has given the same warning
                n_last = int(split.truth.by_context.lengths.max())
                return splits.leave_last_out(train, n_last, repeats=repeats)
        return splits.at_random(train, _test_fraction(split), seed=seed, repeats=repeats)
    except DataError as error:
        raise error.prefixed("cannot split off a validation part of the training part: ") from error


def rank_models(rows: Sequence[TunedModel], metric: str, *, seed: int = 0) -> TunedComparison:
    """Return the comparison of these models: rows sorted by the metric, with verdicts and the winner."""
    fitted = [row for row in rows if row.result is not None]
    left_out = [row for row in rows if row.result is None]
    if not fitted:
        raise DataError(f"no recommender could be fitted: {'; '.join(f'{row.name}: {row.reason}' for row in left_out)}")
    results = [row.result for row in fitted if row.result is not None]
    comparison = None
    verdicts: list[dict[str, Any]] = [
        {"model": fitted[0].name, "mean": results[0][metric], "difference": 0.0, "low": 0.0, "high": 0.0}
    ]
    if len(fitted) > 1:
        comparison = compare(*results, names=[row.name for row in fitted], seed=seed)
        verdicts = [row for row in comparison.rows if row["metric"] == metric]
    means = {verdict["model"]: verdict["mean"] for verdict in verdicts}
    by_name = {row.name: row for row in fitted}
    ordered = [
        replace(
            by_name[verdict["model"]],
            difference=verdict["difference"],
            low=verdict["low"],
            high=verdict["high"],
            verdict=verdict_of(verdict),
            frontier=not any(
                means[other.name] >= verdict["mean"] and other.fit_seconds < by_name[verdict["model"]].fit_seconds
                for other in fitted
            ),
        )
        for verdict in verdicts
    ]
    winner, sentence = _verdict(ordered, metric, results[0].contexts.height, comparison)
    return TunedComparison(metric, [*ordered, *left_out], comparison, winner, sentence)


def interval(row: TunedModel, form: str) -> str:
    """Format the confidence interval of the difference; return an empty string if there is none.

    >>> interval(TunedModel(name="EASE", low=-0.02, high=0.01), "{} … {}")
    '-0.0200 … +0.0100'
    """
    return "" if np.isnan(row.low) else form.format(f"{row.low:+.4f}", f"{row.high:+.4f}")


# --- helpers of compare_tuned ----------------------------------------------------------------------------------------


def _templates(models: Sequence[Model]) -> list[Recommender]:
    """Return unfitted recommenders, including Popularity."""
    if isinstance(models, str | Recommender | type):
        models = [models]
    if not isinstance(models, Iterable):
        raise SettingError(
            f"models is {models!r:.80}; expected names, classes or instances of recommenders", field="models"
        )
    templates: list[Recommender] = []
    for model in models:
        kind = recommender_class(model) if isinstance(model, str) else model
        template = kind() if isinstance(kind, type) else kind
        if not isinstance(template, Recommender):
            raise SettingError(
                f"models has {model!r:.80}; expected names, classes or instances of recommenders", field="models"
            )
        templates.append(template)
    if not any(isinstance(template, Popularity) for template in templates):
        templates.insert(0, Popularity())
    names = [type(template).__name__ for template in templates]
    if len(set(names)) < len(names):
        raise SettingError(f"models are {', '.join(names)}; expected each recommender only once", field="models")
    return templates


def _tune_and_evaluate(
    template: Recommender, split: Split, validation: Split, metrics: list[str], options: dict[str, Any]
) -> TunedModel:
    """Tune a recommender, fit it with the best settings, and evaluate it on the test part."""
    kind = type(template)
    row = TunedModel(name=kind.__name__, settings=template.settings())
    if effective_space(template, options["space"], validation.train.by_context.values is not None):
        tuned = tune(template, validation, refit=False, **options)
        if tuned.interrupted:
            raise KeyboardInterrupt
        row = replace(
            row,
            settings={**row.settings, **tuned.settings},
            start=tuned.start,
            searched=tuple(tuned.best.settings),
            validation=tuned.value,
            trials=sum(trial.ended for trial in tuned.trials),
            search_seconds=tuned.seconds,
        )
    start_time = working_seconds()
    model = _fit(kind, row.settings, row.start, split.train, options["threads"])
    fit_seconds = working_seconds() - start_time
    result = evaluate(model, split, metrics, seed=options["seed"], threads=options["threads"])
    settings = {**row.settings, **model.derived_}
    return replace(row, model=model, settings=settings, fit_seconds=fit_seconds, result=result)


def _fit(
    kind: type[Recommender],
    settings: Mapping[str, Any],
    start: Mapping[str, Any] | None,
    events: Interactions,
    threads: int | None,
) -> Recommender:
    """Fit a recommender with these settings; start from a model with the settings `start`, if any."""
    smaller = None if start is None else _fit(kind, start, None, events, threads)
    return kind(**settings).fit(events, start=smaller, progress=False, threads=threads)


def _refuse_leak(split: Split, validation: Split) -> None:
    """Raise an error if the validation split contains pairs of the test part."""
    if not isinstance(validation, Split):
        raise SettingError(
            f"validation is of type {type(validation).__name__}; expected a Split of split.train", field="validation"
        )
    truth = split.truth
    leaked = int((among(truth, validation.events()) & ~among(truth, split.train)).sum())
    if leaked:
        raise DataError(
            f"the validation split has {leaked:,} of the {len(truth):,} pairs of the test part",
            code="leaked-data",
            field="validation",
            hint="make it a split of split.train",
        )


def _test_fraction(split: Split) -> float:
    """Return the fraction of the events in the test part, including those that the split has dropped."""
    dropped = [n for what, n in split.dropped.items() if what.startswith(("test events", "test pairs"))]
    n_test = len(split.truth) + sum(dropped)
    return min(0.5, max(0.01, n_test / (n_test + len(split.train))))


def _verdict(
    rows: list[TunedModel], metric: str, contexts: int, comparison: Comparison | None
) -> tuple[TunedModel, str]:
    """Return the winner and a sentence that explains the choice."""
    best = rows[0]
    if comparison is None:
        return best, f"{best.name} is the only recommender that could be fitted"
    if any(row.verdict == "too few contexts to tell" for row in rows):
        lead = f"{best.name} has the highest {metric}, possibly by chance"
        return best, f"too few contexts to tell ({contexts:,}): {lead}"
    equal = [row for row in rows if row.verdict in _EQUAL]
    other = rows[1] if len(equal) == 1 else equal[1]
    difference = f"{metric} {other.difference:+.4f}, {comparison.confidence:.0%} interval {interval(other, '{} … {}')}"
    if len(equal) == 1:
        return best, f"{best.name} is best; the difference to {other.name} ({difference}) is real"
    fastest = min(equal, key=lambda row: row.fit_seconds)
    winner = fastest if fastest.fit_seconds * MIN_SPEEDUP <= best.fit_seconds else best
    names = join_words(row.name for row in equal)
    pair = len(equal) == 2
    detail = f" ({difference})" if pair else ""
    if winner is fastest:
        why = f"is the {'faster' if pair else 'fastest'} to train"
    else:
        others = "the other is not" if pair else "none of the others is"
        why = f"has the highest {metric}, and {others} much faster to train"
    return winner, f"no real difference between {names}{detail}; {winner.name} {why}"
