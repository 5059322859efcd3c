"""`shortlist fit`."""

import copy
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

_EPOCHS = "Models trained in epochs"
_SPLIT_BY_RULE = ("sasrec", "s3rec")  # layouts without a test file: a rule defines the test events


def fit(
    ctx: typer.Context,
    data: opt.Data,
    out: Annotated[
        str,
        typer.Option(metavar="DIR", help="Directory for the model. An existing Shortlist model there is replaced."),
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
        typer.Option(metavar="NAME", help=f"Model to fit: {', '.join(opt.MODELS)}.", autocompletion=completion.models),
    ] = "ials",
    settings: opt.Settings = None,
    item_features: opt.ItemFeatures = None,
    context_features: opt.ContextFeatures = None,
    tags: opt.Tags = None,
    validation: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION",
            help="Choose the number of epochs automatically: hold out this fraction of the events (the newest; random "
            "ones if there are no times), stop when the metric on them stops improving, then fit all events with the "
            "best number of epochs.",
            rich_help_panel=_EPOCHS,
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="With --validation: metric to optimise. Default: ndcg@20.",
            rich_help_panel=_EPOCHS,
            show_default=False,
            autocompletion=completion.metric,
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --validation: stop after this many evaluations without improvement. Default: 3.",
            rich_help_panel=_EPOCHS,
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Directory for a checkpoint after each epoch. Run the same command again to resume; you may increase "
            "the number of epochs.",
            rich_help_panel=_EPOCHS,
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Start from the embeddings of this saved model, such as one with a smaller dim.",
            rich_help_panel=_EPOCHS,
            show_default=False,
        ),
    ] = None,
    no_verify: opt.NoVerify = False,
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
    from shortlist.loading import load
    from shortlist.recommenders.fit_options import FitOptions, refuse_epochs
    from shortlist.storage import check_writable

    output = Output(ctx, as_json=as_json, quiet=quiet)
    source = EventSource.of(ctx.params)
    (recommender,) = make_models([model], settings or [], ctx.obj.stored)
    if validation is None and (metric is not None or patience is not None):
        raise typer.BadParameter("only valid with --validation", param_hint="--metric and --patience")
    if validation is not None and not 0 < validation < 1:
        raise typer.BadParameter(f"{validation:g} is not a fraction between 0 and 1", param_hint="--validation")
    if validation is not None and checkpoint is not None:
        raise typer.BadParameter("cannot be combined with --validation, which fits twice", param_hint="--checkpoint")
    if validation is not None and start is not None:
        message = "cannot be combined with --validation: the model may have seen the held-out events"
        raise typer.BadParameter(message, param_hint="--start")
    if checkpoint is not None and os.path.abspath(checkpoint) == os.path.abspath(out):
        raise typer.BadParameter("same directory as --out; choose another", param_hint="--checkpoint")
    by, wait = metric or "ndcg@20", patience or 3
    FitOptions(metric=by, patience=wait)  # raises an error for invalid values
    if not recommender.learns_in_epochs:
        refuse_epochs(type(recommender).__name__, validation=validation, checkpoint=checkpoint, start=start)
    check_target(out)
    if checkpoint is not None:
        check_writable(checkpoint)
    if no_verify and start is None:
        raise typer.BadParameter("only valid with --start", param_hint="--no-verify")
    splitting = separators(tags or [])
    if (item_features or context_features) and not recommender.uses_features:
        option = "--item-features" if item_features else "--context-features"
        raise typer.BadParameter(
            f"{type(recommender).__name__} does not use features; choose factorizationmachine or featureials",
            param_hint=option,
        )
    smaller = None if start is None else load(start, verify=not no_verify)
    loaded = source.read(output)
    events = training_events(loaded, output)
    features = {
        "item_features": read_features(item_features, events.items.names, splitting, output),
        "context_features": read_features(context_features, events.contexts.names, splitting, output),
    }
    columns = {field.name for table in features.values() if table is not None for field in table.fields}
    if missing := [name for name in splitting if name not in columns]:
        raise typer.BadParameter(f"no feature file has a column {missing[0]!r}", param_hint="--tags")
    best = None
    if validation is not None:
        best = choose_epochs(recommender, events, validation, by, wait, output, threads, features)
    seconds = fit_with_progress(recommender, events, output, threads, checkpoint, features, smaller)
    recommender.save(out)
    name = type(recommender).__name__
    result: dict[str, Any] = {
        "model": name,
        "settings": recommender.settings(),
        "derived": list(recommender.derived_),
        "data": {**summary(events), "layout": loaded.layout},
        "fit_seconds": seconds,
        "path": out,
    }
    loss = last_loss(recommender)
    if loss is not None:
        result["loss"] = loss
    if best is not None:
        result["validation"] = best
    if output.json:
        output.document(result)
        return
    size = f"{count(events.n_contexts, 'context')} × {count(events.n_items, 'item')}"
    lines: list[tuple[str, object]] = [
        ("model", name),
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
        lines.append(("epochs", f"{best['epochs']}, best by {best['metric']} ({best['value']:.4f})"))
    output.facts([*lines, ("saved to", out)])


def separators(given: list[str]) -> dict[str, str]:
    """Parse `--tags`: return the separator of each column with several values per cell."""
    splitting = {}
    for text in given:
        column, equals, separator = text.partition("=")
        if not (column and equals and separator):
            raise typer.BadParameter(f"{text!r}; expected COLUMN=SEPARATOR, such as 'genres=|'", param_hint="--tags")
        splitting[column] = separator
    return splitting


def read_features(
    path: str | None, ids: tuple[str, ...], splitting: dict[str, str], output: Output
) -> "Features | None":
    """Read all feature columns of a file. Those in `--tags` have several values per cell."""
    if path is None:
        return None
    from shortlist.data.features.table import Features

    names = list(ids)
    features = Features.read(path, id=names)
    if several := {field.name: splitting[field.name] for field in features.fields if field.name in splitting}:
        order = [field.name for field in features.fields]
        features = Features.read(path, id=names, multi_valued=several).select(order)
    output.note(f"{path}: {features}")
    return features


def training_events(loaded: LoadedEvents, output: Output) -> "Interactions":
    """Return all events except those in a published test file."""
    if loaded.split is not None and loaded.everything is not None and loaded.layout in _SPLIT_BY_RULE:
        events = loaded.everything
        size = count(len(events), "event")
        output.note(f"fitting on all {size}: the published test is a rule, not a separate file")
        return events
    if loaded.split is not None:
        output.note(f"fitting on the training events only; the rest is the published test ({loaded.split.protocol})")
    return loaded.events


def choose_epochs(
    recommender: "Recommender",
    events: "Interactions",
    fraction: float,
    metric: str,
    patience: int,
    output: Output,
    threads: int | None,
    features: "Mapping[str, Any]",
) -> dict[str, Any]:
    """Set the recommender's epochs to the number that is best on held-out events. Return what was chosen."""
    from shortlist.data import splits

    split = splits.at_random(events, fraction) if events.times is None else splits.by_time(events, fraction)
    trained: Any = copy.copy(recommender)  # only models trained in epochs get here
    trained.fit(
        split.train,
        validation=split,
        metric=metric,
        patience=patience,
        progress=not output.quiet,
        threads=threads,
        **features,
    )
    best, value = trained.best_epoch_, trained.training_[trained.best_epoch_ - 1].validation
    output.note(
        f"epoch {best} of {len(trained.training_)} is best by {metric} ({value:.4f}) on a split by {split.protocol}; "
        f"now fitting all events with {count(best, 'epoch')}"
    )
    for name, setting in trained.settings_ending_at(best).items():
        setattr(recommender, name, setting)
    return {"metric": metric, "value": value, "epochs": best, "protocol": split.protocol}


def fit_with_progress(
    recommender: "Recommender",
    events: "Interactions",
    output: Output,
    threads: int | None = None,
    checkpoint: str | None = None,
    features: "Mapping[str, Any] | None" = None,
    start: "Recommender | None" = None,
) -> float:
    """Fit and show the loss of each epoch. Return the seconds it took."""
    name = type(recommender).__name__
    options = {
        "checkpoint": checkpoint,
        "start": start,
        "progress": not output.quiet,
        "threads": threads,
        **(features or {}),
    }
    with Stopwatch() as watch:
        recommender.fit(events, **options)
    loss = last_loss(recommender)
    output.note(f"fitted {name} in {watch.seconds:.1f} s" + ("" if loss is None else f", loss {loss:,.6g}"))
    return watch.seconds


def fit_tuned(
    model_class: "type[Recommender]",
    settings: "Mapping[str, Any]",
    start: "Mapping[str, Any] | None",
    events: "Interactions",
    output: Output,
    threads: int | None,
) -> "tuple[Recommender, float]":
    """Fit the result of a search; with `start`, fit the smaller model first. Return the model and the seconds."""
    smaller, seconds = None, 0.0
    if start is not None:
        smaller = model_class(**start)
        seconds = fit_with_progress(smaller, events, output, threads)
    model = model_class(**settings)
    return model, seconds + fit_with_progress(model, events, output, threads, start=smaller)


def last_loss(recommender: "Recommender") -> float | None:
    """Return the loss after the last epoch, or None if the recommender is not trained in epochs."""
    training = getattr(recommender, "training_", None)
    return float(training[-1].loss.total) if training else None


def check_target(path: str) -> None:
    """Raise an error if no model can be saved here: the path holds something else or is not writable."""
    from pathlib import Path

    from shortlist.errors import StorageError
    from shortlist.recommenders.checkpoint import refuse_checkpoint
    from shortlist.storage import check_writable, is_model

    target = Path(os.path.abspath(path))
    try:
        if os.path.lexists(target) and not is_model(target) and not (target.is_dir() and not any(target.iterdir())):
            content = "a directory with other files" if target.is_dir() else "a file"
            message = f"cannot save to '{path}': it is {content}, not a Shortlist model"
            raise StorageError(message, code="target-exists", field="out", hint="choose another directory")
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"cannot save to '{path}': {error.strerror or error}", code="not-writable", hint="choose another directory"
        ) from error
    refuse_checkpoint(path)
    check_writable(path)
