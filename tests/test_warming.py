"""After warming up, nothing is compiled: neither by another process nor on other data."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import shortlist as sl
from shortlist.recommenders.registry import REGISTRY
from shortlist.warming import _templates

SESSION = """
import json, sys, tempfile, warnings
from pathlib import Path
import numpy as np
from numba.core.event import Listener, register
import shortlist as sl
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.registry import recommender_class

warnings.simplefilter("ignore")
kernels = []

class Compiled(Listener):
    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        kernels.append(f"{function.__module__}.{function.__name__}{[str(one) for one in event.data['args']]}")
    def on_end(self, event):
        pass

register("numba:compile", Compiled())
rng = np.random.default_rng(1)
users, items = rng.integers(0, 200, 3000), rng.zipf(1.4, 3000) % 120
def events(**columns):
    frame = {"who": users, "what": [f"no. {one}" for one in items], **columns}
    more = {name: name for name in columns if name != "day"}
    context = ["who", "day"] if "day" in columns else "who"
    return sl.Interactions.from_frame(frame, context=context, item="what", **more)
plain = sl.splits.at_random(events(), 0.2)
timed = sl.splits.by_time(events(weight=rng.integers(1, 9, 3000), time=rng.permutation(3000)), 0.1)
days = sl.splits.at_random(events(day=[f"day {one}" for one in users % 7]), 0.2)

def session(model, split, features):
    fit = dict(progress=False, **features)
    model.fit(split.train, **(fit | dict(validation=split, metric="ndcg@7") if model.learns_in_epochs else fit))
    known = split.train.contexts.ids()[:30]
    histories = [split.train.history(one) for one in known]
    items = split.train.items.ids()
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        loaded = sl.load(Path(folder) / "model")
        for one in (model, loaded):
            sl.evaluate(one, split)
            sl.evaluate(one, split, ["recall@10", "ndcg@30", "mrr"])
            one.recommend(known)
            one.recommend(known[:1], n=50, deny=items[:4])
            one.recommend(history=histories)
            one.recommend(history=[{items[3]: 2.5}], n=30)
            for slate in sl.slates.SLATES.values():
                one.recommend(known, slate=slate(0.3))
            sl.write_lists(one, Path(folder) / "lists.parquet", n=20, progress=False, overwrite=True)
            if isinstance(one, DotProduct):
                for kind in ("auto", "quantized"):
                    index = one.index(kind, n=10, progress=False)
                    index.search(known)
                    index.search(history=histories, deny=items[:4])
                state = sl.UserState(one, histories[0][:3])
                state.add(items[5])
                state.recommend(index=index)

for name in json.loads(sys.argv[1]):
    kind = recommender_class(name)
    for split in (plain, timed, days):
        for settings in ({}, {"weighting": "log"}) if hasattr(kind, "weighting") and split is timed else ({},):
            session(kind(**settings, **({"epochs": 2} if kind.learns_in_epochs else {})), split, {})
    if kind.uses_features:
        frame = {"what": [f"no. {one}" for one in range(120)], "colour": [f"c{one % 5}" for one in range(120)]}
        features = sl.Features.from_frame(frame, id="what", categorical="colour")
        session(kind(epochs=2), plain, {"item_features": features})
print(json.dumps(kernels))
"""


def told_by(code, names, environment):
    command = [sys.executable, "-c", code, json.dumps(names)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=3000, check=True)
    return json.loads(done.stdout)


def compiled_in_a_session(names, environment):
    """The kernels that a process compiles which does with these recommenders what users do."""
    return told_by(SESSION, names, environment)


@pytest.mark.slow
def test_nothing_is_left_to_compile_for_any_recommender(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    code = "import json, sys, shortlist as sl; print(sum(o.kernels for o in sl.warm_up(json.loads(sys.argv[1]))))"
    assert told_by(code, sorted(REGISTRY), environment) > 20
    assert compiled_in_a_session(sorted(REGISTRY), environment) == []


def test_what_may_be_named():
    class Own(sl.Popularity):
        pass

    given = ["ials", sl.BPR, sl.IALS(dim=3, solver="exact", epochs=50), Own()]
    ials, bpr, exact, own = _templates(given)
    assert [type(one) for one in (ials, bpr, exact, own)] == [sl.IALS, sl.BPR, sl.IALS, Own]
    assert (exact.dim, exact.solver, exact.epochs, bpr.epochs) == (3, "exact", 2, 2)
    assert given[2].epochs == 50
    assert [type(one).__name__ for one in _templates(None)] == sorted(REGISTRY)
    assert [type(one) for one in _templates("popularity")] == [sl.Popularity]
    with pytest.raises(sl.SettingError, match="unknown recommender"):
        _templates(["nonsense"])
    with pytest.raises(sl.SettingError, match="models is 3; expected names"):
        sl.warm_up(3)
    with pytest.raises(sl.SettingError, match="models has 3; expected names"):
        _templates([3])
