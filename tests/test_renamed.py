"""Old public names work for one more version, with a warning; saved models with old names load without one."""

from __future__ import annotations

import inspect
import warnings
from importlib import import_module

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import shortlist as sl
from recommenders.factorizations import events
from shortlist import _renamed
from shortlist.cli import app

SMALL = {"dim": 3, "epochs": 2}
NAMES = [
    (module if module == "shortlist" else f"shortlist.{module}", old, new)
    for module, table in _renamed.NAMES.items()
    for old, new in table.items()
]


@pytest.mark.parametrize(("module", "old", "new"), NAMES)
def test_names_of_modules(module, old, new):
    with pytest.warns(sl.ShortlistWarning, match=f"{old} is now called .*{new}"):
        assert getattr(import_module(module), old) is getattr(import_module(module), new)


@pytest.mark.parametrize("module", sorted({module for module, _, _ in NAMES}))
def test_names_that_never_were(module):
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = import_module(module).nonsense


def test_constructors():
    with pytest.warns(sl.ShortlistWarning, match="horizon of BPR is now called schedule_epochs"):
        model = sl.BPR(**SMALL, horizon=7)
    assert model.schedule_epochs == 7
    assert "horizon" not in model.settings()
    with pytest.warns(sl.ShortlistWarning, match="same_side_pairs"):
        assert sl.FactorizationMachine(within=False).same_side_pairs is False
    with pytest.raises(sl.SettingError, match="BPR has no setting 'within'"):
        sl.BPR(within=False)  # not a setting of this model, under any name


def test_settings_that_are_unknown_or_have_no_name():
    with pytest.raises(sl.SettingError, match=r"IALS has no setting 'dimm'; did you mean 'dim'\?"):
        sl.IALS(dimm=3)
    with pytest.raises(sl.SettingError, match="EASE has no setting 'size'; it has regularization, weighting"):
        sl.EASE(size=3)
    with pytest.raises(sl.SettingError, match="IALS takes settings by name only: pass dim=…, for example; got 64"):
        sl.IALS(64)


@pytest.mark.parametrize("name", ["index", "fold_in", "fold_in_items"])
def test_methods_of_models_with_embeddings(name):
    with pytest.raises(AttributeError, match=f"EASE has no embeddings, so it has no {name}; use recommend"):
        getattr(sl.EASE(), name)
    assert not hasattr(sl.EASE(), name)
    assert hasattr(sl.IALS(), name)


def test_both_names_at_once():
    with pytest.raises(sl.SettingError, match=r"the old and the new name of one setting; pass schedule_epochs alone"):
        sl.BPR(horizon=7, schedule_epochs=8)


def test_reading_old_attributes():
    with pytest.warns(sl.ShortlistWarning, match="BPR.horizon is now called schedule_epochs"):
        assert sl.BPR(schedule_epochs=7).horizon == 7
    with pytest.warns(sl.ShortlistWarning, match="recipe"):
        assert sl.BPR().composition() == sl.BPR().recipe()
    result = sl.Evaluation("A", "all", pl.DataFrame({"user": [1, 2]}), {"hit@5": np.array([0.0, 1.0])})
    with pytest.warns(sl.ShortlistWarning, match="Evaluation.figure is now called text"):
        assert result.figure("hit@5") == result.text("hit@5") == "0.5000 ± 0.5000"
    with pytest.raises(AttributeError, match="'Evaluation' object has no attribute 'nonsense'"):
        _ = result.nonsense
    with pytest.raises(AttributeError, match="'IALS' object has no attribute 'horizon'"):
        _ = sl.IALS().horizon


def test_signatures_are_those_of_the_constructors():
    assert "schedule_epochs" in inspect.signature(sl.BPR).parameters
    assert list(inspect.signature(sl.IALS).parameters) == list(sl.IALS().settings())


def test_parts_as_text():
    with pytest.warns(sl.ShortlistWarning, match="Everything is now called AllItems"):
        model = sl.MatrixFactorization(**SMALL, objective="Softmax()", sampler="Everything()")
    assert model.settings()["sampler"].startswith("AllItems(")


def test_metrics():
    split = sl.splits.by_time(events(), test=0.2, repeats="drop")
    model = sl.Popularity().fit(split.train)
    with pytest.warns(sl.ShortlistWarning, match="untrained is now called cold_share"):
        result = sl.evaluate(model, split, "untrained@5")
    assert list(result) == ["cold_share@5"]


def test_settings_of_an_index():
    pytest.importorskip("faiss")
    model = sl.IALS(dim=4, epochs=2).fit(events())
    with pytest.warns(sl.ShortlistWarning, match="breadth of HNSWIndex is now called ef_search"):
        index = model.index("hnsw", breadth=40)
    assert "ef_search=40" in repr(index)


def test_the_command_line(tmp_path):
    events().to_polars().write_csv(tmp_path / "events.csv")
    command = ["fit", str(tmp_path / "events.csv"), "--context", "user", "--item", "product", "--model", "bpr"]
    command += ["--set", "dim=3", "--set", "epochs=2", "--set", "horizon=5", "--out", str(tmp_path / "m")]
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "warning: the setting horizon of BPR is now called schedule_epochs" in done.stderr
    assert sl.load(tmp_path / "m").schedule_epochs == 5


def test_old_models_load_in_silence(tmp_path):
    """The golden tests load models that an earlier version saved; here the old names are put into a new one."""
    from shortlist.storage import load_model, save_model

    model = sl.MatrixFactorization(**SMALL, objective="Softmax()", sampler="AllItems()", schedule="linear").fit(
        events()
    )
    model.save(tmp_path / "new")
    stored = load_model(tmp_path / "new")
    stored.settings["horizon"] = stored.settings.pop("schedule_epochs")
    stored.settings["sampler"] = stored.settings["sampler"].replace("AllItems", "Everything")
    save_model(tmp_path / "old", stored)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        old = sl.load(tmp_path / "old")
    assert old.settings() == model.settings()
    np.testing.assert_array_equal(old.item_embeddings_, model.item_embeddings_)
