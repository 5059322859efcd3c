"""`shortlist fit`."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist._phrases import count
from shortlist.cli import completion
from shortlist.cli import options as opt
from shortlist.cli.events import EventSource, LoadedEvents, summary
from shortlist.cli.model_settings import make_models
from shortlist.cli.output import Output, Stopwatch

if TYPE_CHECKING:
    from shortlist.data.features.table import Features
    from shortlist.data.interactions import Interactions
    from shortlist.recommenders.base import Recommender

_EPOCHS = "Models that learn in epochs"
_SPLIT_BY_RULE = ("sasrec", "s3rec")  # layouts whose files hold all events; elsewhere the test is a file of its own


def fit(
    ctx: typer.Context,
    data: opt.Data,
    out: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Directory to save the model to; a Shortlist model that is there is replaced."
        ),
    ],
    context: opt.Context = None,
    item: opt.Item = None,
    weight: opt.Weight = None,
    time: opt.Time = None,
    aggregate: opt.Aggregated = None,
    on_bad: opt.Bad = opt.OnBad.RAISE,
    file_format: opt.FileFormat = None,
    separator: opt.Separator = None,
    layout: opt.Layout = None,
    min_rating: opt.MinRating = None,
    model: Annotated[
        str,
        typer.Option(metavar="NAME", help=f"One of {', '.join(opt.MODELS)}.", autocompletion=completion.models),
    ] = "ials",
    settings: opt.Settings = None,
    item_features: opt.ItemFeatures = None,
    context_features: opt.ContextFeatures = None,
    tags: opt.Tags = None,
    validation: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Choose the number of epochs: hold this share of the events out (the newest ones, or, without times, "
            "any), stop when the metric on them gets no better, and fit the best number of epochs to all events.",
            rich_help_panel=_EPOCHS,
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="By which an epoch is the best, ndcg@20 by default.",
            rich_help_panel=_EPOCHS,
            show_default=False,
            autocompletion=completion.metric,
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="After how many evaluations without a better one to stop, 3 by default.",
            rich_help_panel=_EPOCHS,
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Directory that gets the state of the fit after each epoch; the same command goes on from there after "
            "a break, also with more epochs.",
            rich_help_panel=_EPOCHS,
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Begin from the embeddings of this saved model, such as a smaller one.",
            rich_help_panel=_EPOCHS,
            show_default=False,
        ),
    ] = None,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    r"""Fit a model to a file of events and save it.

    For example:

      shortlist fit events.csv --context user --item product \
        --set dim=128 --out models/shop
    """
    from shortlist.recommenders.fit_options import FitOptions, refuse_epochs
    from shortlist.recommenders.registry import load
    from shortlist.storage import check_writable

    say = Output(ctx, as_json=as_json, quiet=quiet)
    source = EventSource.of(ctx.params)
    (recommender,) = make_models([model], settings or [], ctx.obj.stored)
    if validation is None and (metric is not None or patience is not None):
        raise typer.BadParameter("they are for --validation", param_hint="--metric and --patience")
    if validation is not None and not 0 < validation < 1:
        raise typer.BadParameter(f"{validation:g} is no share between 0 and 1", param_hint="--validation")
    if validation is not None and checkpoint is not None:
        raise typer.BadParameter("it is for one fit, and --validation makes two", param_hint="--checkpoint")
    if validation is not None and start is not None:
        raise typer.BadParameter("it may know the events that --validation holds out", param_hint="--start")
    if checkpoint is not None and os.path.abspath(checkpoint) == os.path.abspath(out):
        raise typer.BadParameter("it is the directory that --out names; name another", param_hint="--checkpoint")
    by, wait = metric or "ndcg@20", patience or 3
    FitOptions(metric=by, patience=wait)  # refuses what makes no sense
    if not recommender._in_epochs:
        refuse_epochs(type(recommender).__name__, validation=validation, checkpoint=checkpoint, start=start)
    check_target(out)
    if checkpoint is not None:
        check_writable(checkpoint)
    splitting = separators(tags or [])
    if (item_features or context_features) and not recommender._described:
        given = "--item-features" if item_features else "--context-features"
        raise typer.BadParameter(
            f"{type(recommender).__name__} learns from ids only; take factorizationmachine or featureials",
            param_hint=given,
        )
    smaller = None if start is None else load(start)
    found = source.read(say)
    events = to_learn_from(found, say)
    features = {
        "item_features": read_features(item_features, events.items.names, splitting, say),
        "context_features": read_features(context_features, events.contexts.names, splitting, say),
    }
    columns = {field.name for one in features.values() if one is not None for field in one.fields}
    if missing := [name for name in splitting if name not in columns]:
        raise typer.BadParameter(f"no file of features has a column {missing[0]!r}", param_hint="--tags")
    best = None
    if validation is not None:
        best = choose_epochs(recommender, events, validation, by, wait, say, threads, features)
    seconds = fit_with_progress(recommender, events, say, threads, checkpoint, features, smaller)
    recommender.save(out)
    kind = type(recommender).__name__
    result: dict[str, Any] = {
        "model": kind,
        "settings": recommender.settings(),
        "derived": list(recommender.derived_),
        "data": {**summary(events), "layout": found.layout},
        "fit_seconds": seconds,
        "path": out,
    }
    loss = last_loss(recommender)
    if loss is not None:
        result["loss"] = loss
    if best is not None:
        result["validation"] = best
    if say.json:
        say.document(result)
        return
    size = f"{count(events.n_contexts, 'context')} × {count(events.n_items, 'item')}"
    lines: list[tuple[str, object]] = [
        ("model", kind),
        ("settings", ", ".join(f"{name}={value}" for name, value in recommender.settings().items())),
        *([("from the data", ", ".join(recommender.derived_))] if recommender.derived_ else []),
        (
            "fitted on",
            f"{size}, {count(events.n_pairs, 'distinct pair')}",
        ),
        ("seconds", f"{seconds:.1f}"),
    ]
    if loss is not None:
        lines.append(("loss", f"{loss:,.6g}"))
    if best is not None:
        lines.append(("epochs", f"{best['epochs']}, the best by {best['metric']}: {best['value']:.4f}"))
    say.facts([*lines, ("saved to", out)])


def separators(given: list[str]) -> dict[str, str]:
    """Columns with several values a cell, and what is between them, of `--tags`."""
    found = {}
    for one in given:
        column, equals, separator = one.partition("=")
        if not (column and equals and separator):
            raise typer.BadParameter(f"{one!r} is not COLUMN=SEPARATOR, such as 'genres=|'", param_hint="--tags")
        found[column] = separator
    return found


def read_features(path: str | None, ids: tuple[str, ...], splitting: dict[str, str], say: Output) -> "Features | None":
    """The features in a file: every column, those of `--tags` with several values."""
    if path is None:
        return None
    from shortlist.data.features.table import Features

    names = list(ids)
    found = Features.read(path, id=names)
    if several := {field.name: splitting[field.name] for field in found.fields if field.name in splitting}:
        order = [field.name for field in found.fields]
        found = Features.read(path, id=names, multi_valued=several).select(order)
    say.note(f"{path}: {found}")
    return found


def to_learn_from(found: LoadedEvents, say: Output) -> "Interactions":
    """All events, but for those of a published test that is a file of its own."""
    if found.split is not None and found.everything is not None and found.layout in _SPLIT_BY_RULE:
        events = found.everything
        size = count(len(events), "event")
        say.note(f"fitting on all {size}: the files hold no test, and the published one is only a rule")
        return events
    if found.split is not None:
        say.note(f"these are the events to learn from; the others are the test of {found.split.protocol}")
    return found.events


def choose_epochs(
    recommender: "Recommender",
    events: "Interactions",
    share: float,
    metric: str,
    patience: int,
    say: Output,
    threads: int | None,
    features: "Mapping[str, Any]",
) -> dict[str, Any]:
    """Set the recommender's epochs to the best number of them, on a part of the events that is held out for it."""
    from shortlist.data import splits

    split = splits.at_random(events, share) if events.times is None else splits.by_time(events, share)
    recommender.fit(
        split.train,
        validation=split,
        metric=metric,
        patience=patience,
        progress=not say.quiet,
        threads=threads,
        **features,
    )
    trained: Any = recommender  # only models that learn in epochs come here
    best, value = trained.best_epoch_, trained.training_[trained.best_epoch_ - 1].validation
    say.note(
        f"of {count(len(trained.training_), 'epoch')} on the training part of the split by {split.protocol}, number "
        f"{best} is the best by {metric}: {value:.4f}; now as many on all events"
    )
    for name, setting in trained._ending_at(best).items():
        setattr(trained, name, setting)
    return {"metric": metric, "value": value, "epochs": best, "protocol": split.protocol}


def fit_with_progress(
    recommender: "Recommender",
    events: "Interactions",
    say: Output,
    threads: int | None = None,
    checkpoint: str | None = None,
    features: "Mapping[str, Any] | None" = None,
    start: "Recommender | None" = None,
) -> float:
    """Fit, showing each epoch's loss; returns the seconds it took."""
    name = type(recommender).__name__
    how = {"checkpoint": checkpoint, "start": start, "progress": not say.quiet, "threads": threads, **(features or {})}
    with Stopwatch() as watch:
        recommender.fit(events, **how)
    loss = last_loss(recommender)
    say.note(f"fitted {name} in {watch.seconds:.1f} s" + ("" if loss is None else f", loss {loss:,.6g}"))
    return watch.seconds


def fit_tuned(
    kind: "type[Recommender]",
    settings: "Mapping[str, Any]",
    start: "Mapping[str, Any] | None",
    events: "Interactions",
    say: Output,
    threads: int | None,
) -> "tuple[Recommender, float]":
    """Fit what a search has found, from the smaller model with the settings `start`, if any; with the seconds."""
    smaller, seconds = None, 0.0
    if start is not None:
        smaller = kind(**start)
        seconds = fit_with_progress(smaller, events, say, threads)
    model = kind(**settings)
    return model, seconds + fit_with_progress(model, events, say, threads, start=smaller)


def last_loss(recommender: "Recommender") -> float | None:
    """The loss after the last epoch, where the recommender learns in epochs."""
    training = getattr(recommender, "training_", None)
    return float(training[-1].loss.total) if training else None


def check_target(path: str) -> None:
    """Refuse, before any work is done, a place that holds something else than a model, or that cannot be written to."""
    from pathlib import Path

    from shortlist.errors import StorageError
    from shortlist.recommenders.checkpoint import refuse_checkpoint
    from shortlist.storage import check_writable, is_model

    place = Path(os.path.abspath(path))
    try:
        if os.path.lexists(place) and not is_model(place) and not (place.is_dir() and not any(place.iterdir())):
            found = "a directory with other things in it" if place.is_dir() else "a file"
            raise StorageError(f"cannot save to '{path}': it is {found}, not a Shortlist model; name another directory")
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot save to '{path}': {error.strerror or error}; name another directory") from error
    refuse_checkpoint(path)
    check_writable(path)
