"""Two stages on disk: the same answers again, code that must be passed again, and forgeries."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from contextlib import suppress

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from reranking.worlds import Linear, events
from shortlist.data.mapped_ids import frame_of
from shortlist.storage import load_model, save_model

pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def split():
    return sl.splits.by_time(events(), 0.3)


@pytest.fixture(scope="module")
def two(split):
    return sl.TwoStage(
        sl.IALS(dim=5, epochs=3).fit(split.train),
        sl.LambdaMART(trees=6, min_leaf=3),
        candidates=12,
        models=[sl.EASE().fit(split.train), sl.ItemKNN().fit(split.train)],
        item_features=pl.DataFrame({"product": [1, 2, 3], "price": [1.0, 2.5, None], "kind": ["a", "b", "a"]}),
        context_features=pl.DataFrame({"user": ["u1", "u2"], "age": [30.0, 40.0]}),
    ).fit(split)


def answers(two):
    found = two.recommend(["u1", "u5"], n=20), two.recommend(history=[[1, 2]], n=20)
    return [(one.ids, [scores.tolist() for scores in one.scores]) for one in found]


def test_there_and_back(two, split, tmp_path):
    two.save(tmp_path / "two")
    for again in (sl.load(tmp_path / "two"), sl.TwoStage.load(tmp_path / "two")):
        assert answers(again) == answers(two)
        assert repr(again) == repr(two)
        assert again.reranker_state.clicks == two.reranker_state.clicks
        assert again.feature_names_ == two.feature_names_
        assert again.reranker.importance().equals(two.reranker.importance())
        with pytest.warns(sl.ShortlistWarning, match="held-out pairs of this split"):
            sl.evaluate(again, split, "ndcg@5")
    two.save(tmp_path / "two")  # over itself
    assert answers(sl.load(tmp_path / "two")) == answers(two)


def test_what_could_not_be_loaded_is_not_saved_over_a_good_model(split, tmp_path):
    first = sl.BPR(dim=4, epochs=2).fit(split.train)
    two = sl.TwoStage(first, sl.LambdaMART(trees=2, min_leaf=3), candidates=12).fit(split)
    two.save(tmp_path / "two")
    before = answers(sl.load(tmp_path / "two"))
    vars(first)["dim"] = 3  # settings of a fitted model cannot be set
    with pytest.raises(sl.StorageError, match=r"this TwoStage: array item_embeddings_ .*; fit it again"):
        two.save(tmp_path / "two")
    assert answers(sl.load(tmp_path / "two")) == before


def test_what_is_loaded_knows_when_its_reranker_is_fitted_elsewhere(two, split, tmp_path):
    two.save(tmp_path / "two")
    again = sl.load(tmp_path / "two")
    sl.TwoStage(again.first, again.reranker, candidates=12).fit(split)
    with pytest.raises(sl.SettingError, match="fitted again by another TwoStage"):
        again.recommend(["u1"])
    assert two.recommend(["u1"]).ids


def test_answering_needs_no_lightgbm(two, tmp_path):
    two.save(tmp_path / "two")
    code = (
        "import sys; sys.modules['lightgbm'] = None\n"
        "import shortlist as sl\n"
        f"print(sl.load({str(tmp_path / 'two')!r}).recommend(['u1'], n=3).ids)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(two.recommend(["u1"], n=3).ids)


def test_code_is_passed_again(split, tmp_path):
    def extra(candidates):
        return {"twice": 2 * candidates.ranks}

    mine = Linear()
    two = sl.TwoStage(sl.EASE().fit(split.train), mine, candidates=9, extra=extra).fit(split)
    two.save(tmp_path / "two")
    with pytest.raises(sl.SettingError, match="reranker is Python code, which is not stored"):
        sl.load(tmp_path / "two")
    with pytest.raises(sl.SettingError, match=r"extra is Python code.*TwoStage.load\(path, extra="):
        sl.TwoStage.load(tmp_path / "two", reranker=mine)
    assert answers(sl.TwoStage.load(tmp_path / "two", reranker=mine, extra=extra)) == answers(two)
    plain = sl.TwoStage(sl.EASE().fit(split.train), sl.LambdaMART(trees=2), candidates=9).fit(split)
    plain.save(tmp_path / "plain")
    for wrong, told in (
        ({"reranker": Linear}, "with the methods fit and score"),
        ({"extra": 3}, "expected a function"),
    ):
        with pytest.raises(sl.SettingError, match=told):
            sl.TwoStage.load(tmp_path / "two", **{"reranker": mine, "extra": extra} | wrong)
    with pytest.raises(sl.SettingError, match="load it without extra="):
        sl.TwoStage.load(tmp_path / "plain", extra=extra)
    two.first.save(tmp_path / "first")
    with pytest.raises(sl.StorageError, match="holds a 'EASE', not a TwoStage"):
        sl.TwoStage.load(tmp_path / "first")


def test_nothing_unfitted_is_saved(split, tmp_path):
    with pytest.raises(sl.NotFittedError):
        sl.TwoStage(sl.EASE().fit(split.train)).save(tmp_path / "two")
    assert not (tmp_path / "two").exists()


def without(stored, kind, name):
    getattr(stored, kind).pop(name)


def other_array(stored, name, change):
    stored.arrays[name] = change(stored.arrays[name].copy())


FORGERIES = {
    "no trees": lambda s: without(s, "arrays", "reranker.left"),
    "no gains": lambda s: without(s, "arrays", "reranker.gains"),
    "no names": lambda s: without(s, "tables", "feature_names"),
    "no digests": lambda s: without(s, "arrays", "pairs"),
    "no stage one": lambda s: without(s, "arrays", "first.item_embeddings_"),
    "no items": lambda s: without(s, "tables", "first.items"),
    "no further model": lambda s: without(s, "tables", "model0.items"),
    "a way back": lambda s: other_array(s, "reranker.left", np.zeros_like),
    "a feature that is not there": lambda s: other_array(s, "reranker.feature", lambda a: a + 1000),
    "digests of floats": lambda s: other_array(s, "pairs", lambda a: a.astype(np.float64)),
    "an extra array": lambda s: s.arrays.update({"more": np.zeros(3)}),
    "an extra array of the reranker": lambda s: s.arrays.update({"reranker.more": np.zeros(3)}),
    "another reranker": lambda s: s.settings["reranker"].update(kind="os.system"),
    "another stage one": lambda s: s.settings["first"].update(kind="TwoStage"),
    "a stage one of no name": lambda s: s.settings["first"].update(kind=7),
    "a stage one without settings": lambda s: s.settings["first"].update(settings=[]),
    "a stage one that is none": lambda s: s.settings.update(first="IALS"),
    "extra facts that are none": lambda s: s.settings["first"].update(extra=None),
    "settings that make no sense": lambda s: s.settings["reranker"]["settings"].update(leaves=-1),
    "settings that are not there": lambda s: s.settings["reranker"]["settings"].update(command="rm"),
    "no candidates": lambda s: s.settings.update(candidates=0),
    "a missing key": lambda s: s.settings.pop("models"),
    "models of another kind": lambda s: s.settings.update(models=3),
    "counts that are none": lambda s: s.settings.update(training={"lists": "many"}),
    "clicks that are none": lambda s: s.settings.update(clicks=1),
    "features of another width": lambda s: s.tables.update(
        {"item_features.fields": s.tables["item_features.fields"][:-1]}
    ),
    "other names": lambda s: s.tables.update(feature_names=s.tables["feature_names"].with_columns(name=pl.lit("x"))),
    "names of numbers": lambda s: s.tables.update(feature_names=pl.DataFrame({"name": [1]})),
}


UNKNOWN_KINDS = ("another reranker", "another stage one")


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forgeries_are_refused(two, tmp_path, forgery):
    """Signed anew, so that only what is inside is wrong."""
    two.save(tmp_path / "two")
    stored = load_model(tmp_path / "two")
    stored.tables.update({name: frame_of(table) for name, table in stored.tables.items()})
    FORGERIES[forgery](stored)
    save_model(tmp_path / "forged", stored)
    with pytest.raises(sl.StorageError, match="forged") as caught:
        sl.load(tmp_path / "forged")
    assert caught.value.code == ("model-unsupported" if forgery in UNKNOWN_KINDS else "model-damaged")


def test_damaged_files_give_an_answer_or_an_error(two, tmp_path):
    """Without verification, with other bytes anywhere in the arrays and tables."""
    two.save(tmp_path / "two")
    rng = random.Random(0)
    files = [path for path in sorted((tmp_path / "two").iterdir()) if path.name != "manifest.json"]
    answered = 0
    for _ in range(200):
        path = rng.choice([files[0], *files])  # the first has all arrays
        whole = path.read_bytes()
        altered = bytearray(whole)
        for _ in range(rng.choice([1, 4, 50])):
            altered[rng.randrange(len(whole))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        path.unlink()  # a file is never changed in place
        path.write_bytes(altered)
        with suppress(sl.ShortlistError), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            damaged = sl.load(tmp_path / "two")
            damaged.recommend(["u1", "u2"], n=3, threads=1).to_polars()
            damaged.recommend(history=[[1, 2]], n=3, threads=1).to_polars()
            answered += 1
        path.write_bytes(whole)
    assert 20 < answered < 200
