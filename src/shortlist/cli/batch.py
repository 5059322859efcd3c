"""`shortlist batch`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist._phrases import count
from shortlist.cli import options as opt
from shortlist.cli.output import Output
from shortlist.cli.recommend import Allow, Deny, KeepSeen, item_filter
from shortlist.cli.slate_options import Diversity, Pool, Slates, Strength, slate_of
from shortlist.cli.typed_ids import lines_of
from shortlist.errors import DataError

if TYPE_CHECKING:
    import polars as pl

    from shortlist.data.vocabulary import Id, Vocabulary

_ONE_PER_LINE = (".txt", ".ids", "")


def batch(
    ctx: typer.Context,
    model: opt.ModelPath,
    out: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Output file: .parquet, .csv, .tsv or .jsonl. Unfinished work is kept in FILE.parts.",
        ),
    ],
    n: opt.Count = 100,
    contexts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File of contexts (users): a CSV, TSV, Parquet or JSONL file with the context columns, or a .txt file "
            "or a pipe with one id per line. Default: all contexts of the model.",
            show_default=False,
        ),
    ] = None,
    lists: Annotated[
        bool,
        typer.Option(
            "--lists",
            help="Write one row per context, with a list of items and a list of scores, instead of one row per item.",
        ),
    ] = False,
    allow: Allow = None,
    deny: Deny = None,
    keep_seen: KeepSeen = False,
    unknown: opt.UnknownContexts = opt.UnknownContext.RAISE,
    slate: Slates = None,
    diversity: Diversity = None,
    strength: Strength = None,
    pool: Pool = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start over instead of resuming an interrupted run.")
    ] = False,
    no_verify: opt.NoVerify = False,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write the best items for many contexts (users) to a file.

    Works in blocks, so it needs little memory. After an interruption, run the same command again to resume.

    For example:

      shortlist batch models/shop --out lists.parquet -n 50
    """
    from shortlist.batch import write_lists
    from shortlist.batch.list_files import list_file
    from shortlist.loading import load
    from shortlist.storage.draft import folder_of

    output = Output(ctx, as_json=as_json, quiet=quiet)
    list_file(Path(out), nested=lists)
    folder = folder_of(Path(out))
    recommender = load(model, verify=not no_verify)
    try:
        done = write_lists(
            recommender,
            out,
            n,
            contexts=None if contexts is None else read_contexts(contexts, recommender.contexts_, unknown),
            exclude_seen=not keep_seen,
            allow=item_filter(recommender, "allow", allow, ctx, output),
            deny=item_filter(recommender, "deny", deny, ctx, output),
            unknown=unknown.value,
            slate=slate_of(slate, diversity, strength, pool),
            format="lists" if lists else "long",
            overwrite=overwrite,
            restart=restart,
            progress=not quiet,
            threads=threads,
        )
    except KeyboardInterrupt:
        kept = f"finished work is in {folder}; run the same command again to resume"
        raise KeyboardInterrupt(kept if folder.is_dir() else "nothing was written") from None
    size = done.path.stat().st_size
    if output.json:
        skipped = [list(context) if isinstance(context, tuple) else context for context in done.skipped]
        document: dict[str, Any] = {
            "path": out,
            "contexts": done.contexts,
            "rows": done.rows,
            "short": done.short,
            "resumed": done.resumed,
            "skipped": skipped,
            "bytes": size,
            "seconds": done.seconds,
        }
        output.document(document)
        return
    if done.skipped:
        first = ",".join(map(str, done.skipped[0])) if isinstance(done.skipped[0], tuple) else str(done.skipped[0])
        output.note(f"skipped {count(len(done.skipped), 'unknown context')}, such as {first}")
    lines: list[tuple[str, object]] = [
        ("contexts", f"{done.contexts:,}"),
        ("recommendations", f"{done.rows:,}"),
    ]
    if done.short:
        lines.append(("short lists", f"{count(done.short, 'context')} with fewer than {n} items after filtering"))
    if done.resumed:
        lines.append(("resumed", f"{count(done.resumed, 'context')} already done before"))
    output.facts([*lines, ("seconds", f"{done.seconds:.1f}"), ("written to", f"{out}, {size / 1e6:,.1f} MB")])


def read_contexts(path: str, vocabulary: "Vocabulary", unknown: opt.UnknownContext) -> "list[Id] | pl.DataFrame":
    """Read contexts from a file: the context columns of a table, or the lines of a text file or a pipe."""
    file = Path(path)
    if file.suffix.lower() in _ONE_PER_LINE and file.exists() and not file.is_dir():
        contexts = [_from_line(path, number, line, vocabulary, unknown) for number, line in lines_of(path)]
        if not contexts:
            raise DataError(f"{path} is empty; expected one context per line", code="empty-data")
        return contexts
    import polars as pl

    from shortlist.data.encode import Columns
    from shortlist.data.event_files import build_from_files, find_files

    files = find_files(path, row="context")
    names = vocabulary.names
    frame = build_from_files(files, Columns(names, names[0]), "raise").contexts.frame
    if files.format not in ("csv", "tsv"):
        return frame
    # Ids in CSV files have no types: 7 and '7' are the same. A column with one non-number is read as text.
    text = {name for name, dtype in vocabulary.frame.schema.items() if dtype == pl.String}
    if any(dtype == pl.String and name not in text for name, dtype in frame.schema.items()):
        return [vocabulary.typed(row) for row in frame.cast(pl.String).rows()]
    return frame.with_columns(pl.col(*text).cast(pl.String)) if text else frame


def _from_line(path: str, number: int, line: str, vocabulary: "Vocabulary", unknown: opt.UnknownContext) -> "Id":
    names = vocabulary.names
    parts = line.split(",") if vocabulary.is_tuple else [line]
    if len(parts) == len(names):
        return vocabulary.typed(parts)
    if unknown is opt.UnknownContext.SKIP:
        return line  # matches no context
    raise DataError(
        f"{path}: line {number:,} {line!r:.80} has {count(len(parts), 'part')}; expected "
        f"{len(names)}, separated by commas ({','.join(names)})",
        code="unknown-context",
        hint="fix it, or pass --unknown skip to drop it",
    )
