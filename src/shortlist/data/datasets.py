"""Data sets: the bundled one, published ones in public layouts, and synthetic data of any size."""

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
    """Name, title, licence and source of a data set."""

    name: str
    title: str
    licence: str
    attribution: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """Interactions with tables about their items and contexts.

    `interactions` are the events to train on. If a split was published, they exclude its test events, so a model fitted
    on them can be evaluated on `split`. `everything` includes the test events: fit on it before deployment.
    """

    info: DatasetInfo
    interactions: Interactions
    items: pl.DataFrame  # one row per item; only the ids if the files describe no items
    contexts: pl.DataFrame
    split: Split | None = None  # the published split; its `train` is `interactions`
    validation: Split | None = None  # the published validation split of `split.train`, for choosing settings
    candidates: Interactions | None = None  # the items that the published evaluation ranks the test items against
    _everything: Interactions | None = None

    @property
    def everything(self) -> Interactions:
        """All events of the files: training, validation and test. Same items as `interactions`.

        Without a split it is `interactions` itself.
        """
        return self.interactions if self._everything is None else self._everything

    def __repr__(self) -> str:
        lines = [f"Dataset({self.info.title})", f"  {self.interactions!r}"]
        for name, split in (("split", self.split), ("validation", self.validation)):
            if split is not None:
                lines.append(
                    f"  {name}: {split.protocol}, {count(len(split.truth), 'held-out pair')} of "
                    f"{count(split.truth.n_contexts, 'context')}"
                )
        if self.candidates is not None:
            lines.append(f"  candidates: {len(self.candidates):,}, for evaluate_candidates")
        if len(self.everything) > len(self.interactions):
            lines.append(f"  everything: {len(self.everything):,} events, including the held-out ones")
        return "\n".join([*lines, f"  licence {self.info.licence}: {self.info.attribution}"])


_ONLINE_RETAIL = DatasetInfo(
    name="online-retail",
    title="Online Retail: a year of a British gift shop's orders",
    licence="CC BY 4.0",
    attribution="Chen, D. (2015). Online Retail [Dataset]. UCI Machine Learning Repository. doi 10.24432/C5BW33. "
    "Cleaned: known customers, no cancellations, positive quantities and prices, product codes only.",
)


def available() -> list[DatasetInfo]:
    """Return the bundled data sets."""
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
        message = f"unknown data set {name!r:.80}{hint}; bundled: {', '.join(known)}"
        raise SettingError(message, code="unknown-dataset", field="name")
    events = online_retail_events()
    columns = Columns(("customer",), "product", "quantity", "time", published=True)
    interactions = Interactions.from_encoded(build(events.lazy(), columns, on_bad="raise"), columns, "sum")
    items = _part("items").select(product="stock_code", title="title", price="median_price")
    contexts = _part("users").select(customer="customer_id", country="country")
    return Dataset(_ONLINE_RETAIL, interactions, items, contexts)


def layouts() -> dict[str, str]:
    """Return the public layouts that `read` supports: names and one-line descriptions.

    >>> layouts()["movielens-100k"]
    'MovieLens 100K: u.data, with u.item and u.user'
    """
    from shortlist.data.layouts import LAYOUTS

    return dict(LAYOUTS)


def read(
    path: str | Path, layout: str | None = None, min_rating: float | None = None, *, on_bad: OnBad = "raise"
) -> Dataset:
    r"""Read the published files of a data set: MovieLens, Amazon, and those of LightGCN, NCF, SASRec, S3-Rec.

    `read` detects the layout from the files. The columns are `user` (context), `item`, `rating` (weight) and `time`
    (UTC). If a user rated an item twice, the latest rating counts. Sequences without timestamps get the column
    `position` as time: the event's position in its user's sequence.

    If a split was published, it is in `split`, and `interactions` is its training set. `sasrec` and `s3rec` files hold
    all events; their published split is leave-one-out. `everything` is training and test together: fit on it before
    deployment. Items that occur only in the test set are in the catalogue too: the published scores count them as
    misses.

    | layout | split | validation | candidates | items | contexts |
    |---|---|---|---|---|---|
    | `movielens-dat`, `-100k` | | | | title, genres | age, gender, … |
    | `movielens-csv` | | | | title, genres | |
    | `lightgcn` | test.txt | valid.txt, if it exists | | original ids | original ids |
    | `ncf` | one item per user | | NAME.test.negative | | |
    | `sasrec` | each user's last item | the last but one | | | |
    | `s3rec` | each user's last item | the last but one | NAME_sample.txt | attributes | |
    | `amazon-2014`, `-2018`, `-2023`, `-reviews` | | | | | |

    `split.train` includes the validation events, `validation.train` does not: choose settings on `validation`, then fit
    on `split.train`. `split.dropped` counts the events that the split could not use.

    Args:
        path: a folder or a file. If the folder holds several data sets, pass a file of the one to read.
        layout: the layout's name, needed if it is not detected or if several fit; `layouts()` lists the names.
        min_rating: keep only ratings ≥ `min_rating` as events; None keeps all. If a user rated an item several times,
            the latest rating decides. `interactions.dropped` counts the dropped ratings; those of a published test set
            are in `split.dropped`.
        on_bad: `"raise"` an error for lines that cannot be read, or `"drop"` and count them in `interactions.dropped`
            (lines of candidates in `candidates.dropped`).

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
        attribution="see the documentation of the files",
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
    """Return the events with the shop's ids: customer, product, quantity, time."""
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
    require_polars_threads("loading a bundled data set")
    return pl.read_parquet((files("shortlist.data") / "online_retail" / f"{name}.parquet").read_bytes())


def synthetic(n_contexts: int, n_items: int, n_interactions: int, seed: int = 0) -> Interactions:
    """Return synthetic interactions with Zipf popularity, log-normal activity and low-rank taste.

    Every pair occurs once; the same seed gives the same data. Ids are the integers from 0.

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
