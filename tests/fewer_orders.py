"""The bundled orders of the most popular products only, on which pages and examples run in a tenth of the time."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from shortlist.data import datasets

PRODUCTS = 300


def of_popular_products(orders: pl.DataFrame) -> pl.DataFrame:
    """The orders of the most popular products, in their order."""
    counts = orders.group_by("product").len().sort("len", "product", descending=[True, False])
    return orders.filter(pl.col("product").is_in(counts["product"].head(PRODUCTS).to_list()))


def load_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `sl.datasets.load` give them in this process."""
    whole = datasets.online_retail_events
    monkeypatch.setattr(datasets, "online_retail_events", lambda: of_popular_products(whole()))


def shorten(path: Path) -> None:
    """Leave them in a file of orders."""
    of_popular_products(pl.read_csv(path, infer_schema=False)).write_csv(path)
