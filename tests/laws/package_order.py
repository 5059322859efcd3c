"""The order of Shortlist's packages. Each may import itself and the ones above it, nothing below."""

from __future__ import annotations

from laws.source_code import PACKAGE

BASE = "_core"  # `errors`, and every module or package at the top whose name starts with an underscore
PACKAGES = (
    BASE,
    "data",
    "metrics",
    "objectives",
    "scoring",
    "sampling",
    "solvers",
    "retrieval",
    "storage",
    "ranking",
    "evaluation",
    "recommenders",
    "reranking",
    "online",
    "batch",
    "tuning",
    "service",
    "cluster",
    "loading",
    "warming",
    "cli",
    PACKAGE,  # shortlist/__init__.py and __main__.py know everything, and nothing may import them
)


def package_of(module: str) -> str:
    """Return the package of a module: `data` for `shortlist.data.sparse_rows`."""
    _, _, rest = module.partition(".")
    top = rest.partition(".")[0]
    if top in {"", "__main__"}:
        return PACKAGE
    return BASE if top == "errors" or top.startswith("_") else top
