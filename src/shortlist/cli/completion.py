"""Shell completion of option values.

Completion must be instant, so this module imports nothing heavy and repeats the names of models, settings, metrics and
data. Tests compare them with the originals.
"""

import os
from pathlib import Path

import typer

_FACTORIZATION = (
    *("dim", "regularization", "unobserved_weight", "epochs", "regularization_exponent", "unobserved_item_exponent"),
    *("unobserved_context_exponent", "weighting", "strength_as", "observed_weight", "convention", "init_scale", "seed"),
)
_SAMPLED = (
    *("dim", "epochs", "init_scale", "seed", "learning_rate", "regularization", "context_regularization"),
    *("item_regularization", "bias_regularization", "regularization_exponent", "biases", "normalize", "n_negatives"),
    *("weighting", "strength_as", "positive_context_exponent", "positive_item_exponent", "optimizer", "schedule"),
    *("schedule_epochs", "fold_in_epochs", "init"),
)
_MULTILINEAR = (*_FACTORIZATION, "solver", "steps", "loss")
SETTINGS = {
    "ials": (*_FACTORIZATION, "solver", "block", "device"),
    "icd": _FACTORIZATION,
    "rankals": (
        *("dim", "epochs", "init_scale", "seed", "solver", "steps", "regularization", "regularization_exponent"),
        *("item_exponent", "weighting"),
    ),
    "parafac": (*_MULTILINEAR, "part_strength"),
    "tucker": (*_MULTILINEAR, "part_strength", "first_dim", "part_dim"),
    "factorizationmachine": (*_MULTILINEAR, "context_ids", "item_ids", "same_side_pairs"),
    "featureials": (*_FACTORIZATION, "solver", "steps", "feature_strength"),
    "ease": ("regularization", "weighting"),
    "slim": ("weighting", "l1", "l2", "positive", "tolerance", "sweeps"),
    "itemknn": ("weighting", "neighbours", "similarity", "shrinkage", "asymmetry", "k1", "b"),
    "userknn": ("neighbours", "similarity", "shrinkage", "asymmetry", "k1", "b", "weighting"),
    "popularity": ("weighting",),
    "bpr": (*_SAMPLED, "temperature"),
    "adaptivebpr": (*_SAMPLED, "temperature", "gamma"),
    "warp": (*_SAMPLED, "rounds", "margin", "penalty"),
    "lambdamf": (*_SAMPLED, "temperature", "sampler", "metric", "ranks", "candidates"),
    "logisticmf": (*_SAMPLED, "temperature", "exclude"),
    "hingemf": (*_SAMPLED, "temperature", "exclude"),
    "squaremf": (*_SAMPLED, "temperature", "exclude"),
    "softmaxmf": (*_SAMPLED, "temperature", "beta", "exclude", "batch"),
    "matrixfactorization": (*_SAMPLED, "objective", "sampler", "weight", "batch"),
}
ACCURACY = ("recall@20", "ndcg@20", "precision@10", "capped_recall@20", "ap@10", "hit@10", "mrr@10", "mrr", "auc")
METRICS = (
    *ACCURACY,
    *("coverage@20", "gini@20", "popularity@20", "novelty@20", "distance@20", "cold_share@20", "miscalibration@20"),
)
BUNDLED = ("online-retail",)
LAYOUTS = (
    *("movielens-dat", "movielens-csv", "movielens-100k", "lightgcn", "ncf", "sasrec", "s3rec"),
    *("amazon-2014", "amazon-2018", "amazon-2023", "amazon-reviews"),
)


def data(incomplete: str) -> list[str]:
    """Complete bundled data. Return nothing if a file matches, so that the shell completes files."""
    place = Path(incomplete)
    folder, start = (place, "") if incomplete.endswith(os.sep) else (place.parent, place.name)
    try:
        if any(path.name.startswith(start) for path in folder.iterdir()):
            return []
    except OSError:
        pass
    return bundled(incomplete)


def bundled(incomplete: str) -> list[str]:
    """Complete the names of bundled data."""
    return [name for name in BUNDLED if name.startswith(incomplete)]


def layouts(incomplete: str) -> list[str]:
    """Complete public layouts."""
    return [name for name in LAYOUTS if name.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Complete model names."""
    return [name for name in SETTINGS if name.startswith(incomplete.lower())]


def settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete `NAME=` for the settings of the models given so far, and `MODEL.NAME=` if there are several.

    Values after the `=` are not completed.
    """
    named = ctx.params.get("model") or ["ials"]
    chosen = [model.lower() for model in ([named] if isinstance(named, str) else named)]
    owner, dot, _ = incomplete.rpartition(".")
    if "=" in incomplete or (dot and owner.lower() not in chosen):
        return []
    qualified = bool(dot) or len(chosen) > 1
    candidates = [
        f"{owner if dot else model}.{name}=" if qualified else f"{name}="
        for model in chosen
        if not dot or model == owner.lower()
        for name in SETTINGS.get(model, ())
    ]
    return [candidate for candidate in candidates if candidate.startswith(incomplete)]


def metric(incomplete: str) -> list[str]:
    """Complete one accuracy metric."""
    return [name for name in ACCURACY if name.startswith(incomplete)]


def metrics(incomplete: str) -> list[str]:
    """Complete the last metric of a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in METRICS if name.startswith(last) and name not in before.split(",")]
