"""Data sets: one that comes with the package, those in public layouts, and as much synthetic data as wanted."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import polars as pl

from shortlist._fork import require_polars_threads
from shortlist._phrases import count
from shortlist.data.encode import Columns, OnBad, build
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import SettingError

__all__ = ["Dataset", "DatasetInfo", "available", "layouts", "load", "read", "synthetic"]


@dataclass(frozen=True)
class DatasetInfo:
    """What a data set is and whom it comes from."""

    name: str
    title: str
    licence: str
    attribution: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """Interactions, and what is known about items and contexts, joined to them by id.

    `interactions` are the events that may be learnt from: all there are, or, where a split was published, all but those
    that it asks for. So a model fitted on them can be evaluated on `split` without having seen the answers. A model
    that is to be used and not evaluated is fitted on `everything`: those that the split asks for are in it.
    """

    info: DatasetInfo
    interactions: Interactions
    items: pl.DataFrame  # a row an item; the ids alone where nothing else is known
    contexts: pl.DataFrame
    split: Split | None = None  # the published one; its `train` are the interactions
    validation: Split | None = None  # the published one within `split.train`, for choosing settings
    candidates: Interactions | None = None  # what the published evaluation ranks the truth against
    _everything: Interactions | None = None

    @property
    def everything(self) -> Interactions:
        """All events of the files, training, validation and test, with the items of `interactions`.

        The same as `interactions` where there is no split.
        """
        return self.interactions if self._everything is None else self._everything

    def __repr__(self) -> str:
        lines = [f"Dataset({self.info.title})", f"  {self.interactions!r}"]
        for name, one in (("split", self.split), ("validation", self.validation)):
            if one is not None:
                lines.append(
                    f"  {name}: {one.protocol}, {count(len(one.truth), 'pair')} of "
                    f"{count(one.truth.n_contexts, 'context')} asked for"
                )
        if self.candidates is not None:
            lines.append(f"  candidates: {len(self.candidates):,}, for evaluate_candidates")
        if len(self.everything) > len(self.interactions):
            lines.append(f"  everything: {len(self.everything):,} events, those that the split asks for among them")
        return "\n".join([*lines, f"  licence {self.info.licence}: {self.info.attribution}"])


_ONLINE_RETAIL = DatasetInfo(
    name="online-retail",
    title="Online Retail: a year of a British gift shop's orders",
    licence="CC BY 4.0",
    attribution="Chen, D. (2015). Online Retail [Dataset]. UCI Machine Learning Repository. doi 10.24432/C5BW33. "
    "Cleaned: known customers, no cancellations, positive quantities and prices, product codes only.",
)


def available() -> list[DatasetInfo]:
    """The data sets that `load` knows."""
    return [_ONLINE_RETAIL]


def load(name: str) -> Dataset:
    """Load a bundled data set by name.

    >>> load("online-retail").interactions
    Interactions(386,250 events of 4,334 contexts (customer) with 3,659 items (product), 266,221 distinct pairs, \
weights 1 … 80995 (sum), 2010-12-01 08:26:00 … 2011-12-09 12:50:00)
    """
    if not isinstance(name, str) or name != _ONLINE_RETAIL.name:
        known = [info.name for info in available()]
        near = difflib.get_close_matches(str(name), known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SettingError(f"no data set is called {name!r:.80}{hint}; bundled: {', '.join(known)}")
    events = online_retail_events()
    columns = Columns(("customer",), "product", "quantity", "time", published=True)
    interactions = Interactions._from_built(build(events.lazy(), columns, on_bad="raise"), columns, "sum")
    items = _part("items").select(product="stock_code", title="title", price="median_price")
    contexts = _part("users").select(customer="customer_id", country="country")
    return Dataset(_ONLINE_RETAIL, interactions, items, contexts)


def layouts() -> dict[str, str]:
    """The public layouts that `read` knows: their names, and a line about each.

    >>> layouts()["movielens-100k"]
    'MovieLens 100K: u.data, with u.item and u.user'
    """
    from shortlist.data.layouts import LAYOUTS

    return dict(LAYOUTS)


def read(
    path: str | Path, layout: str | None = None, min_rating: float | None = None, *, on_bad: OnBad = "raise"
) -> Dataset:
    r"""Read a data set as it was published: MovieLens, Amazon, and the files of LightGCN, NCF, SASRec, S3-Rec.

    The layout is recognised by the files. Contexts are the column `user`, items `item`; ratings are the weights
    (`rating`; of an item that a user rated twice the latest counts), timestamps the times (`time`, in UTC). Sequences
    without timestamps have the place of an event within its user's as time (`position`): an order, not a clock.

    Where a split is published, `split` holds it, and `interactions` is its training part; so it is for `sasrec` and
    `s3rec`, whose files hold all events and whose split is a rule. `everything` is training and test together: for a
    model that is to be used. All items of the files are in
    the catalogue, also those that only the test knows: the published figures count them as missed.

    | layout | split | validation | candidates | items | contexts |
    |---|---|---|---|---|---|
    | `movielens-dat`, `-100k` | | | | title, genres | age, gender, … |
    | `movielens-csv` | | | | title, genres | |
    | `lightgcn` | test.txt | valid.txt, where it is there | | original ids | original ids |
    | `ncf` | one item a user | | NAME.test.negative | | |
    | `sasrec` | each user's last item | the last but one | | | |
    | `s3rec` | each user's last item | the last but one | NAME_sample.txt | attributes | |
    | `amazon-2014`, `-2018`, `-2023`, `-reviews` | | | | | |

    With a validation part, `split` trains on it too and `validation` on the rest: choose settings on `validation`, then
    fit on `split.train`. What the split leaves out is counted in `split.dropped`.

    Args:
        path: a folder, or a file of it: where a folder holds several data sets, the file says which.
        layout: its name, where it is not recognised or several fit; `layouts()` lists them.
        min_rating: take only ratings from this one on as events; the others are counted in `interactions.dropped` (and,
            those of a published test, in `split.dropped`). An item that a user rated several times counts where the
            latest of these ratings is at least that. All ratings are events without it.
        on_bad: lines that cannot be read `"raise"` an error, or `"drop"` them and count them in `interactions.dropped`
            (of candidates, in `candidates.dropped`).

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.txt").write_text("0 10 11\n1 11\n")
    >>> _ = (folder / "test.txt").write_text("0 12\n1 10\n")
    >>> data = read(folder)
    >>> data.interactions
    Interactions(3 events of 2 contexts (user) with 3 items (item), 3 distinct pairs)
    >>> data.split.truth.to_polars().rows()
    [(0, 12), (1, 10)]
    >>> len(data.everything)
    5
    """
    require_polars_threads("reading a dataset")
    from shortlist.data.layouts import read_parts

    name, main, parts = read_parts(path, layout, min_rating, on_bad)
    events = parts.interactions
    info = DatasetInfo(
        name=name,
        title=f"{main.name}, in the layout {name}",
        licence="of the files",
        attribution="see what was published with them",
    )
    return Dataset(
        info,
        events,
        events.items.frame if parts.items is None else parts.items,
        events.contexts.frame if parts.contexts is None else parts.contexts,
        parts.split,
        parts.validation,
        parts.candidates,
        parts.everything,
    )


def online_retail_events() -> pl.DataFrame:
    """The events with the shop's own ids: customer, product, quantity, time."""
    events = _part("interactions")
    return (
        events.join(_part("users"), on="user", maintain_order="left")
        .join(_part("items"), on="item", maintain_order="left")
        .select(
            customer="customer_id",
            product="stock_code",
            quantity="quantity",
            time=pl.from_epoch(pl.col("timestamp").cast(pl.Int64), time_unit="s"),
        )
    )


def _part(name: str) -> pl.DataFrame:
    require_polars_threads("loading data that comes with Shortlist")
    return pl.read_parquet((files("shortlist.data") / "online_retail" / f"{name}.parquet").read_bytes())


def synthetic(n_contexts: int, n_items: int, n_interactions: int, seed: int = 0) -> Interactions:
    """Made-up interactions that look like real ones: Zipf popularity, log-normal activity, low-rank taste.

    Every pair occurs once; the same seed gives the same data. Ids are the whole numbers from 0.

    >>> synthetic(100, 50, 1000, seed=1)
    Interactions(1,000 events of 100 contexts (context) with 50 items (item), 1,000 distinct pairs)
    """
    from shortlist.data.synthetic import synthetic_codes

    contexts, items = synthetic_codes(n_contexts, n_items, n_interactions, seed)
    return Interactions(
        Vocabulary.of(pl.int_range(n_contexts, dtype=pl.Int32, eager=True), "context"),
        Vocabulary.of(pl.int_range(n_items, dtype=pl.Int32, eager=True), "item"),
        contexts,
        items,
    )
