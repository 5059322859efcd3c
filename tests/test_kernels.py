"""How kernels are compiled: no more of them, and no more often, than what is asked for needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import shortlist as sl
from shortlist._numba import kernel, lean_kernel, static

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

COUNT = """
import json, sys
from numba.core import event
import shortlist as sl

names = []


class Compiled(event.Listener):
    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        names.append(f"{function.__module__}.{function.__name__}")

    def on_end(self, event):
        pass


event.register("numba:compile", Compiled())
model = sl.load(sys.argv[1])
names.clear()
eval(sys.argv[2], {"model": model, "sl": sl})
print(json.dumps(names))
"""


def test_a_static_number_rules_branches_out():
    """The branch that is not taken would not even compile."""

    @kernel
    def chosen(which: Any, x: Any) -> Any:
        if len(which) == 1:
            return x.no_such_thing
        return 2 * x

    assert chosen(static(0), 3) == 6
    assert chosen(static(2), 3) == 6
    with pytest.raises(numba.core.errors.TypingError):
        chosen(static(1), 3)


def test_constants_do_not_compile_a_kernel_again():
    @kernel
    def doubled(x: Any) -> Any:
        return 2 * x

    @kernel
    def outer(x: Any) -> Any:
        y = 0
        for _ in range(3):
            y = doubled(y) + doubled(1)
        return y + doubled(x)

    assert outer(4) == 22
    assert len(doubled.get_overload.__self__._compiled.signatures) == 1  # as kernels call it


@pytest.mark.parametrize("python_first", [True, False])
def test_a_kernel_is_called_by_python_and_by_kernels(python_first):
    """Numba compiles it for both, as only calls from Python need a wrapper."""

    @lean_kernel
    def inner(x: Any) -> Any:
        return x + 1

    @kernel
    def outer(x: Any) -> Any:
        return inner(x)

    for call in (inner, outer) if python_first else (outer, inner):
        assert [call(1), call(2.5), call(2)] == [2, 3.5, 3]


@pytest.fixture(scope="module")
def events() -> sl.Interactions:
    rng = np.random.default_rng(0)
    pairs = {"user": rng.integers(30, size=300), "item": rng.integers(20, size=300)}
    return sl.Interactions.from_frame(pairs, context="user", item="item")


def compiled_for(question: str, model: sl.Recommender, folder: Path) -> list[str]:
    """The kernels that a fresh process with an empty cache compiles for a question to a saved model."""
    model.save(folder / "model")
    wanted = {"NUMBA_CACHE_DIR": str(folder / "kernels"), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", COUNT, str(folder / "model"), question]
    child = subprocess.run(command, env=os.environ | wanted, capture_output=True, text=True, check=True)
    names: list[str] = json.loads(child.stdout)
    return names


HISTORY = "model.recommend(history=[model.items_.ids()[:3]], n=5)"


@pytest.mark.parametrize(
    ("optimizer", "others"),
    [
        pytest.param("sgd", {"adagrad_row", "adam_row", "_adagrad_pair"}, marks=pytest.mark.slow),
        ("adagrad", {"adam_row"}),
    ],
)
def test_a_history_compiles_what_its_answer_needs(optimizer, others, events, tmp_path):
    """BPR's: its own sampler, loss form and optimizer, no others, and nothing that only a fit needs."""
    names = compiled_for(HISTORY, sl.BPR(dim=4, epochs=1, optimizer=optimizer).fit(events), tmp_path)
    assert "shortlist.solvers.sgd_kernels._run" in names
    own = [name for name in names if name.startswith("shortlist.")]
    # Of other samplers, weights and optimizers, and of fits.
    others = others | {
        *("_reject", "_look_up", "settled_adaptive", "score_candidates", "_sampled_changes"),
        *("_plain_pair", "_plain_item", "_move_item"),
        *("run_plain", "count_buckets", "fill_buckets", "_sort_by_key", "_merge_repeats"),
    }
    assert others.isdisjoint(name.rpartition(".")[2] for name in own)
    assert max(map(own.count, own)) <= 2  # for arrays of two types; constants do not count
    assert not [name for name in own if ".retrieval." in name]
    assert len(names) <= 42  # 159 with one kernel for everything


def test_search_compiles_none_of_numpys_slices(events, tmp_path):
    """Assigning an array to a slice, `np.searchsorted`, `np.full`: each is worth ten kernels of ours."""
    names = compiled_for("model.recommend(model.contexts_.ids(), n=5)", sl.EASE().fit(events), tmp_path)
    assert "shortlist.retrieval.select.select_block" in names
    assert len(names) <= 32
    assert not [name for name in names if name.startswith("numba.cpython.unicode")]


def test_a_few_contexts_compile_nothing(events, tmp_path):
    question = "model.recommend(model.contexts_.ids()[:4], n=5)"
    assert not compiled_for(question, sl.IALS(dim=4, epochs=1).fit(events), tmp_path)
