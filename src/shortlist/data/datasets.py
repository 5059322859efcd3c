"""Data sets: one that comes with the package, and as much synthetic data as wanted."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib.resources import files

import polars as pl

from shortlist.data.interactions import Interactions
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import SettingError

__all__ = ["Dataset", "DatasetInfo", "available", "load", "synthetic"]


@dataclass(frozen=True)
class DatasetInfo:
    """What a data set is and whom it comes from."""

    name: str
    title: str
    licence: str
    attribution: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """Interactions, and what is known about items and contexts, joined to them by id."""

    info: DatasetInfo
    interactions: Interactions
    items: pl.DataFrame
    contexts: pl.DataFrame

    def __repr__(self) -> str:
        source = f"licence {self.info.licence}: {self.info.attribution}"
        return f"Dataset({self.info.title})\n  {self.interactions!r}\n  {source}"


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
    if name != _ONLINE_RETAIL.name:
        known = [info.name for info in available()]
        near = difflib.get_close_matches(str(name), known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SettingError(f"no data set is called {name!r}{hint}; bundled: {', '.join(known)}")
    events = online_retail_events()
    interactions = Interactions.from_frame(events, context="customer", item="product", weight="quantity", time="time")
    items = _part("items").select(product="stock_code", title="title", price="median_price")
    contexts = _part("users").select(customer="customer_id", country="country")
    return Dataset(_ONLINE_RETAIL, interactions, items, contexts)


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
