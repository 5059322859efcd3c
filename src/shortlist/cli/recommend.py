"""`shortlist recommend` and `shortlist similar`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist._phrases import count
from shortlist.cli import options as opt
from shortlist.cli.output import Output
from shortlist.cli.slate_options import Diversity, Pool, Slates, Strength, slate_of
from shortlist.cli.typed_ids import listed, parsed, read_id

if TYPE_CHECKING:
    from shortlist.recommenders.base import Recommender
    from shortlist.recommenders.recommendations import Recommendations

_LIST = "ids with commas between, or @FILE with one id a line"
Allow = Annotated[str | None, typer.Option(metavar="ITEMS", help=f"Only these items: {_LIST}.", show_default=False)]
Deny = Annotated[str | None, typer.Option(metavar="ITEMS", help=f"Never these items: {_LIST}.", show_default=False)]
KeepSeen = Annotated[bool, typer.Option("--keep-seen", help="Do not leave out items of the history.")]


def recommend(
    ctx: typer.Context,
    model: opt.ModelPath,
    contexts: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONTEXT", help="Ids from the training data; a pair as u1,mon.", show_default=False),
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ITEMS",
            help=f"Instead of a context, the items someone has had: {_LIST}; may be repeated.",
            show_default=False,
        ),
    ] = None,
    n: opt.Count = 10,
    allow: Allow = None,
    deny: Deny = None,
    keep_seen: KeepSeen = False,
    unknown: opt.UnknownContexts = opt.UnknownContext.RAISE,
    slate: Slates = None,
    diversity: Diversity = None,
    strength: Strength = None,
    pool: Pool = None,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """The best items for contexts of the training data, or for anyone's history.

    For example:

      shortlist recommend models/shop user-17 -n 5

      shortlist recommend models/shop --history apple,pear

      shortlist recommend models/shop user-17 --slate mmr --diversity 0.3
    """
    from shortlist.recommenders.registry import load

    say = Output(ctx, as_json=as_json, quiet=quiet)
    if contexts and history:  # of the two, one may come from the file of --config: then what is typed wins
        typed = [ctx.get_parameter_source(name) for name in ("contexts", "history")]
        typed_contexts, typed_history = (source is not None and source.name == "COMMANDLINE" for source in typed)
        contexts = contexts if typed_contexts or not typed_history else None
        history = history if typed_history or not typed_contexts else None
    if bool(contexts) == bool(history):
        raise typer.BadParameter("give contexts or --history, one of the two", param_hint="CONTEXT")
    picked = slate_of(slate, diversity, strength, pool)
    recommender = load(model)
    filters: dict[str, Any] = {
        "exclude_seen": not keep_seen,
        "allow": item_filter(recommender, "allow", allow, ctx, say),
        "deny": item_filter(recommender, "deny", deny, ctx, say),
        "slate": picked,
        "threads": threads,
    }
    skipped: list[str] = []
    if history:
        if unknown is opt.UnknownContext.AVERAGE:
            raise typer.BadParameter("an average is for contexts, not for histories", param_hint="--unknown")
        had = []
        for text in history:
            ids, more = parsed(recommender.items_, listed(text), "item", opt.Unknown(unknown.value))
            had.append(ids)
            skipped += more
        answer = recommender.recommend(history=had, n=min(n, len(recommender.items_)), **filters)
        labels: list[tuple[Any, ...]] = [(text,) for text in history]
        heads: tuple[str, ...] = ("history",)
        queries = [{"history": ids} for ids in had]
    else:
        average = unknown is opt.UnknownContext.AVERAGE
        if recommender._composes or average:  # combinations that were not there are answered
            ids = [read_id(recommender.contexts_, text, unknown.value) for text in contexts or []]
            answer = recommender.recommend(ids, n=min(n, len(recommender.items_)), unknown=unknown.value, **filters)
            ids = answer.queries
            skipped = [one if isinstance(one, str) else ",".join(map(str, one)) for one in answer.skipped]
        else:
            ids, skipped = parsed(recommender.contexts_, contexts or [], "context", opt.Unknown(unknown.value))
            answer = recommender.recommend(ids, n=min(n, len(recommender.items_)), **filters)
        labels = [one if isinstance(one, tuple) else (one,) for one in ids]
        heads = recommender.contexts_.names
        queries = [{"context": one} for one in ids]
    _show(say, answer, heads, labels, recommender.items_.names[0], queries, skipped)


def similar(
    ctx: typer.Context,
    model: opt.ModelPath,
    items: Annotated[list[str], typer.Argument(metavar="ITEM", help="Ids of items.", show_default=False)],
    n: opt.Count = 10,
    allow: Allow = None,
    deny: Deny = None,
    unknown: opt.UnknownIds = opt.Unknown.RAISE,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """The items nearest to given ones.

    For example:

      shortlist similar models/shop apple pear -n 5
    """
    from shortlist.recommenders.registry import load

    say = Output(ctx, as_json=as_json, quiet=quiet)
    recommender = load(model)
    ids, skipped = parsed(recommender.items_, items, "item", unknown)
    answer = recommender.similar_items(
        ids,
        n=min(n, len(recommender.items_)),
        allow=item_filter(recommender, "allow", allow, ctx, say),
        deny=item_filter(recommender, "deny", deny, ctx, say),
        threads=threads,
    )
    name = recommender.items_.names[0]
    _show(say, answer, (name,), [(one,) for one in ids], f"similar {name}", [{"item": one} for one in ids], skipped)


def item_filter(
    recommender: "Recommender", name: str, text: str | None, ctx: typer.Context, say: Output
) -> list[Any] | None:
    """The ids of a filter, as typed or, of a list in the file of `--config`, as they stand there.

    Those that are not in the catalogue could not be recommended anyway: a note is enough.
    """
    texts = ctx.obj.stored.lists.get(name) if text is None else listed(text)
    if texts is None:
        return None
    ids, strange = parsed(recommender.items_, texts, "item", opt.Unknown.SKIP)
    if strange:
        are = "is" if len(texts) == 1 else "are"
        some = f"{len(strange):,} of {count(len(texts), 'id')}"
        say.note(f"--{name}: {some} {are} not in the catalogue, such as {strange[0]!r}")
    return ids


def _show(
    say: Output,
    answer: "Recommendations",
    heads: tuple[str, ...],
    labels: Sequence[tuple[Any, ...]],
    item: str,
    queries: list[dict[str, Any]],
    skipped: list[str],
) -> None:
    lists = list(zip(answer.ids, answer.scores))
    if say.json:
        found = [
            {**query, "items": [{"id": one, "score": float(score)} for one, score in zip(ids, scores)]}
            for query, (ids, scores) in zip(queries, lists)
        ]
        say.document({"answers": found, "skipped": skipped})
        return
    if skipped:
        say.note(f"not known and left out: {', '.join(skipped)}")
    for label, (ids, _) in zip(labels, lists):
        if not ids:
            say.note(f"{', '.join(map(str, label))}: the filters leave nothing")
    rows = [
        [*label, rank, one, f"{score:.4f}"]
        for label, (ids, scores) in zip(labels, lists)
        for rank, (one, score) in enumerate(zip(ids, scores), 1)
    ]
    say.table([*heads, "rank", item, "score"], rows, right=["rank", "score"])
