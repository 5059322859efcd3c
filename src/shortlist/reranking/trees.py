"""Decision trees as arrays: grown by LightGBM, stored and evaluated without it.

So loading a model needs no parser for LightGBM's format. The checks in `Trees.from_arrays` protect the kernel from bad
files.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist._threads import run_chunks, thread_count
from shortlist.errors import StorageError

Ints = npt.NDArray[np.int32]
Doubles = npt.NDArray[np.float64]
_ROWS = 4096  # per chunk
TINY = float(np.float32(1e-35))  # LightGBM treats smaller numbers as 0
# Bits of LightGBM's decision_type: 1 categorical, 2 missing goes left, 4 zero is missing, 8 NaN is missing.
_NAN = 8


@dataclass(frozen=True, eq=False)
class Trees:
    """Regression trees, stored one after the other. A row goes left at a node if its feature is ≤ the threshold.

    Attributes:
        node_starts: the first node of each tree, then the number of nodes: (trees + 1,).
        leaf_starts: the first leaf of each tree, then the number of leaves. A tree has one more leaf than nodes.
        feature: for each node the column of its feature.
        threshold: for each node the value to compare the feature with.
        left: for each node its left child, numbered within the tree; −1 − k for leaf k.
        right: for each node its right child, as in `left`.
        missing: for each node where NaN goes: 0 right, 1 left, 2 like the number 0 (no NaN occurred in training).
        value: the value of each leaf.
    """

    node_starts: Ints
    leaf_starts: Ints
    feature: Ints
    threshold: Doubles
    left: Ints
    right: Ints
    missing: npt.NDArray[np.int8]
    value: Doubles

    def __len__(self) -> int:
        """The number of trees."""
        return len(self.node_starts) - 1

    def scores(self, features: npt.NDArray[np.float32], threads: int | None = None) -> Doubles:
        """Return the sum of leaf values over all trees for each row of features."""
        out = np.zeros(len(features), np.float64)
        features = np.ascontiguousarray(features, dtype=np.float32)
        arrays: Any = tuple(self.arrays().values())  # same order as the kernel's arguments

        def walk(start: int, stop: int) -> None:
            add_scores(features[start:stop], out[start:stop], *arrays)

        chunks = [(start, min(start + _ROWS, len(out))) for start in range(0, len(out), _ROWS)]
        run_chunks(walk, chunks, thread_count(threads))
        return out

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, as they are stored."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], n_features: int) -> Trees:
        """Build trees from the arrays of a file. Raise StorageError if they are not valid trees over `n_features`."""
        names = [field.name for field in fields(cls)]
        if sorted(arrays) != sorted(names):
            raise StorageError(f"the trees have the arrays {sorted(arrays)}; expected {sorted(names)}")
        trees = cls(**{name: arrays[name].copy() for name in names})
        if problem := trees._problem(n_features):
            raise StorageError(f"the trees are invalid: {problem}")
        return trees

    def _problem(self, n_features: int) -> str | None:
        """Return what is wrong with the trees, or None."""
        types = dict.fromkeys(self.arrays(), np.int32) | {"threshold": np.float64, "value": np.float64}
        types["missing"] = np.int8  # type: ignore[assignment]
        for name, array in self.arrays().items():
            if array.dtype != types[name] or array.ndim != 1:
                return f"{name} is {array.dtype} of shape {array.shape}; expected a vector of {np.dtype(types[name])}"
        nodes = len(self.feature)
        for name, starts, n in (("node", self.node_starts, nodes), ("leaf", self.leaf_starts, len(self.value))):
            if not len(starts) or starts[0] != 0 or starts[-1] != n or (starts[1:] < starts[:-1]).any():
                return f"{name}_starts does not split {n} {name}s into {len(starts) - 1} trees"
        sizes = np.diff(self.node_starts)
        if len(self.node_starts) != len(self.leaf_starts) or (np.diff(self.leaf_starts) != sizes + 1).any():
            return "a tree does not have exactly one more leaf than nodes"
        if any(len(array) != nodes for array in (self.threshold, self.left, self.right, self.missing)):
            return "feature, threshold, left, right and missing have different lengths"
        if nodes and not (0 <= self.feature.min() <= self.feature.max() < n_features):
            return f"a node uses feature {self.feature.max()}; expected 0 to {n_features - 1}"
        if nodes and not (0 <= self.missing.min() <= self.missing.max() <= 2):
            return f"missing has values from {self.missing.min()} to {self.missing.max()}; expected 0 to 2"
        if not (np.isfinite(self.threshold).all() and np.isfinite(self.value).all()):
            return "a threshold or a leaf is not finite"
        with np.errstate(over="ignore"):
            largest = np.maximum.reduceat(np.abs(self.value), self.leaf_starts[:-1]).sum() if len(self) else 0.0
        if not largest <= np.finfo(np.float32).max:
            return f"scores could reach {largest:.2g}; float32 ends at 3.4e+38"
        # Children must have higher numbers than their parents, so that every walk ends.
        parent = np.arange(nodes) - np.repeat(self.node_starts[:-1], sizes)
        size_of = np.repeat(sizes, sizes)
        for child in (self.left.astype(np.int64), self.right.astype(np.int64)):
            node = child >= 0
            if (node & ((child <= parent) | (child >= size_of))).any() or (~node & (-1 - child > size_of)).any():
                return "a child is not behind its parent, or not in its tree"
        return None


@kernel
def add_scores(
    X: npt.NDArray[np.float32],
    out: Doubles,
    node_starts: Ints,
    leaf_starts: Ints,
    feature: Ints,
    threshold: Doubles,
    left: Ints,
    right: Ints,
    missing: npt.NDArray[np.int8],
    value: Doubles,
) -> None:
    """Add each tree's leaf value to the scores of the rows. `scores_numpy` is the NumPy version.

    Bound by latency: a few nodes per tree, each a branch that cannot be predicted. The loop over trees is outside, so
    that a tree's nodes stay in the nearest cache while all rows of the chunk go through it.
    """
    for t in range(len(node_starts) - 1):
        first, leaves = node_starts[t], leaf_starts[t]
        single = node_starts[t + 1] == first
        for r in range(len(X)):
            node = -1 if single else 0
            while node >= 0:
                n = first + node
                x = np.float64(X[r, feature[n]])
                if np.isnan(x):
                    goes_left = missing[n] == 1 or (missing[n] == 2 and threshold[n] >= 0.0)
                else:
                    goes_left = (0.0 if -TINY <= x <= TINY else x) <= threshold[n]
                node = left[n] if goes_left else right[n]
            out[r] += value[leaves - 1 - node]


def scores_numpy(trees: Trees, row: npt.NDArray[np.float32]) -> float:
    """Return the score of one row. The NumPy version of `add_scores`."""
    total = 0.0
    for t in range(len(trees)):
        nodes = slice(trees.node_starts[t], trees.node_starts[t + 1])
        leaves = trees.value[trees.leaf_starts[t] : trees.leaf_starts[t + 1]]
        node = 0 if nodes.stop > nodes.start else -1
        while node >= 0:
            feature, threshold, missing = (
                getattr(trees, name)[nodes][node] for name in ("feature", "threshold", "missing")
            )
            x = float(row[feature])
            if np.isnan(x) and missing == 2:
                x = 0.0
            x = 0.0 if abs(x) <= TINY else x
            goes_left = missing == 1 if np.isnan(x) else x <= threshold
            node = int((trees.left if goes_left else trees.right)[nodes][node])
        total += float(leaves[-1 - node])
    return total


def from_lightgbm(text: str) -> Trees:
    """Parse the text format of LightGBM, as returned by `Booster.model_to_string`."""
    parts: dict[str, list[npt.NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "missing", "value")
    }
    for block in text.split("\nTree=")[1:]:
        entries = dict(line.split("=", 1) for line in block.partition("\n\n")[0].splitlines()[1:] if "=" in line)
        if entries.get("num_cat") != "0" or entries.get("is_linear", "0") != "0":
            raise ValueError("LightGBM grew a categorical or linear tree; expected numeric splits and constant leaves")

        def numbers(name: str, dtype: Any, entries: dict[str, str] = entries) -> npt.NDArray[Any]:
            return np.array(entries.get(name, "").split(), dtype=dtype)

        decisions = numbers("decision_type", np.int64)
        if ((decisions & 4) != 0).any():
            raise ValueError("LightGBM treats zeros as missing; expected only NaN to be missing")
        parts["feature"].append(numbers("split_feature", np.int32))
        parts["threshold"].append(numbers("threshold", np.float64))
        parts["left"].append(numbers("left_child", np.int32))
        parts["right"].append(numbers("right_child", np.int32))
        parts["missing"].append(np.where(decisions & _NAN, (decisions & 2) != 0, 2).astype(np.int8))
        parts["value"].append(numbers("leaf_value", np.float64))

    def starts(lists: list[npt.NDArray[Any]]) -> Ints:
        return np.concatenate([[0], np.cumsum([len(array) for array in lists])]).astype(np.int32)

    empty = {"threshold": np.float64, "value": np.float64, "missing": np.int8}
    flat = {name: np.concatenate([np.empty(0, empty.get(name, np.int32)), *lists]) for name, lists in parts.items()}
    return Trees(starts(parts["feature"]), starts(parts["value"]), **flat)
