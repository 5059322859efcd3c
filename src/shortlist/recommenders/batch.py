"""Lists for everybody, ahead of time: the best items of all contexts in one file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from shortlist._checks import flag, memory_bytes, one_of, whole
from shortlist._clock import working_seconds
from shortlist._fork import require_polars_threads
from shortlist._threads import Background, blas_threads
from shortlist._version import __version__
from shortlist.data.id_lists import as_list, is_frame
from shortlist.data.vocabulary import Codes, Id, Unknown
from shortlist.errors import DataError, SettingError
from shortlist.recommenders.base import Queries, Recommender
from shortlist.recommenders.checkpoint import digest
from shortlist.recommenders.composed import Composed
from shortlist.recommenders.fit_progress import steps
from shortlist.recommenders.given import KNOWN_ONLY, as_rows, check_unknown, in_order
from shortlist.recommenders.index import Index
from shortlist.recommenders.list_files import ListFile, list_file
from shortlist.recommenders.recommendations import FORMATS, ListFormat, QueryLabels, Recommendations
from shortlist.retrieval.slates.base import Slate, check_slate
from shortlist.storage import id_tables as table_files
from shortlist.storage.draft import Draft, opened

ROWS = 1 << 21  # recommendations in a block: some 100 MB while it is written, some seconds of work to lose
FOUND = 1 << 23  # items to pick them from: some 300 MB while a slate is picked, 400 MB while they are reranked
MOST = 1 << 16  # contexts
_STEP = 1 << 14  # contexts that are looked up at a time
Whom: TypeAlias = "Codes | list[Id]"


@dataclass(frozen=True)
class BatchResult:
    """What was written.

    Attributes:
        path: the file.
        contexts: for so many contexts there are lists.
        rows: recommendations in them, all together.
        short: lists with fewer than n items, because the filters left fewer; in the format "long" an empty one has no
            row at all.
        resumed: contexts whose lists were found finished, from a call before.
        skipped: contexts that are not known, left out because of `unknown="skip"`.
        seconds: how long it took, this time, without the time in which kernels were compiled.
    """

    path: Path
    contexts: int
    rows: int
    short: int
    resumed: int = 0
    skipped: list[Id] = field(default_factory=list)
    seconds: float = 0.0


def write_lists(
    model: Recommender | Composed,
    path: str | PathLike[str],
    n: int = 100,
    *,
    contexts: Iterable[Id] | None = None,
    exclude_seen: bool = True,
    allow: Iterable[Id] | None = None,
    deny: Iterable[Id] | None = None,
    unknown: Unknown = "raise",
    slate: Slate | None = None,
    format: ListFormat = "long",  # noqa: A002
    overwrite: bool = False,
    restart: bool = False,
    block: int | None = None,
    progress: bool | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
) -> BatchResult:
    """Write the n best items of every context to a file, in blocks: memory stays bounded however many there are.

    After a kill, a full disk or Ctrl-C the same call goes on behind the last finished block. Until everything is there,
    what is finished is in a folder beside the file, `lists.parquet.parts`; then the file takes its place in one step.
    What recommends is exactly `model.recommend`, block by block; a matrix product may round differently in blocks of
    another size.

    Args:
        model: a fitted recommender, or a `TwoStage`.
        path: the file to be; its name says what it is: Parquet (`.parquet`), CSV (`.csv`), TSV (`.tsv`) or JSON lines
            (`.jsonl`). A Parquet file has a row group for each block.
        n: how many items; fewer come where the filters leave fewer.
        contexts: for whom, ids as in `recommend`; everybody by default. Each gets one list, however often it is named.
        exclude_seen: leave out what the training data has of a context.
        allow: recommend only these items, to all. Unknown ids are passed over.
        deny: never recommend these, likewise.
        unknown: contexts that are not known: as in `recommend`.
        slate: pick the n out of more, for diversity or calibration: see `shortlist.slates`.
        format: `"long"`, a row for each recommendation: the columns of the context, the item, its `rank` from 1, its
            `score`; or `"lists"`, a row for each context, with a list of items, best first, and one of scores.
        overwrite: replace a file that is there; else that is an error.
        restart: forget what an earlier call has finished. Needed to write other lists to a place where some were begun:
            another model, other contexts, n or filters are refused, as they would make a file of two kinds. Code of
            your own in a model (a subclass, a reranker, the `extra` of a `TwoStage`) is known by its name only.
        block: contexts at a time; by default as many as make two million recommendations, and as have eight million
            items in their pools where a slate or a second stage picks out of more. Memory for a block is needed three
            times, since it is searched while the one before is written, and that for its pools once.
        progress: show a progress bar; by default where standard error is a terminal.
        memory: what blocks of scores may take, bytes or text such as "256MB".
        threads: how many to use; all CPUs by default.

    >>> import tempfile, polars as pl, shortlist as sl
    >>> events = sl.Interactions.from_frame({"user": [1, 1, 2], "fruit": ["fig", "pear", "fig"]}, context="user",
    ...                                     item="fruit")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = sl.write_lists(sl.Popularity().fit(events), f"{folder}/lists.parquet", n=1, exclude_seen=False)
    ...     pl.read_parquet(done.path).rows()
    [(1, 'fig', 1, 2.0), (2, 'fig', 1, 2.0)]
    >>> done.contexts, done.rows
    (2, 2)
    """
    require_polars_threads("write_lists")
    began = working_seconds()
    n, whole_block = whole("n", n), None if block is None else whole("block", block)
    one_of("format", format, FORMATS)
    exclude_seen, overwrite = flag("exclude_seen", exclude_seen), flag("overwrite", overwrite)
    restart = flag("restart", restart)
    memory_bytes(memory)
    if not isinstance(path, str | PathLike):
        raise SettingError(f"path is {path!r:.80}; expected the path of a file")
    target = Path(os.path.abspath(path))
    file = list_file(target, nested=format == "lists")
    _refuse_other_models(model)
    if slate is not None:
        check_slate(slate)
    model._require_fit()
    n = min(n, len(model.items_))
    allowed, denied = _for_all("allow", allow), _for_all("deny", deny)
    ask = _BlockRequest(model, n, exclude_seen, allowed, denied, unknown, slate, memory, threads)
    whom, skipped = _whom(model, contexts, unknown)
    if not len(whom):
        known = f": none of the {len(skipped):,} asked for is known, such as {skipped[0]!r:.80}" if skipped else ""
        raise DataError(f"there are no contexts to make lists for{known}")
    size = whole_block or max(1, min(MOST, ROWS // n, FOUND // ask.width))
    empty = ask(whom[:0]).to_polars(format)  # refuses filters that make no sense
    identity = {
        **ask.identity(),
        "contexts": "all" if contexts is None else _digest_of_contexts(whom),
        "format": format,
        "file": target.suffix.lower(),
        "block": size,
        "shortlist": __version__,
        "polars": pl.__version__,
    }
    derived = () if whole_block else ("block",)
    with opened(target, file.head(empty), identity, overwrite=overwrite, restart=restart, derived=derived) as draft:
        resumed = sum(one.about["contexts"] for one in draft.blocks)
        if draft.complete:
            draft.remove()
        else:
            title = f"{'going on with' if resumed else 'writing'} {target.name}"
            with steps(title, "contexts", progress) as step, Background("shortlist-writer") as writer:
                step(resumed, len(whom))
                for start in range(resumed, len(whom), size):
                    answer = ask(whom[start : start + size])  # while the block before is written
                    writer.wait()
                    if start > resumed:
                        step(start, len(whom))
                    writer.start(_write, draft, file, answer, format, n)
                writer.wait()
                step(len(whom), len(whom))
            draft.finish(file.tail(empty, draft.blocks))
        about = [one.about for one in draft.blocks]
    rows, short = (sum(one[name] for one in about) for name in ("rows", "short"))
    return BatchResult(target, len(whom), rows, short, resumed, skipped, working_seconds() - began)


def _write(draft: Draft, file: ListFile, answer: Recommendations, format: ListFormat, n: int) -> None:  # noqa: A002
    content, told = file.block(answer.to_polars(format))
    counts = answer._counts
    about = {"contexts": len(answer), "rows": int(counts.sum()), "short": int((counts < n).sum())}
    draft.append(content, {**about, **told})


@dataclass(frozen=True, eq=False)
class _BlockRequest:
    """What is asked for each block of contexts."""

    model: Recommender | Composed
    n: int
    exclude_seen: bool
    allow: list[Id] | None
    deny: list[Id] | None
    unknown: Unknown
    slate: Slate | None
    memory: int | str | None
    threads: int | None

    def __call__(self, whom: Whom) -> Recommendations:
        """The lists of these contexts; the one place where a batch asks its model."""
        first = _first(self.model)
        if isinstance(whom, np.ndarray):
            everyone = np.ones(len(whom), np.bool_)
            queries = Queries(QueryLabels(first.contexts_, whom), whom, first.seen_.take(whom), everyone)
        else:
            queries = first._queries(whom, None, self.unknown, KNOWN_ONLY)
        filters = first._filters(queries, self.exclude_seen, self.allow, self.deny)
        with blas_threads(self.threads):
            return self.model._answer(queries, filters, self.n, self.slate, self.memory, self.threads)

    @property
    def width(self) -> int:
        """How many items are found for a context, to have n of them in the end."""
        pool = 0 if self.slate is None else self.slate.pool
        candidates = self.model.candidates if isinstance(self.model, Composed) else 0
        return min(max(self.n, pool, candidates), len(self.model.items_))

    def identity(self) -> dict[str, Any]:
        """What the answers depend on, contexts apart."""
        allow, deny = (
            None if one is None else digest(np.unique(_first(self.model)._known_items(name, one)))
            for name, one in (("allow", self.allow), ("deny", self.deny))
        )
        return {
            "recommender": type(self.model).__name__,
            "model": _digest_of_model(self.model),
            "n": self.n,
            "exclude_seen": self.exclude_seen,
            "allow": allow,
            "deny": deny,
            "slate": None if self.slate is None else repr(self.slate),
        }


def _first(model: Recommender | Composed) -> Recommender:
    """Who knows ids, histories and filters."""
    return model.first if isinstance(model, Composed) else model


def _refuse_other_models(model: object) -> None:
    if isinstance(model, Recommender | Composed):
        return
    found, way_out = type(model).__name__, "pass a fitted recommender"
    if isinstance(model, str | PathLike):
        found, way_out = f"{str(model)!r:.80}", "load the model that is there: shortlist.load(path)"
    elif isinstance(model, type):
        found, way_out = f"the class {model.__name__}", "pass an instance that is fitted"
    elif isinstance(model, Index):
        found, way_out = "an Index", "pass the model that it was made of, which is searched exactly"
    raise SettingError(f"lists are written for a recommender, got {found}; {way_out}")


def _for_all(name: str, given: Iterable[Id] | None) -> list[Id] | None:
    """A filter for all contexts as a list; what is no list is refused by whoever takes it."""
    if given is None or isinstance(given, str | bytes | int | dict) or is_frame(given):
        return given  # type: ignore[return-value]
    listed = as_list(given, f"a list of item ids as {name}")
    if any(isinstance(one, Iterable) and not isinstance(one, str | bytes) for one in listed):
        raise SettingError(f"{name} holds lists; expected one list of item ids for all contexts")
    return listed


def _whom(model: Recommender | Composed, contexts: Iterable[Id] | None, unknown: Unknown) -> tuple[Whom, list[Id]]:
    """For whom lists are wanted, each once, and who was skipped: codes, or ids where some of them were never seen.

    Not by `_queries`, which would take the histories of all at once.
    """
    vocabulary = model.contexts_
    if model._composes:
        one_of("unknown", unknown, ("raise", "skip", "average"))
    else:
        check_unknown(unknown)
    if contexts is None:
        return np.arange(len(vocabulary), dtype=np.int32), []
    if isinstance(contexts, pl.DataFrame):
        given: Any = in_order(contexts, vocabulary)
    elif isinstance(contexts, str | bytes | int | np.integer | tuple | pl.Series):
        given = contexts
    else:
        given = as_list(as_rows(contexts, vocabulary, "contexts"), "a list of contexts")
    mark = model._composes or unknown == "skip"
    codes, skipped = vocabulary.encode(given, unknown="mark" if mark else "raise", what="context"), []
    strange = codes < 0
    if strange.any():
        ids = as_list(as_rows(given, vocabulary, "contexts"), "a list of contexts")
        if model._composes:
            answered: list[Id] = []
            for start in range(0, len(ids), _STEP):
                queries = _first(model)._queries(ids[start : start + _STEP], None, unknown, KNOWN_ONLY)
                _refuse_empty_cells(queries.labels)
                answered += queries.labels.ids()
                skipped += queries.skipped
            return list(dict.fromkeys(answered)), skipped
        skipped = [ids[k] for k in np.flatnonzero(strange)]
    _, first = np.unique(codes[~strange], return_index=True)
    return codes[~strange][np.sort(first)], skipped


def _refuse_empty_cells(labels: QueryLabels) -> None:
    """Refuse contexts of which a part has another type than its column, which would stand in the file as nothing."""
    frame = labels.frame()
    for column in frame.get_columns():
        if column.null_count():
            first = labels.ids()[int(column.is_null().arg_max() or 0)]
            raise DataError(
                f"context {first!r:.200}: its {column.name!r} is not of type {column.dtype}, as the file's column "
                "of that name must be; correct it, or pass unknown='skip' to leave it out"
            )


def _digest_of_contexts(whom: Whom) -> str:
    if isinstance(whom, np.ndarray):
        return digest(whom)
    return hashlib.sha256(json.dumps(whom, default=str).encode()).hexdigest()


def _digest_of_model(model: Recommender | Composed) -> str:
    """A sha256 of everything that makes the model; code of the user's own by its name."""
    stored = model._stored()
    said = [stored.settings, stored.extra, model._code() if isinstance(model, Composed) else []]
    found = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode())
    for name, array in sorted(stored.arrays.items()):
        found.update(f"{name} {digest(array)}".encode())
    for name, frame in sorted(stored.tables.items()):
        found.update(f"{name} {hashlib.sha256(table_files.encode(frame)).hexdigest()}".encode())
    return found.hexdigest()
