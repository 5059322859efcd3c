"""The package as a whole: what importing costs, what is public, the first usage block of the plan."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from fewer_orders import load_fewer
from shortlist import metrics
from shortlist.data import synthetic
from shortlist.data.features import id_types, table
from shortlist.metrics import accuracy, beyond_accuracy, lists, popularity_groups, ranks, spec
from shortlist.recommenders.registry import REGISTRY

HEAVY = {"numpy", "polars", "numba", "scipy", "torch", "faiss", "ray", "fastapi", "optuna", "rich", "typer"}
HEAVY |= {"pandas", "lightgbm"}
EXPLAINED = [
    metrics,
    beyond_accuracy,
    popularity_groups,
    lists,
    accuracy,
    ranks,
    spec,
    synthetic,
    table,
    id_types,
]  # by examples


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_loads_nothing_heavy():
    assert run(f"import sys, shortlist; print({HEAVY!r} & set(sys.modules))").strip() == "set()"


def test_ctrl_c_waits_for_an_import(monkeypatch):
    imported = []

    def interrupted(name):
        signal.raise_signal(signal.SIGINT)
        imported.append(name)
        return importlib.import_module(name)

    monkeypatch.delitem(vars(sl), "Popularity", raising=False)
    monkeypatch.setattr(sl, "import_module", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            sl.Popularity  # noqa: B018
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(imported) == 1


def test_every_public_name_is_there_and_documented():
    for name in sl.__all__:
        value = getattr(sl, name)
        assert name == "__version__" or value.__doc__, name
    assert set(sl.__all__) <= set(dir(sl))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        sl.nonsense  # noqa: B018


def test_recommenders_are_found_in_their_package_too():
    import shortlist.recommenders as package

    assert {name for name in REGISTRY if getattr(package, name) is getattr(sl, name)} == set(REGISTRY)
    assert set(REGISTRY) <= set(dir(package)) & set(package.__all__)
    with pytest.raises(AttributeError, match=r"'shortlist.recommenders' has no attribute 'TwoStages'"):
        package.TwoStages  # noqa: B018
    run("from shortlist.recommenders import *; IALS")


def test_importing_the_package_of_recommenders_loads_nothing_heavy():
    assert run(f"import sys, shortlist.recommenders; print({HEAVY!r} & set(sys.modules))").strip() == "set()"


@pytest.mark.parametrize(
    "module",
    [one.name for one in pkgutil.walk_packages(sl.__path__, "shortlist.") if not one.name.endswith("__main__")],
)
def test_examples_in_docstrings_run(module, monkeypatch):
    if module == "shortlist.tuning.tune":  # it fits EASE eight times
        load_fewer(monkeypatch)
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0
    if module in {one.__name__ for one in EXPLAINED}:
        assert result.attempted > 0


@pytest.mark.slow
def test_the_example_of_tune_runs_on_all_orders():
    module = importlib.import_module("shortlist.tuning.tune")
    assert doctest.testmod(module).failed == 0


def test_the_first_usage_block_runs_as_written(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    n = 3000
    pl.DataFrame(
        {
            "user": [f"user-{u}" for u in rng.integers(0, 60, n)],
            "product": rng.choice(["apple", "pear", *(f"fruit-{k}" for k in range(150))], n),
            "when": pl.Series(np.sort(rng.integers(0, 10**6, n))).cast(pl.Datetime("ms")),
        }
    ).write_parquet(tmp_path / "events.parquet")
    monkeypatch.chdir(tmp_path)

    events = sl.Interactions.read("events.parquet", context="user", item="product", time="when")
    split = sl.splits.by_time(events, test=0.1, repeats="drop")  # Split: .train, .history, .truth, .dropped
    model = sl.IALS(dim=128, regularization=0.003, unobserved_weight=0.1, epochs=16, seed=0).fit(split.train)
    result = sl.evaluate(model, split, metrics=["recall@20", "ndcg@100"])
    assert isinstance(result["recall@20"], float)
    assert isinstance(result.stderr["recall@20"], float)
    assert isinstance(result.to_polars(), pl.DataFrame)
    answer = model.recommend(["user-17"], n=10)
    assert isinstance(answer, sl.Recommendations)
    assert len(answer.ids[0]) == len(answer.scores[0]) == 10
    assert "user user-17: " in repr(answer)
    assert len(model.recommend(history=[["apple", "pear"]], n=10).ids[0]) == 10
    assert 1 <= model.rank(["user-17"], [["apple"]])[0][0] <= split.train.n_items
    model.save("models/retail")
    model = sl.load("models/retail")
    assert model.recommend(["user-17"], n=10).ids == answer.ids


def test_kernels_compile_where_no_cache_can_be_kept():
    """A read-only installation without a home directory."""
    run(
        "import numba.core.caching as caching\n"
        "for name in dir(caching):\n"
        "    one = getattr(caching, name)\n"
        "    if isinstance(one, type) and hasattr(one, 'from_function'):\n"
        "        one.from_function = classmethod(lambda *_: None)\n"
        "import shortlist as sl\n"
        "events = sl.Interactions.from_frame({'u': [1, 2], 'i': [1, 2]}, context='u', item='i')\n"
        "assert events.n_pairs == 2"
    )
