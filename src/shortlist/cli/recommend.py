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
    from shortlist.ranking.recommendations import Recommendations
    from shortlist.recommenders.base import Recommender

_LIST = "comma-separated ids, or @FILE with one id per line"
Allow = Annotated[
    str | None, typer.Option(metavar="ITEMS", help=f"Return only these items: {_LIST}.", show_default=False)
]
Deny = Annotated[
    str | None, typer.Option(metavar="ITEMS", help=f"Never return these items: {_LIST}.", show_default=False)
]
KeepSeen = Annotated[bool, typer.Option("--keep-seen", help="Also return items that are already in the history.")]


def recommend(
    ctx: typer.Context,
    model: opt.ModelPath,
    contexts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONTEXT", help="Known contexts (users); write a compound context as u1,mon.", show_default=False
        ),
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ITEMS",
            help=f"A user's past items, to use instead of a known context: {_LIST}; repeat it for more users.",
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
    no_verify: opt.NoVerify = False,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Recommend items for known contexts (users), or for any history of items.

    For example:

      shortlist recommend models/shop user-17 -n 5

      shortlist recommend models/shop --history apple,pear

      shortlist recommend models/shop user-17 --slate mmr --diversity 0.3
    """
    from shortlist.loading import load

    output = Output(ctx, as_json=as_json, quiet=quiet)
    if contexts and history:  # one of them may come from the --config file; the command line wins
        typed = [ctx.get_parameter_source(name) for name in ("contexts", "history")]
        typed_contexts, typed_history = (source is not None and source.name == "COMMANDLINE" for source in typed)
        contexts = contexts if typed_contexts or not typed_history else None
        history = history if typed_history or not typed_contexts else None
    if bool(contexts) == bool(history):
        raise typer.BadParameter("pass either contexts or --history", param_hint="CONTEXT")
    picked = slate_of(slate, diversity, strength, pool)
    recommender = load(model, verify=not no_verify)
    filters: dict[str, Any] = {
        "exclude_seen": not keep_seen,
        "allow": item_filter(recommender, "allow", allow, ctx, output),
        "deny": item_filter(recommender, "deny", deny, ctx, output),
        "slate": picked,
        "threads": threads,
    }
    skipped: list[str] = []
    if history:
        if unknown is opt.UnknownContext.AVERAGE:
            raise typer.BadParameter("average works only for contexts, not for --history", param_hint="--unknown")
        histories = []
        for text in history:
            ids, unknown_ids = parsed(recommender.items_, listed(text), "item", opt.Unknown(unknown.value))
            histories.append(ids)
            skipped += unknown_ids
        answer = recommender.recommend(history=histories, n=min(n, len(recommender.items_)), **filters)
        labels: list[tuple[Any, ...]] = [(text,) for text in history]
        heads: tuple[str, ...] = ("history",)
        queries = [{"history": ids} for ids in histories]
    else:
        average = unknown is opt.UnknownContext.AVERAGE
        if recommender.composes_contexts or average:  # new combinations of known parts are possible
            ids = [read_id(recommender.contexts_, text, unknown.value) for text in contexts or []]
            answer = recommender.recommend(ids, n=min(n, len(recommender.items_)), unknown=unknown.value, **filters)
            ids = answer.queries
            skipped = [key if isinstance(key, str) else ",".join(map(str, key)) for key in answer.skipped]
        else:
            ids, skipped = parsed(recommender.contexts_, contexts or [], "context", opt.Unknown(unknown.value))
            answer = recommender.recommend(ids, n=min(n, len(recommender.items_)), **filters)
        labels = [key if isinstance(key, tuple) else (key,) for key in ids]
        heads = recommender.contexts_.names
        queries = [{"context": key} for key in ids]
    _show(output, answer, heads, labels, recommender.items_.names[0], queries, skipped)


def similar(
    ctx: typer.Context,
    model: opt.ModelPath,
    items: Annotated[list[str], typer.Argument(metavar="ITEM", help="Item ids.", show_default=False)],
    n: opt.Count = 10,
    allow: Allow = None,
    deny: Deny = None,
    unknown: opt.UnknownIds = opt.Unknown.RAISE,
    no_verify: opt.NoVerify = False,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Find the items most similar to given items.

    For example:

      shortlist similar models/shop apple pear -n 5
    """
    from shortlist.loading import load

    output = Output(ctx, as_json=as_json, quiet=quiet)
    recommender = load(model, verify=not no_verify)
    ids, skipped = parsed(recommender.items_, items, "item", unknown)
    answer = recommender.similar_items(
        ids,
        n=min(n, len(recommender.items_)),
        allow=item_filter(recommender, "allow", allow, ctx, output),
        deny=item_filter(recommender, "deny", deny, ctx, output),
        threads=threads,
    )
    name = recommender.items_.names[0]
    _show(output, answer, (name,), [(key,) for key in ids], f"similar {name}", [{"item": key} for key in ids], skipped)


def item_filter(
    recommender: "Recommender", name: str, text: str | None, ctx: typer.Context, output: Output
) -> list[Any] | None:
    """Return the ids of a filter, from the command line or from a list in the `--config` file.

    Unknown ids only cause a note, because they cannot be recommended anyway.
    """
    texts = ctx.obj.stored.lists.get(name) if text is None else listed(text)
    if texts is None:
        return None
    ids, unknown_ids = parsed(recommender.items_, texts, "item", opt.Unknown.SKIP)
    if unknown_ids:
        verb = "is" if len(texts) == 1 else "are"
        number = f"{len(unknown_ids):,} of {count(len(texts), 'id')}"
        output.note(f"--{name}: {number} {verb} not in the catalogue, such as {unknown_ids[0]!r}")
    return ids


def _show(
    output: Output,
    answer: "Recommendations",
    heads: tuple[str, ...],
    labels: Sequence[tuple[Any, ...]],
    item: str,
    queries: list[dict[str, Any]],
    skipped: list[str],
) -> None:
    lists = list(zip(answer.ids, answer.scores))
    if output.json:
        answers = [
            {**query, "items": [{"id": item_id, "score": float(score)} for item_id, score in zip(ids, scores)]}
            for query, (ids, scores) in zip(queries, lists)
        ]
        output.document({"answers": answers, "skipped": skipped})
        return
    if skipped:
        output.note(f"skipped unknown ids: {', '.join(skipped)}")
    for label, (ids, _) in zip(labels, lists):
        if not ids:
            output.note(f"{', '.join(map(str, label))}: no items left after filtering")
    rows = [
        [*label, rank, item_id, f"{score:.4f}"]
        for label, (ids, scores) in zip(labels, lists)
        for rank, (item_id, score) in enumerate(zip(ids, scores), 1)
    ]
    output.table([*heads, "rank", item, "score"], rows, right=["rank", "score"])
