"""Loading: mapped, read-only, lazy; models of earlier versions; models that are replaced while they are used."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import mmap
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from numba.core.registry import CPUDispatcher

import shortlist as sl
from golden.subjects import HERE, SAVED, answers, two_stage_answers
from shortlist._kernel_views import for_kernels
from shortlist._numba import kernel
from shortlist.data import vocabulary
from shortlist.errors import StorageError
from shortlist.recommenders.registry import REGISTRY, recommender_class, restored
from shortlist.storage import StoredModel, read_manifest, save_model
from storage.bases import events, fit
from storage.samples import child_environment, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = HERE / "models"


def is_mapped(array: np.ndarray[Any, Any]) -> bool:
    """Return whether an array is in the memory of a mapped file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)


def learned(model: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The arrays of a model that its file has."""
    for name in model._arrays:
        yield name, getattr(model, name)
    yield "popularity_", model.popularity_


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_arrays_are_read_only_and_mapped(name: str, tmp_path: Path) -> None:
    fit(name, "weights", 1).save(tmp_path / "m")
    model = sl.load(tmp_path / "m")
    for attribute, array in learned(model):
        assert is_mapped(array), attribute
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    for array in (model.seen_.indptr, model.seen_.indices, model.seen_.values):
        assert is_mapped(array)
    model.recommend(history=[model.items_.ids()[:2]])
    assert not any(array.flags.writeable for _, array in learned(model))  # still


@pytest.mark.parametrize("name", SAVED)
def test_a_converted_model_answers_as_before(name: str, tmp_path: Path) -> None:
    sl.convert(GOLDEN / name, tmp_path / "new")
    assert (read_manifest(GOLDEN / name).format_version, read_manifest(tmp_path / "new").format_version) == (1, 2)
    before, after = (answers(sl.load(path))[0] for path in (GOLDEN / name, tmp_path / "new"))
    assert before.keys() == after.keys()
    for question in before:
        np.testing.assert_array_equal(before[question], after[question])


def test_converted_two_stages(tmp_path: Path) -> None:
    sl.convert(GOLDEN / "TwoStage", tmp_path / "new")
    before, after = (two_stage_answers(sl.load(path))["known"] for path in (GOLDEN / "TwoStage", tmp_path / "new"))
    np.testing.assert_array_equal(before, after)


def test_what_cannot_be_converted(tmp_path: Path) -> None:
    fit("IALS", "text", 1).save(tmp_path / "m")
    for target in (tmp_path / "m", tmp_path):
        with pytest.raises(StorageError, match="already exists"):
            sl.convert(tmp_path / "m", target)
    name = read_manifest(tmp_path / "m").arrays_file
    content = (tmp_path / "m" / name).read_bytes()
    (tmp_path / "m" / name).write_bytes(content[:-1] + b"?")
    with pytest.raises(StorageError, match="altered"):
        sl.convert(tmp_path / "m", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(StorageError, match="no model at"):
        sl.convert(tmp_path / "nothing", tmp_path / "new")


def test_a_model_that_is_replaced_stays_valid(tmp_path: Path) -> None:
    fit("IALS", "text", 1).save(tmp_path / "m")
    model = sl.load(tmp_path / "m")
    for version in (2, 3):
        fit("IALS", "text", version).save(tmp_path / "m")
    first = fit("IALS", "text", 1)
    contexts = first.contexts_.ids()
    assert model.contexts_.ids() == contexts
    assert model.recommend(contexts, n=3).ids == first.recommend(contexts, n=3).ids
    history = [first.items_.ids()[:3]]
    np.testing.assert_array_equal(model.fold_in(history), first.fold_in(history))


@pytest.mark.parametrize("name", ["IALS", "BPR", "ItemKNN", "FactorizationMachine"])
def test_a_loaded_model_can_be_copied_and_sent_to_another_process(name: str, tmp_path: Path) -> None:
    fit(name, "text", 1).save(tmp_path / "m")
    model = sl.load(tmp_path / "m")
    copies = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)]
    contexts, history = model.contexts_.ids(), [model.items_.ids()[:2]]
    for other in [*copies, pickle.loads(pickle.dumps(model))]:
        assert other.recommend(contexts, n=3).ids == model.recommend(contexts, n=3).ids
        assert other.recommend(history=history, n=3).ids == model.recommend(history=history, n=3).ids


def test_a_loaded_model_can_be_saved_over_itself(tmp_path: Path) -> None:
    fit("SLIM", "weights", 1).save(tmp_path / "m")
    model = sl.load(tmp_path / "m")
    before = model.recommend(model.contexts_.ids(), n=3).scores
    model.save(tmp_path / "m")
    for again in (model, sl.load(tmp_path / "m", verify=True)):
        np.testing.assert_array_equal(again.recommend(again.contexts_.ids(), n=3).scores, before)


def _use(model: Any) -> None:
    """Call everything that answers."""
    contexts, items = model.contexts_.ids(), model.items_.ids()
    model.recommend(contexts[:1], n=3, slate=sl.slates.MMR(0.5)).to_polars()
    model.recommend(contexts * 3, n=3, deny=items[:1], threads=1)
    model.recommend(history=[items[:2], {items[0]: 2.0}, [], *([items[1:3]] * 8)], n=3, threads=1)
    model.rank(contexts[:2], [items[:2]] * 2, exclude_seen=True, threads=1)
    model.score(contexts[:2], [items[:2]] * 2)
    with contextlib.suppress(sl.SettingError):
        model.similar_items(items[:6], n=2, threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        split = sl.splits.at_random(events("text", 1), test=0.3)
        sl.evaluate(model, split, ["ndcg@3", "popularity@3"], threads=1)
    if isinstance(model, sl.DotProduct):
        model.index("exact", threads=1).search(contexts, n=2)
        model.index("quantized", threads=1, progress=False).search(contexts, n=2)
        with contextlib.suppress(sl.SettingError):
            model.fold_in_items([contexts[:2]], threads=1)
        if hasattr(model, "explain"):
            model.explain(contexts[0], items[0])
        if model.learns_in_epochs:
            fresh = type(model)(**model.settings())
            fresh.fit(events("text", 1), start=model, threads=1, progress=False)
        state = sl.UserState(model, history=items[:2])
        state.add(items[2])
        state.recommend(n=2)
        more = pl.DataFrame({"u": ["new", "new"], "i": ["more", "other"]})
        if model.items_.dtypes == (pl.String,) and not model.contexts_.is_tuple:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if hasattr(model, "partial_fit") and model.contexts_.dtypes == (pl.String,):
                    added = sl.Interactions.from_frame(more, context="u", item="i")
                    model.partial_fit(added, epochs=1, threads=1, progress=False)


FAMILIES = ("BPR", "EASE", "FactorizationMachine", "IALS", "ItemKNN", "SoftmaxMF", "UserKNN")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAMILIES else pytest.mark.slow) for name in sorted(REGISTRY)]
)
def test_a_loaded_model_uses_the_kernels_of_a_fitted_one(name: str, tmp_path: Path) -> None:
    model = fit(name, "text", 1)
    model.save(tmp_path / "m")
    _use(model)
    before = _signatures()
    _use(sl.load(tmp_path / "m"))
    assert _signatures() - before == set()  # none is compiled again, for read-only arrays


def _signatures() -> set[tuple[str, Any]]:
    """The types for which each kernel has been compiled in this process."""
    kernels = [kernel for kernel in gc.get_objects() if type(kernel) is CPUDispatcher]
    return {(kernel.py_func.__qualname__, signature) for kernel in kernels for signature in kernel.signatures}


def test_read_only_arrays_would_be_noticed() -> None:
    @kernel
    def first(numbers: Any) -> Any:
        return numbers[0]

    numbers = np.zeros(1, np.int32)
    assert first(numbers) == 0
    before = _signatures()
    assert first(for_kernels(numbers)) == 0
    assert _signatures() == before
    numbers.flags.writeable = False
    assert first(numbers) == 0
    assert len(_signatures() - before) == 1


@pytest.mark.parametrize("name", ["IALS", "BPR", "SLIM", "UserKNN", "PARAFAC"])
def test_two_threads_may_use_a_loaded_model_first(name: str, tmp_path: Path) -> None:
    model = fit(name, "text", 1)
    model.save(tmp_path / "m")
    histories = [model.items_.ids()[:2]]
    expected = model.recommend(history=histories, n=4, threads=1).ids
    for _ in range(5):
        loaded = sl.load(tmp_path / "m")
        start, results = threading.Barrier(2), []

        def ask(loaded: Any = loaded, start: threading.Barrier = start, results: list[Any] = results) -> None:
            start.wait()
            results.append(loaded.recommend(history=histories, n=4, threads=1).ids)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [expected, expected]


def test_damage_is_noticed_when_it_is_used(tmp_path: Path) -> None:
    model = fit("IALS", "text", 1)
    model.save(tmp_path / "m")
    manifest = read_manifest(tmp_path / "m")
    raw = bytearray((tmp_path / "m" / manifest.arrays_file).read_bytes())
    at = bytes(raw).index(model.seen_.indices.tobytes())
    raw[at : at + 4] = (999).to_bytes(4, "little")
    replace_file(tmp_path / "m", manifest.arrays_file, bytes(raw))
    with pytest.raises(StorageError, match="the columns go from"):
        sl.load(tmp_path / "m", verify=True)
    loaded = sl.load(tmp_path / "m")
    contexts = model.contexts_.ids()
    assert loaded.recommend(contexts[1:2]).ids == model.recommend(contexts[1:2]).ids
    for ask in (lambda: loaded.recommend(contexts[:1]), lambda: loaded.seen_, lambda: loaded.fold_in([[]])):
        with pytest.raises(StorageError, match=r"do not fit its contexts and items.*the columns go from") as caught:
            ask()
        assert caught.value.code == "model-damaged"


MEMORY = """
import sys
import numpy as np
import shortlist as sl
def private():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:")) * 1024
tiny = sl.load(sys.argv[2])
tiny.recommend(["user-0"], n=5).ids
before = private()
model = sl.load(sys.argv[1])
total = sum(float(getattr(model, name).sum()) for name in model._arrays) + model.seen_.indices.sum()
for k in range(100):
    model.recommend([f"user-{k}"], n=5).to_polars()
print(private() - before)
"""


def _write(path: Path, n_contexts: int, n_items: int) -> int:
    rng = np.random.default_rng(0)
    arrays = {
        "context_embeddings_": rng.random((n_contexts, 64), dtype=np.float32),
        "item_embeddings_": rng.random((n_items, 64), dtype=np.float32),
        "seen.indptr": np.arange(n_contexts + 1),
        "seen.indices": rng.integers(0, n_items, n_contexts, dtype=np.int32),
    }
    tables = {
        "contexts": pl.DataFrame({"user": [f"user-{k}" for k in range(n_contexts)]}),
        "items": pl.DataFrame({"item": [f"item-{k}" for k in range(n_items)]}),
    }
    settings = sl.IALS(dim=64, regularization=0.01, unobserved_weight=0.1).settings()
    model = restored(StoredModel("IALS", settings, arrays, {**tables}), path, verify=False)
    save_model(path, model.to_stored())
    return read_manifest(path).total_bytes


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_processes_share_the_memory_of_a_model(tmp_path: Path) -> None:
    n_bytes = _write(tmp_path / "big", 150_000, 70_000)
    _write(tmp_path / "tiny", 10, 10)
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "big"), str(tmp_path / "tiny")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=child_environment())
    assert n_bytes > 50e6
    assert int(done.stdout) < 0.15 * n_bytes


def test_few_ids_of_a_large_vocabulary_need_neither_dictionary_nor_frame(tmp_path: Path) -> None:
    n = vocabulary._SMALL + 1
    _write(tmp_path / "m", n, 10)
    for verify in (False, True):
        model = sl.load(tmp_path / "m", verify=verify)
        answer = model.recommend(["user-17", f"user-{n - 1}"], n=3)
        assert answer.queries == ["user-17", f"user-{n - 1}"]
        assert answer.to_polars()["user"].to_list() == ["user-17"] * 3 + [f"user-{n - 1}"] * 3
        assert not {"_code_of", "_values", "_frame"} & vars(model.contexts_).keys()
        with pytest.raises(
            sl.UnknownIdError, match=rf"unknown context 'x' \(1 of 2 ids is unknown; the model knows {n:,}"
        ):
            model.recommend(["user-1", "x"])


def test_a_wrong_index_of_ids_is_refused_or_finds_nothing(tmp_path: Path) -> None:
    n = vocabulary._SMALL + 1
    _write(tmp_path / "m", n, 10)
    manifest = read_manifest(tmp_path / "m")
    model = sl.load(tmp_path / "m")
    raw = (tmp_path / "m" / manifest.arrays_file).read_bytes()
    codes = model.contexts_.index.codes.copy()  # the file is changed in place
    for wrong in (codes[::-1], codes + n, codes - n):
        changed = raw.replace(codes.tobytes(), np.ascontiguousarray(wrong).tobytes())
        replace_file(tmp_path / "m", manifest.arrays_file, changed)
        loaded = sl.load(tmp_path / "m")
        assert loaded.contexts_.encode(["user-1", "user-2"], unknown="mark").tolist() in ([-1, -1], [1, 2])
        with pytest.raises(StorageError, match="the index of contexts does not match their ids"):
            sl.load(tmp_path / "m", verify=True)


def test_manifests_say_which_format_they_have(tmp_path: Path) -> None:
    fit("Popularity", "text", 1).save(tmp_path / "m")
    assert json.loads((tmp_path / "m" / "manifest.json").read_text())["format_version"] == 2


@pytest.mark.parametrize("name", ["FeatureIALS", "FactorizationMachine"])
def test_new_items_of_a_loaded_model_with_features(name: str, tmp_path: Path) -> None:
    data = events("text", 1)
    kinds = {"product": data.items.ids(), "kind": [str(k % 3) for k in range(len(data.items))]}
    features = sl.Features.from_frame(kinds, id="product")
    model = recommender_class(name)(dim=4, epochs=2).fit(data, item_features=features, threads=1, progress=False)
    model.save(tmp_path / "m")
    loaded = sl.load(tmp_path / "m")
    contexts, history = data.contexts.ids(), [data.items.ids()[:2]]

    def answers(model: Any) -> list[Any]:
        new = model.item_features_.encode({"product": ["new"], "kind": ["1"]})
        model.add_items(new)
        lists = model.recommend(contexts, n=12, threads=1), model.recommend(history=history * 9, n=4, threads=1)
        return [scores.tolist() for answer in lists for scores in answer.scores]

    expected, before = answers(model), _signatures()
    assert answers(loaded) == expected
    assert _signatures() - before == set()
