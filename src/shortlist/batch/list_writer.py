"""Top-n lists for all contexts, written ahead of time to one file."""

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

from shortlist._checks import flag, integer, memory_bytes, one_of
from shortlist._clock import working_seconds
from shortlist._fork import require_polars_threads
from shortlist._progress import steps
from shortlist._threads import Background
from shortlist._version import __version__
from shortlist._wording import Message
from shortlist.batch.list_files import ListFile, list_file
from shortlist.data.id_lists import as_list
from shortlist.data.vocabulary import Codes, Id, Unknown
from shortlist.errors import DataError, SettingError
from shortlist.ranking.engine import recommend
from shortlist.ranking.index import Index
from shortlist.ranking.inputs import KNOWN_ONLY, as_rows, check_unknown, filter_for_all, in_order, known_items
from shortlist.ranking.protocols import StorableRanker, is_ranker, is_staged
from shortlist.ranking.queries import Queries, QueryLabels
from shortlist.ranking.recommendations import FORMATS, ListFormat, Recommendations
from shortlist.ranking.request import Request
from shortlist.retrieval.slates.base import Slate, check_slate
from shortlist.storage import id_tables as table_files
from shortlist.storage.digest import digest
from shortlist.storage.draft import Draft, opened

ROWS = 1 << 21  # recommendations per block: about 100 MB while it is written, and a few seconds of work
POOL = 1 << 23  # pooled items per block: about 300 MB for a slate, 400 MB for a reranker
MOST = 1 << 16  # contexts per block
_STEP = 1 << 14  # contexts looked up at a time
Selected: TypeAlias = "Codes | list[Id]"


@dataclass(frozen=True)
class BatchResult:
    """What `write_lists` wrote.

    Attributes:
        path: the file.
        contexts: number of contexts with a list.
        rows: number of recommendations in all lists together.
        short: number of lists with fewer than n items, because the filters left fewer. In the format "long" an empty
            list has no row.
        resumed: number of contexts whose lists an earlier, interrupted call had already written.
        skipped: unknown contexts that were skipped because of `unknown="skip"`.
        seconds: time that this call took, without compiling kernels.
    """

    path: Path
    contexts: int
    rows: int
    short: int
    resumed: int = 0
    skipped: list[Id] = field(default_factory=list)
    seconds: float = 0.0


def write_lists(
    model: StorableRanker,
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
    """Write top-n lists for every context to one file; resume after a crash.

    Lists are computed and written in blocks, so memory stays bounded for any number of contexts. After a kill, a full
    disk or Ctrl-C, the same call resumes after the last finished block. Finished blocks are in a folder next to the
    file, `lists.parquet.parts`, until all are written; then the file appears in one step. The lists are those of
    `model.recommend` up to rounding: scores may differ in the last digits if the blocks have another size.

    Args:
        model: a fitted recommender or `TwoStage`.
        path: the file to write. Its suffix selects the format: `.parquet`, `.csv`, `.tsv` or `.jsonl` (JSON lines). A
            Parquet file has one row group per block.
        n: number of items per list. A list is shorter only if the filters leave fewer items.
        contexts: ids of contexts, as in `recommend`; all contexts by default. Repeated ids get one list.
        exclude_seen: drop the items of the context's training history.
        allow: recommend only these items, to every context. Unknown ids are ignored.
        deny: never recommend these items, to any context. Unknown ids are ignored.
        unknown: what to do with unknown contexts, as in `recommend`.
        slate: a method that picks the n items from a larger pool, for diversity or calibration; see `shortlist.slates`.
        format: `"long"`: one row per recommendation, with the context's columns, the item, its `rank` from 1 and its
            `score`. `"lists"`: one row per context, with a list of items, best first, and a list of scores.
        overwrite: replace an existing file; by default that is an error.
        restart: start over and delete the blocks of an earlier call. A call with another model, other contexts, another
            n or other filters needs this, because a file must not mix two runs. Changes in your own code (a subclass, a
            reranker, the `extra` of a `TwoStage`) are not noticed: only names of classes and functions are compared.
        block: number of contexts per block. By default a block has about two million recommendations; if a slate or a
            second stage picks from larger pools, all pools of a block together have about eight million items. Up to
            three blocks are in memory at a time.
        progress: show a progress bar; by default only if standard error is a terminal.
        memory: memory limit for blocks of scores, in bytes or as text such as "256MB".
        threads: number of threads; all CPUs by default.

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
    n, given_block = integer("n", n), None if block is None else integer("block", block)
    one_of("format", format, FORMATS)
    exclude_seen, overwrite = flag("exclude_seen", exclude_seen), flag("overwrite", overwrite)
    restart = flag("restart", restart)
    memory_bytes(memory)
    if not isinstance(path, str | PathLike):
        raise SettingError(f"path is {path!r:.80}; expected the path of a file", field="path")
    target = Path(os.path.abspath(path))
    file = list_file(target, nested=format == "lists")
    _refuse_other_models(model)
    if slate is not None:
        check_slate(slate)
    model.require_fit()
    n = min(n, len(model.items_))
    allowed, denied = (filter_for_all(name, ids, "contexts") for name, ids in (("allow", allow), ("deny", deny)))
    request = Request(
        n=n, exclude_seen=exclude_seen, allow=allowed, deny=denied, slate=slate, memory=memory, threads=threads
    )
    lists_of = _Lists(model, request, unknown)
    selected, skipped = _select_contexts(model, contexts, unknown)
    if not len(selected):
        reason = f": all {len(skipped):,} requested contexts are unknown, such as {skipped[0]!r:.80}" if skipped else ""
        raise DataError(f"there are no contexts to write lists for{reason}")
    size = given_block or max(1, min(MOST, ROWS // n, POOL // lists_of.width))
    empty = lists_of(selected[:0]).to_polars(format)  # raises an error for invalid filters
    identity = {
        **lists_of.identity(),
        "contexts": "all" if contexts is None else _digest_of_contexts(selected),
        "format": format,
        "file": target.suffix.lower(),
        "block": size,
        "shortlist": __version__,
        "polars": pl.__version__,
    }
    derived = () if given_block else ("block",)
    with opened(target, file.head(empty), identity, overwrite=overwrite, restart=restart, derived=derived) as draft:
        resumed = sum(written.about["contexts"] for written in draft.blocks)
        if draft.complete:
            draft.remove()
        else:
            title = f"{'resuming' if resumed else 'writing'} {target.name}"
            with steps(title, "contexts", progress) as step, Background("shortlist-writer") as writer:
                step(resumed, len(selected))
                for start in range(resumed, len(selected), size):
                    answer = lists_of(selected[start : start + size])  # while the block before is written
                    writer.wait()
                    if start > resumed:
                        step(start, len(selected))
                    writer.start(_write, draft, file, answer, format, n)
                writer.wait()
                step(len(selected), len(selected))
            draft.finish(file.tail(empty, draft.blocks))
        counts = [written.about for written in draft.blocks]
    rows, short = (sum(of_block[name] for of_block in counts) for name in ("rows", "short"))
    return BatchResult(target, len(selected), rows, short, resumed, skipped, working_seconds() - began)


def _write(draft: Draft, file: ListFile, answer: Recommendations, format: ListFormat, n: int) -> None:  # noqa: A002
    content, extra = file.block(answer.to_polars(format))
    counts = answer.counts
    about = {"contexts": len(answer), "rows": int(counts.sum()), "short": int((counts < n).sum())}
    draft.append(content, {**about, **extra})


@dataclass(frozen=True, eq=False)
class _Lists:
    """The lists of a model for one request, block by block."""

    model: StorableRanker
    request: Request
    unknown: Unknown

    def __call__(self, selected: Selected) -> Recommendations:
        """Return the lists of these contexts."""
        model = self.model
        if isinstance(selected, np.ndarray):
            queries = Queries.of(QueryLabels(model.contexts_, selected), selected, model.histories_of(selected))
        else:
            queries = model.queries(selected, unknown=self.unknown, advice=KNOWN_ONLY)
        return recommend(model, queries, self.request)

    @property
    def width(self) -> int:
        """The number of items searched per context, from which n remain."""
        n_items = len(self.model.items_)
        candidates = self.model.candidates if is_staged(self.model) else 0
        return min(max(self.request.depth(n_items), candidates), n_items)

    def identity(self) -> dict[str, Any]:
        """Return everything that the lists depend on, except the contexts."""
        request = self.request
        allow, deny = (
            None if ids is None else digest(np.unique(known_items(name, list(ids), self.model.items_)))
            for name, ids in (("allow", request.allow), ("deny", request.deny))
        )
        return {
            "recommender": type(self.model).__name__,
            "model": _digest_of_model(self.model),
            "n": request.n,
            "exclude_seen": request.exclude_seen,
            "allow": allow,
            "deny": deny,
            "slate": None if request.slate is None else repr(request.slate),
        }


def _refuse_other_models(model: object) -> None:
    if is_ranker(model):
        return
    got, way_out = type(model).__name__, "pass a fitted recommender"
    if isinstance(model, str | PathLike):
        got, way_out = f"{str(model)!r:.80}", "load the model first: shortlist.load(path)"
    elif isinstance(model, type):
        got, way_out = f"the class {model.__name__}", "pass a fitted instance"
    elif isinstance(model, Index):
        got, way_out = "an Index", "pass the model that made it; write_lists searches exactly"
    raise SettingError(f"write_lists expects a recommender, got {got}", field="model", hint=way_out)


def _select_contexts(
    model: StorableRanker, contexts: Iterable[Id] | None, unknown: Unknown
) -> tuple[Selected, list[Id]]:
    """Return the distinct contexts to write lists for, and the skipped ids.

    Contexts are codes, or ids if some are unseen combinations. `queries` is not used for all of them at once, because
    it would copy all histories.
    """
    vocabulary = model.contexts_
    if model.composes_contexts:
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
        given = as_list(as_rows(contexts, vocabulary, "contexts"), "a list of contexts", "contexts")
    mark = model.composes_contexts or unknown == "skip"
    codes, skipped = vocabulary.encode(given, unknown="mark" if mark else "raise", what="context"), []
    new = codes < 0
    if new.any():
        ids = as_list(as_rows(given, vocabulary, "contexts"), "a list of contexts", "contexts")
        if model.composes_contexts:
            answered: list[Id] = []
            for start in range(0, len(ids), _STEP):
                queries = model.queries(ids[start : start + _STEP], unknown=unknown, advice=KNOWN_ONLY)
                _refuse_empty_cells(queries.labels)
                answered += queries.labels.ids()
                skipped += queries.skipped
            return list(dict.fromkeys(answered)), skipped
        skipped = [ids[k] for k in np.flatnonzero(new)]
    _, first = np.unique(codes[~new], return_index=True)
    return codes[~new][np.sort(first)], skipped


def _refuse_empty_cells(labels: QueryLabels) -> None:
    """Refuse contexts with a part of another type than its column; the file would have null there."""
    frame = labels.frame()
    for column in frame.get_columns():
        if column.null_count():
            first = labels.ids()[int(column.is_null().arg_max() or 0)]
            raise DataError(
                f"context {first!r:.200}: {column.name!r} is not of type {column.dtype}, the type of that column in "
                "the file",
                code="unknown-context",
                hint=Message("correct it, or pass {unknown} to drop it", unknown="skip"),
            )


def _digest_of_contexts(selected: Selected) -> str:
    if isinstance(selected, np.ndarray):
        return digest(selected)
    return hashlib.sha256(json.dumps(selected, default=str).encode()).hexdigest()


def _digest_of_model(model: StorableRanker) -> str:
    """Return a sha256 of the whole model, with the user's own code by name only."""
    stored = model.to_stored()
    facts = [stored.settings, stored.extra, model.custom_code()]
    sha = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, array in sorted(stored.arrays.items()):
        sha.update(f"{name} {digest(array)}".encode())
    for name, frame in sorted(stored.tables.items()):
        sha.update(f"{name} {hashlib.sha256(table_files.encode(frame)).hexdigest()}".encode())
    return sha.hexdigest()
