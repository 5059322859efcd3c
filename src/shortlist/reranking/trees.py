"""Decision trees as arrays: grown by LightGBM, kept and walked without it.

So a model that is loaded needs no parser of another library's format, and nothing but its own checks stands between a
file and the kernel that walks the trees.
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
_ROWS = 4096  # in a chunk
TINY = float(np.float32(1e-35))  # what LightGBM takes for 0
_NAN = 2 << 2  # LightGBM's decision types: 1 categorical, 2 the missing go left, 4 and 8 what is missing


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees one after the other. A row goes left at a node where its feature is at most the threshold.

    Attributes:
        node_starts: where each tree's nodes begin, and the end: (trees + 1,).
        leaf_starts: likewise its leaves; a tree has one leaf more than it has nodes.
        feature: of each node the feature that it looks at.
        threshold: what it compares the feature with.
        left: the node, counted within the tree, for rows that go left; −1 − k for leaf k.
        right: likewise for the others.
        missing: where NaN goes: 0 right, 1 left, 2 as the number 0 does (there was no NaN to learn from).
        value: what each leaf adds to the score.
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
        """The sum over all trees for each row of features."""
        out = np.zeros(len(features), np.float64)
        features = np.ascontiguousarray(features, dtype=np.float32)
        arrays: Any = tuple(self.arrays().values())  # in the order of the kernel's arguments

        def walk(start: int, stop: int) -> None:
            add_scores(features[start:stop], out[start:stop], *arrays)

        chunks = [(start, min(start + _ROWS, len(out))) for start in range(0, len(out), _ROWS)]
        run_chunks(walk, chunks, thread_count(threads))
        return out

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All of them by name, as they are stored."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], n_features: int) -> Trees:
        """Trees from arrays of a file; StorageError where they are not trees over so many features."""
        names = [one.name for one in fields(cls)]
        if sorted(arrays) != sorted(names):
            raise StorageError(f"the trees have the arrays {sorted(arrays)}; expected {sorted(names)}")
        found = cls(**{name: arrays[name].copy() for name in names})
        if trouble := found._trouble(n_features):
            raise StorageError(f"the trees cannot be used: {trouble}")
        return found

    def _trouble(self, n_features: int) -> str | None:
        types = dict.fromkeys(self.arrays(), np.int32) | {"threshold": np.float64, "value": np.float64}
        types["missing"] = np.int8  # type: ignore[assignment]
        for name, array in self.arrays().items():
            if array.dtype != types[name] or array.ndim != 1:
                return f"{name} is {array.dtype} {array.shape}; expected {np.dtype(types[name])} in one dimension"
        nodes = len(self.feature)
        for name, starts, n in (("node", self.node_starts, nodes), ("leaf", self.leaf_starts, len(self.value))):
            if not len(starts) or starts[0] != 0 or starts[-1] != n or (starts[1:] < starts[:-1]).any():
                return f"the {name}s of {len(starts) - 1} trees do not begin where they should"
        sizes = np.diff(self.node_starts)
        if len(self.node_starts) != len(self.leaf_starts) or (np.diff(self.leaf_starts) != sizes + 1).any():
            return "a tree has not one leaf more than it has nodes"
        if any(len(one) != nodes for one in (self.threshold, self.left, self.right, self.missing)):
            return "the nodes have not as many features as thresholds, ways and places for NaN"
        if nodes and not (0 <= self.feature.min() <= self.feature.max() < n_features):
            return f"a node looks at feature {self.feature.max()}; expected 0 to {n_features - 1}"
        if nodes and not (0 <= self.missing.min() <= self.missing.max() <= 2):
            return "a node sends NaN to where there is nothing"
        if not (np.isfinite(self.threshold).all() and np.isfinite(self.value).all()):
            return "a threshold or a leaf is not finite"
        with np.errstate(over="ignore"):
            largest = np.maximum.reduceat(np.abs(self.value), self.leaf_starts[:-1]).sum() if len(self) else 0.0
        if not largest <= np.finfo(np.float32).max:
            return f"scores could reach {largest:.2g}, float32 ends at 3.4e+38"
        # Ways lead forward only, so that every walk ends.
        own = np.arange(nodes) - np.repeat(self.node_starts[:-1], sizes)
        size_of = np.repeat(sizes, sizes)
        for ways in (self.left.astype(np.int64), self.right.astype(np.int64)):
            node = ways >= 0
            if (node & ((ways <= own) | (ways >= size_of))).any() or (~node & (-1 - ways > size_of)).any():
                return "a way leads back, or out of its tree"
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
    """Add every tree's leaf to the rows' scores; `scores_numpy` is its twin.

    Bound by the latency of the walk: a few nodes a tree, each a branch that cannot be foreseen. Tree by tree, so that a
    tree's nodes stay in the nearest cache while all rows of the chunk go through it.
    """
    for t in range(len(node_starts) - 1):
        first, leaves = node_starts[t], leaf_starts[t]
        single = node_starts[t + 1] == first
        for r in range(len(X)):
            way = -1 if single else 0
            while way >= 0:
                n = first + way
                x = np.float64(X[r, feature[n]])
                if np.isnan(x):
                    goes_left = missing[n] == 1 or (missing[n] == 2 and threshold[n] >= 0.0)
                else:
                    goes_left = (0.0 if -TINY <= x <= TINY else x) <= threshold[n]
                way = left[n] if goes_left else right[n]
            out[r] += value[leaves - 1 - way]


def scores_numpy(trees: Trees, row: npt.NDArray[np.float32]) -> float:
    """NumPy twin of `add_scores`, for one row."""
    total = 0.0
    for t in range(len(trees)):
        nodes = slice(trees.node_starts[t], trees.node_starts[t + 1])
        leaves = trees.value[trees.leaf_starts[t] : trees.leaf_starts[t + 1]]
        way = 0 if nodes.stop > nodes.start else -1
        while way >= 0:
            feature, threshold, missing = (
                getattr(trees, name)[nodes][way] for name in ("feature", "threshold", "missing")
            )
            x = float(row[feature])
            if np.isnan(x) and missing == 2:
                x = 0.0
            x = 0.0 if abs(x) <= TINY else x
            goes_left = missing == 1 if np.isnan(x) else x <= threshold
            way = int((trees.left if goes_left else trees.right)[nodes][way])
        total += float(leaves[-1 - way])
    return total


def from_lightgbm(text: str) -> Trees:
    """The trees in LightGBM's own text, as `Booster.model_to_string` has just made it."""
    parts: dict[str, list[npt.NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "missing", "value")
    }
    for block in text.split("\nTree=")[1:]:
        said = dict(line.split("=", 1) for line in block.partition("\n\n")[0].splitlines()[1:] if "=" in line)
        if said.get("num_cat") != "0" or said.get("is_linear", "0") != "0":
            raise ValueError("LightGBM grew a tree of a kind that was not asked for")

        def numbers(name: str, dtype: Any, said: dict[str, str] = said) -> npt.NDArray[Any]:
            return np.array(said.get(name, "").split(), dtype=dtype)

        kinds = numbers("decision_type", np.int64)
        if ((kinds & 4) != 0).any():
            raise ValueError("LightGBM took zeros for missing values, which was not asked for")
        parts["feature"].append(numbers("split_feature", np.int32))
        parts["threshold"].append(numbers("threshold", np.float64))
        parts["left"].append(numbers("left_child", np.int32))
        parts["right"].append(numbers("right_child", np.int32))
        parts["missing"].append(np.where(kinds & _NAN, (kinds & 2) != 0, 2).astype(np.int8))
        parts["value"].append(numbers("leaf_value", np.float64))

    def starts(lists: list[npt.NDArray[Any]]) -> Ints:
        return np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int32)

    empty = {"threshold": np.float64, "value": np.float64, "missing": np.int8}
    flat = {name: np.concatenate([np.empty(0, empty.get(name, np.int32)), *lists]) for name, lists in parts.items()}
    return Trees(starts(parts["feature"]), starts(parts["value"]), **flat)
