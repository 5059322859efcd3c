"""Which settings does the study of defaults try, and which of them are the defaults?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, TypeAlias

from benchmarks.lib.machine import PLAIN_SGD
from benchmarks.studies.defaults.data import Part

Settings: TypeAlias = dict[str, Any]


def ials() -> Iterator[Settings]:
    """30 settings that are the same on all data, at 8 epochs; then rules for what follows from the data, at 16."""
    alphas = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    wide = {0.01: alphas, 0.003: alphas[2:5], 0.03: alphas[:3]}
    for dim, ridge, alpha0 in (
        *((256, ridge, alpha0) for ridge, some in wide.items() for alpha0 in some),
        *((64, ridge, alpha0) for ridge in wide for alpha0 in alphas),
    ):
        yield {"dim": dim, "regularization": ridge, "unobserved_weight": alpha0, "epochs": 8}
    for kappa, ridge in itertools.product((4, 6, 8, 10, 13, 16, 20), (0.004, 0.006, 0.008, 0.01, 0.013, 0.016)):
        yield {"dim": 256, "regularization": ridge, "unobserved_weight": f"{kappa}*n/I", "epochs": 16}
    for dim, epochs in ((256, 8), (128, 16), (512, 16)):
        yield {"dim": dim, "regularization": 0.01, "unobserved_weight": "10*n/I", "epochs": epochs}
    for exponent in (-0.25, 0.25):
        usual = {"dim": 256, "regularization": 0.01, "unobserved_weight": "10*n/I", "epochs": 16}
        yield usual | {"unobserved_item_exponent": exponent}
    yield {"dim": 256, "regularization": 0.01, "unobserved_weight": "200*1/I", "epochs": 16}


def bpr() -> Iterator[Settings]:
    """20 settings that are the same on all data; the first are those of before, the default is one of them."""
    svd, linear = {"init": "svd", "init_scale": 1.0}, {"schedule": "linear", "epochs": 30}
    adagrad = {"optimizer": "adagrad"} | svd | linear
    yield {"dim": 64, "optimizer": "sgd", "learning_rate": 0.05, "regularization": 0.01, "epochs": 50}
    yield {"dim": 64, "optimizer": "sgd", "learning_rate": 0.2, "regularization": 0.02} | linear
    for rate, ridge in ((0.03, 0.002), (0.03, 0.005), (0.03, 0.02), (0.01, 0.005), (0.1, 0.005), (0.1, 0.02)):
        yield {"dim": 128, "learning_rate": rate, "regularization": ridge} | adagrad
    for dim, ridge in itertools.product((64, 256), (0.005, 0.02)):
        yield {"dim": dim, "learning_rate": 0.03, "regularization": ridge} | adagrad
    for dim in (128, 256):
        yield {"dim": dim, "learning_rate": 0.03, "regularization": 0.01} | adagrad | {"epochs": 10}
    for rate, ridge in ((0.1, 0.02), (0.2, 0.01), (0.2, 0.02)):
        yield {"dim": 128, "optimizer": "sgd", "learning_rate": rate, "regularization": ridge} | svd | linear
    yield {"dim": 128, "optimizer": "adam", "learning_rate": 0.003, "regularization": 0.01} | svd | linear
    yield {"dim": 128, "optimizer": "adagrad", "learning_rate": 0.1, "regularization": 0.01} | linear
    yield {"dim": 128, "learning_rate": 0.03, "regularization": 0.005} | adagrad | {"init_scale": 0.3}


def warp() -> Iterator[Settings]:
    """20 settings that are the same on all data; the first are those of before, the default is one of them."""
    svd, linear = {"init": "svd", "init_scale": 1.0}, {"schedule": "linear", "epochs": 20}
    yield {"dim": 64, "optimizer": "adagrad", "learning_rate": 0.05, "epochs": 50}
    for dim, rate in itertools.product((64, 128), (0.01, 0.03, 0.1)):
        yield {"dim": dim, "learning_rate": rate} | svd | linear
    for rate, ridge in ((0.01, 0.002), (0.03, 0.002), (0.03, 0.01)):
        yield {"dim": 128, "learning_rate": rate, "regularization": ridge} | svd | linear
    for rate in (0.03, 0.1):
        yield {"dim": 64, "learning_rate": rate} | linear
    for rate in (0.003, 0.01, 0.03):
        yield {"dim": 256, "learning_rate": rate} | svd | linear
    for epochs in (5, 10):
        yield {"dim": 128, "learning_rate": 0.02} | svd | linear | {"epochs": epochs}
    yield {"dim": 128, "optimizer": "sgd", "learning_rate": 0.01} | svd | linear
    for scale in (0.3, 2.0):
        yield {"dim": 128, "learning_rate": 0.03} | svd | linear | {"init_scale": scale}


def adaptive_bpr() -> Iterator[Settings]:
    """The settings of before, and some that begin at singular vectors."""
    yield {"dim": 64, "epochs": 50}
    for rate, ridge in ((0.03, 0.01), (0.01, 0.01), (0.03, 0.02), (0.03, 0.005), (0.01, 0.005), (0.1, 0.02)):
        yield {"dim": 256, "learning_rate": rate, "regularization": ridge} | FROM_VECTORS | {"epochs": 10}
    yield {"dim": 128, "learning_rate": 0.03, "regularization": 0.01} | FROM_VECTORS | {"epochs": 10}
    for ridge in (0.01, 0.02):
        yield {"dim": 256, "learning_rate": 0.03, "regularization": ridge} | FROM_VECTORS | {"epochs": 20}


def lambda_mf() -> Iterator[Settings]:
    """The same for a loss with small weights."""
    yield {"dim": 64, "epochs": 50}
    rates = (
        *((0.03, 0.001), (0.01, 0.001), (0.03, 0.0001), (0.01, 0.0001), (0.03, 0.003), (0.1, 0.001), (0.01, 0.0003)),
        *((0.03, 0.00003), (0.02, 0.0001), (0.02, 0.00005), (0.01, 0.00003)),
    )
    for rate, ridge in rates:
        yield {"dim": 256, "learning_rate": rate, "regularization": ridge} | FROM_VECTORS | {"epochs": 10}
    for rate, ridge in ((0.01, 0.001), (0.01, 0.0001), (0.02, 0.0001)):
        yield {"dim": 256, "learning_rate": rate, "regularization": ridge} | FROM_VECTORS | {"epochs": 20}


def pointwise() -> Iterator[Settings]:
    """The same for pointwise losses."""
    yield {"dim": 64, "epochs": 50}
    rates = (
        *((0.03, 0.01), (0.01, 0.01), (0.03, 0.003), (0.01, 0.003), (0.03, 0.03), (0.1, 0.01), (0.1, 0.03)),
        *((0.02, 0.02), (0.02, 0.03)),
    )
    for rate, ridge in rates:
        yield {"dim": 256, "learning_rate": rate, "regularization": ridge} | FROM_VECTORS | {"epochs": 10}
    for rate, ridge in ((0.03, 0.01), (0.03, 0.003), (0.05, 0.01), (0.02, 0.02)):
        yield {"dim": 256, "learning_rate": rate, "regularization": ridge} | FROM_VECTORS | {"epochs": 20}
    yield {"dim": 256, "learning_rate": 0.03, "regularization": 0.01} | FROM_VECTORS | {"epochs": 40}


FROM_VECTORS: Settings = {"optimizer": "adagrad", "init": "svd", "init_scale": 1.0, "schedule": "linear"}
GRIDS = {
    "IALS": ials,
    "BPR": bpr,
    "WARP": warp,
    "AdaptiveBPR": adaptive_bpr,
    "LambdaMF": lambda_mf,
    "LogisticMF": pointwise,
    "HingeMF": pointwise,
    "SquareMF": pointwise,
}
OTHERS = ("AdaptiveBPR", "LambdaMF", "LogisticMF", "HingeMF", "SquareMF")
SAMPLED = PLAIN_SGD | {"learning_rate": 0.05, "regularization": 0.01}  # what these grids mean where they name nothing
UNNAMED: dict[str, Settings] = {
    "IALS": {},
    "WARP": SAMPLED | {"regularization": 0.0, "optimizer": "adagrad"},
    "LambdaMF": SAMPLED | {"learning_rate": 0.5, "regularization": 0.001},
}


def default_of(kind: str) -> Settings:
    """The settings of a grid that are the recommender's own."""
    import shortlist as sl

    defaults = getattr(sl, kind)().settings()
    for settings in GRIDS[kind]():
        if defaults | UNNAMED.get(kind, SAMPLED) | settings == defaults:
            return settings
    raise SystemExit(f"none of the settings that the study tries is {kind}()")


def filled(settings: Settings, part: Part) -> Settings:
    """The settings, where one is a rule for the data, with its value: "10*n/I" is 10 · mean history / items."""
    n_contexts, n_items = (int(size) for size in part["shape"])
    known = {"n": len(part["indices"]) / n_contexts, "1": 1.0}
    values = dict(settings)
    if isinstance(rule := settings.get("unobserved_weight"), str):
        constant, _, of = rule.removesuffix("/I").partition("*")
        values["unobserved_weight"] = float(constant) * known[of] / n_items
    return values
