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

_ONE_A_LINE = (".txt", ".ids", "")


def batch(
    ctx: typer.Context,
    model: opt.ModelPath,
    out: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="The file to write: .parquet, .csv, .tsv or .jsonl. Until it is whole, FILE.parts is worked in.",
        ),
    ],
    n: opt.Count = 100,
    contexts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="For whom, everybody by default: a CSV, TSV, Parquet or JSONL file with the columns of the contexts, "
            "or a .txt file, or a pipe, with one id a line.",
            show_default=False,
        ),
    ] = None,
    lists: Annotated[
        bool,
        typer.Option(
            "--lists",
            help="A row for each context, with a list of items and one of scores, instead of a row for each item.",
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
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there already.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew instead of going on where an earlier command was cut off.")
    ] = False,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """The best items for everybody, written to a file ahead of time.

    In blocks, so that it needs little memory. Cut off at any moment, the same command goes on from there. For example:

      shortlist batch models/shop --out lists.parquet -n 50
    """
    from shortlist.recommenders.batch import write_lists
    from shortlist.recommenders.list_files import list_file
    from shortlist.recommenders.registry import load
    from shortlist.storage.draft import folder_of

    say = Output(ctx, as_json=as_json, quiet=quiet)
    list_file(Path(out), nested=lists)
    folder = folder_of(Path(out))
    recommender = load(model)
    try:
        done = write_lists(
            recommender,
            out,
            n,
            contexts=None if contexts is None else read_contexts(contexts, recommender.contexts_, unknown),
            exclude_seen=not keep_seen,
            allow=item_filter(recommender, "allow", allow, ctx, say),
            deny=item_filter(recommender, "deny", deny, ctx, say),
            unknown=unknown.value,
            slate=slate_of(slate, diversity, strength, pool),
            format="lists" if lists else "long",
            overwrite=overwrite,
            restart=restart,
            progress=not quiet,
            threads=threads,
        )
    except KeyboardInterrupt:
        kept = f"what is finished is in {folder}; the same command goes on from there"
        raise KeyboardInterrupt(kept if folder.is_dir() else "nothing was written") from None
    size = done.path.stat().st_size
    if say.json:
        skipped = [list(one) if isinstance(one, tuple) else one for one in done.skipped]
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
        say.document(document)
        return
    if done.skipped:
        first = ",".join(map(str, done.skipped[0])) if isinstance(done.skipped[0], tuple) else str(done.skipped[0])
        say.note(f"not known and left out: {count(len(done.skipped), 'context')}, such as {first}")
    lines: list[tuple[str, object]] = [
        ("contexts", f"{done.contexts:,}"),
        ("recommendations", f"{done.rows:,}"),
    ]
    if done.short:
        lines.append(("with fewer items", f"{count(done.short, 'context')}, where the filters left fewer"))
    if done.resumed:
        lines.append(("from before", f"{count(done.resumed, 'context')}"))
    say.facts([*lines, ("seconds", f"{done.seconds:.1f}"), ("written to", f"{out}, {size / 1e6:,.1f} MB")])


def read_contexts(path: str, vocabulary: "Vocabulary", unknown: opt.UnknownContext) -> "list[Id] | pl.DataFrame":
    """The contexts in a file: of a table its columns of that name, of a text file (or a pipe) its lines."""
    place = Path(path)
    if place.suffix.lower() in _ONE_A_LINE and place.exists() and not place.is_dir():
        found = [_of_line(path, number, line, vocabulary, unknown) for number, line in lines_of(path)]
        if not found:
            raise DataError(f"{path} is empty; expected one context a line")
        return found
    import polars as pl

    from shortlist.data.encode import Columns
    from shortlist.data.event_files import build_from_files, find_files

    files = find_files(path, row="context")
    names = vocabulary.names
    frame = build_from_files(files, Columns(names, names[0]), "raise").contexts.frame
    if files.format not in ("csv", "tsv"):
        return frame
    # Ids have no types there, 7 and '7' are the same, and a column of which one cell is no number is text.
    text = {name for name, dtype in vocabulary.frame.schema.items() if dtype == pl.String}
    if any(dtype == pl.String and name not in text for name, dtype in frame.schema.items()):
        return [vocabulary.typed(row) for row in frame.cast(pl.String).rows()]
    return frame.with_columns(pl.col(*text).cast(pl.String)) if text else frame


def _of_line(path: str, number: int, line: str, vocabulary: "Vocabulary", unknown: opt.UnknownContext) -> "Id":
    names = vocabulary.names
    parts = line.split(",") if vocabulary.is_tuple else [line]
    if len(parts) == len(names):
        return vocabulary.typed(parts)
    if unknown is opt.UnknownContext.SKIP:
        return line  # which is nobody
    raise DataError(
        f"{path}: line {number:,} {line!r:.80} has {len(parts)} part{'s' * (len(parts) > 1)}; expected "
        f"{len(names)} with commas between, {','.join(names)}; mend it, or pass unknown='skip' to leave it out"
    )
