"""Batch recommendations: the lists of `recommend`, whatever happens on the way."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortlist as sl
from recommenders.factorizations import events
from shortlist.batch import list_writer as batch
from shortlist.storage.draft import Draft, folder_of


class Stopped(BaseException):
    pass


@pytest.fixture(scope="module")
def model():
    return sl.IALS(dim=5, epochs=3).fit(events())


@pytest.fixture(scope="module")
def tuples():
    rng = np.random.default_rng(0)
    frame = {"user": [f"u{k}" for k in rng.integers(0, 12, 45)], "day": rng.integers(0, 3, 45) * 10}
    frame["product"] = rng.integers(0, 15, 45)
    data = sl.Interactions.from_frame(frame, context=["user", "day"], item="product")
    return sl.PARAFAC(dim=4, epochs=3).fit(data)


def expected(model, contexts, n, block, **kw):
    """The oracle: `recommend` of each block."""
    parts = [contexts[k : k + block] for k in range(0, len(contexts), block)]
    return pl.concat([model.recommend(one, n=n, **kw).to_polars() for one in parts])


@contextmanager
def stopping_after(monkeypatch, k):
    """As if the process ended when so many blocks are written."""
    append, done = Draft.append, []

    def stop(self, content, about):
        if len(done) == k:
            raise Stopped
        append(self, content, about)
        done.append(1)

    with monkeypatch.context() as patch:
        patch.setattr(Draft, "append", stop)
        with pytest.raises(Stopped):
            yield


@pytest.mark.parametrize("block", [1, 7, 60, 1000])
@pytest.mark.parametrize("n", [1, 4, 1000])
def test_everybody(model, tmp_path, n, block):
    done = sl.write_lists(model, tmp_path / "x.parquet", n=n, block=block)
    found = pl.read_parquet(tmp_path / "x.parquet")
    everyone = model.contexts_.ids()
    assert found.equals(expected(model, everyone, n, block))
    assert found.schema == {"user": pl.Int64, "product": pl.String, "rank": pl.Int32, "score": pl.Float32}
    at_once = model.recommend(everyone, n=n).to_polars()
    assert found.drop("score").equals(at_once.drop("score"))
    np.testing.assert_allclose(found["score"], at_once["score"], rtol=1e-5, atol=1e-6)
    assert (done.contexts, done.rows, done.resumed, done.skipped) == (60, found.height, 0, [])
    assert done.short == (60 if n == 1000 else 0)
    assert done.path == tmp_path / "x.parquet"
    assert os.listdir(tmp_path) == ["x.parquet"]
    arrow = pq.ParquetFile(tmp_path / "x.parquet")
    assert pl.DataFrame(arrow.read()).equals(found)
    assert arrow.num_row_groups == -(-60 // block)


@given(
    contexts=st.lists(st.integers(0, 59), min_size=1, max_size=40),
    n=st.integers(1, 40),
    block=st.integers(1, 50),
    keep=st.booleans(),
    allow=st.none() | st.sets(st.integers(0, 31)),
    deny=st.none() | st.sets(st.integers(0, 31)),
    nested=st.booleans(),
    ending=st.sampled_from([".parquet", ".jsonl"]),
)
def test_any_question(model, contexts, n, block, keep, allow, deny, nested, ending, tmp_path_factory):
    """Against `recommend`, with filters that may leave fewer than n, or nothing."""
    path = tmp_path_factory.mktemp("any") / f"x{ending}"
    filters = {
        "exclude_seen": not keep,
        "allow": None if allow is None else [f"i{k:02}" for k in allow],  # two of them are not in the catalogue
        "deny": None if deny is None else [f"i{k:02}" for k in deny],
    }
    done = sl.write_lists(
        model, path, n, contexts=contexts, block=block, format="lists" if nested else "long", **filters
    )
    distinct = list(dict.fromkeys(contexts))
    answer = model.recommend(distinct, n=n, **filters)
    assert done.contexts == len(distinct)
    assert done.rows == sum(map(len, answer.ids))
    assert done.short == sum(len(one) < min(n, 30) for one in answer.ids)
    rows = pl.read_parquet(path).to_dicts() if ending == ".parquet" else _json_lines(path)
    if nested:
        assert [row["user"] for row in rows] == distinct
        assert [row["product"] for row in rows] == answer.ids
        for row, scores in zip(rows, answer.scores):
            np.testing.assert_allclose(row["score"], scores, rtol=1e-5, atol=1e-6)
    else:
        told = [(user, one, k) for user, ids in zip(distinct, answer.ids) for k, one in enumerate(ids, 1)]
        assert [(row["user"], row["product"], row["rank"]) for row in rows] == told


def _json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_text(model, tmp_path):
    for ending, separator in ((".csv", ","), (".tsv", "\t")):
        path = tmp_path / f"x{ending}"
        sl.write_lists(model, path, n=3, block=8)
        found = pl.read_csv(path, separator=separator)
        assert found.drop("score").equals(
            model.recommend(model.contexts_.ids(), n=3).to_polars().cast({"rank": pl.Int64}).drop("score")
        )


def test_ids_that_text_must_quote(tmp_path):
    odd = ["a,b", 'quo"te', "new\nline", "žluť", " spaced ", "tab\t"]
    data = sl.Interactions.from_frame({"u": odd, "i": odd[::-1]}, context="u", item="i")
    model = sl.Popularity().fit(data)
    frames = []
    for ending, read in ((".csv", pl.read_csv), (".jsonl", pl.read_ndjson), (".parquet", pl.read_parquet)):
        sl.write_lists(model, tmp_path / f"x{ending}", block=2)
        frames.append(read(tmp_path / f"x{ending}").select("u", "i"))
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])
    assert set(frames[0]["u"]) == set(odd)


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt64, pl.Int32, pl.String])
def test_types_of_ids_stay(tmp_path, dtype):
    frame = pl.DataFrame({"u": [1, 2, 3, 3], "i": [5, 6, 5, 7]}).cast(dtype)
    model = sl.Popularity().fit(sl.Interactions.from_frame(frame, context="u", item="i"))
    sl.write_lists(model, tmp_path / "x.parquet", contexts=frame.select("u"), block=2)
    assert pl.read_parquet(tmp_path / "x.parquet").schema["u"] == dtype
    assert pl.read_parquet(tmp_path / "x.parquet").schema["i"] == dtype


def test_names_that_are_ours_too(tmp_path):
    data = sl.Interactions.from_frame({"rank": [1, 2, 2], "score": ["a", "a", "b"]}, context="rank", item="score")
    model = sl.Popularity().fit(data)
    sl.write_lists(model, tmp_path / "x.parquet")
    assert pl.read_parquet(tmp_path / "x.parquet").columns == ["rank", "score", "rank_", "score_"]
    sl.write_lists(model, tmp_path / "y.parquet", format="lists")
    assert pl.read_parquet(tmp_path / "y.parquet").columns == ["rank", "score", "score_"]


def test_contexts_of_several_parts(tuples, tmp_path):
    everyone = tuples.contexts_.ids()
    sl.write_lists(tuples, tmp_path / "x.parquet", n=3, block=5)
    found = pl.read_parquet(tmp_path / "x.parquet")
    assert found.equals(expected(tuples, everyone, 3, 5))
    assert found.columns == ["user", "day", "product", "rank", "score"]
    # by a frame, whatever the order of its columns is
    frame = tuples.contexts_.frame[[4, 2, 4]].select("day", "user")
    sl.write_lists(tuples, tmp_path / "y.parquet", n=3, contexts=frame)
    assert pl.read_parquet(tmp_path / "y.parquet").equals(expected(tuples, [everyone[4], everyone[2]], 3, 9))


def test_combinations_that_were_never_seen(tuples, tmp_path):
    known = set(tuples.contexts_.ids())
    new = [(f"u{u}", day) for u in range(12) for day in (0, 10, 20) if (f"u{u}", day) not in known]
    asked = [*new, *sorted(known)[:4], new[0]]
    assert new
    sl.write_lists(tuples, tmp_path / "x.parquet", n=3, contexts=asked, block=3)
    assert pl.read_parquet(tmp_path / "x.parquet").equals(expected(tuples, asked[:-1], 3, 3))
    strange = [*asked, ("nobody", 10), ("nobody", 99)]
    with pytest.raises(sl.UnknownIdError, match="unknown context"):
        sl.write_lists(tuples, tmp_path / "y.parquet", n=3, contexts=strange, block=3)
    assert os.listdir(tmp_path) == ["x.parquet"]
    done = sl.write_lists(tuples, tmp_path / "y.parquet", n=3, contexts=strange, block=3, unknown="skip")
    assert done.skipped == strange[-2:]
    assert pl.read_parquet(tmp_path / "y.parquet").equals(pl.read_parquet(tmp_path / "x.parquet"))
    done = sl.write_lists(tuples, tmp_path / "z.parquet", n=3, contexts=strange[:-1], block=3, unknown="average")
    assert pl.read_parquet(tmp_path / "z.parquet").equals(
        expected(tuples, [*asked[:-1], ("nobody", 10)], 3, 3, unknown="average")
    )


def test_unknown_contexts(model, tmp_path):
    asked = [3, 999, 4, "x", 3]
    with pytest.raises(
        sl.UnknownIdError, match=r"unknown context 999 \(2 of 5 ids are unknown.*; pass unknown='skip' to"
    ):
        sl.write_lists(model, tmp_path / "x.parquet", contexts=asked)
    with pytest.raises(sl.SettingError, match="unknown is 'average', which needs contexts of several parts"):
        sl.write_lists(model, tmp_path / "x.parquet", contexts=asked, unknown="average")
    with pytest.raises(sl.SettingError, match=r"write \[3\]"):
        sl.write_lists(model, tmp_path / "x.parquet", contexts=3)
    with pytest.raises(sl.DataError, match=r"no contexts to write lists for: all 2 .* are unknown, such as 999"):
        sl.write_lists(model, tmp_path / "x.parquet", contexts=[999, "x"], unknown="skip")
    assert os.listdir(tmp_path) == []
    done = sl.write_lists(model, tmp_path / "x.parquet", contexts=asked, unknown="skip")
    assert done.skipped == [999, "x"]
    assert pl.read_parquet(tmp_path / "x.parquet")["user"].unique(maintain_order=True).to_list() == [3, 4]


def test_nobody_and_nothing(model, tmp_path):
    for nobody in ([], pl.DataFrame({"user": []}, schema={"user": pl.Int64})):
        with pytest.raises(sl.DataError, match="no contexts to write lists for"):
            sl.write_lists(model, tmp_path / "x.parquet", contexts=nobody)
    assert os.listdir(tmp_path) == []
    # an empty list for each is an answer
    done = sl.write_lists(model, tmp_path / "x.parquet", allow=[], block=7)
    assert (done.rows, done.short) == (0, 60)
    empty = pl.read_parquet(tmp_path / "x.parquet")
    assert empty.schema == {"user": pl.Int64, "product": pl.String, "rank": pl.Int32, "score": pl.Float32}
    assert not empty.height
    sl.write_lists(model, tmp_path / "y.parquet", allow=[], block=7, format="lists")
    assert pl.read_parquet(tmp_path / "y.parquet")["product"].to_list() == [[]] * 60


@pytest.mark.parametrize("slate", [sl.slates.MMR(0.5, pool=12), sl.slates.Calibrated(0.5, pool=3)])
def test_slates(model, tmp_path, slate):
    sl.write_lists(model, tmp_path / "x.parquet", n=5, block=7, slate=slate)
    found = pl.read_parquet(tmp_path / "x.parquet")
    assert found.equals(expected(model, model.contexts_.ids(), 5, 7, slate=slate))
    assert not found.equals(expected(model, model.contexts_.ids(), 5, 7))


class Mine(sl.IALS):
    pass


def test_a_class_of_ones_own(model, tmp_path):
    mine = Mine(dim=5, epochs=3).fit(events())
    sl.write_lists(mine, tmp_path / "x.parquet", n=4, block=7)
    assert pl.read_parquet(tmp_path / "x.parquet").equals(expected(model, model.contexts_.ids(), 4, 7))
    mine.save(tmp_path / "m")
    again = sl.load(tmp_path / "m", code=[Mine])
    assert type(again) is Mine
    assert again.recommend(n=3, contexts=[0]).ids == mine.recommend(n=3, contexts=[0]).ids
    with pytest.raises(sl.StorageError, match=r"your own class .*Mine; pass the class: load\(path, code=\[Mine\]\)"):
        sl.load(tmp_path / "m")


# --- two stages ------------------------------------------------------------------------------------------------------


def two_stages(kind=sl.IALS, **settings):
    split = sl.splits.at_random(events(), test=0.3, seed=0)
    first = kind(dim=5, epochs=3).fit(split.train)
    reranker = sl.LambdaMART(trees=5, min_leaf=1)
    return sl.TwoStage(first, **{"reranker": reranker, "candidates": 9, **settings}).fit(split)


@pytest.fixture(scope="module")
def two():
    pytest.importorskip("lightgbm")
    return two_stages()


@pytest.mark.parametrize("slate", [None, sl.slates.MMR(0.5, pool=12)])
@pytest.mark.parametrize("n", [4, 20])
def test_two_stages(two, tmp_path, n, slate):
    sl.write_lists(two, tmp_path / "x.parquet", n=n, block=7, slate=slate, deny=["i01"])
    found = pl.read_parquet(tmp_path / "x.parquet")
    assert found.equals(expected(two, two.contexts_.ids(), n, 7, slate=slate, deny=["i01"]))
    assert not found.equals(expected(two.first, two.contexts_.ids(), n, 7, slate=slate, deny=["i01"]))
    asked = [*two.contexts_.ids()[:5], 999]
    done = sl.write_lists(two, tmp_path / "y.parquet", n=n, contexts=asked, unknown="skip", format="lists")
    assert done.skipped == [999]
    assert pl.read_parquet(tmp_path / "y.parquet")["product"].to_list() == two.recommend(asked[:5], n=n).ids


def test_two_stages_go_on(two, tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    with stopping_after(monkeypatch, 3):
        sl.write_lists(two, path, n=6, block=7)
    two.save(tmp_path / "m")
    retrained = two_stages(reranker=sl.LambdaMART(trees=6))
    for changed in (retrained, two_stages(candidates=8), two.with_first(sl.IALS(dim=5, epochs=4).fit(events()))):
        with pytest.raises(sl.StorageError, match=r"another file: model changed"):
            sl.write_lists(changed, path, n=6, block=7)
    with pytest.raises(sl.StorageError, match=r"recommender was 'TwoStage' and is 'IALS'"):
        sl.write_lists(two.first, path, n=6, block=7)
    assert sl.write_lists(sl.load(tmp_path / "m"), path, n=6, block=7).resumed == 21
    assert pl.read_parquet(path).equals(expected(two, two.contexts_.ids(), 6, 7))


class Backwards:
    """A reranker of one's own."""

    def fit(self, candidates, relevance):
        pass

    def score(self, candidates):
        return candidates.ranks.astype(float)


class BackwardsToo(Backwards):
    pass


def test_second_stages_of_ones_own_are_known_by_their_names(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    own = two_stages(reranker=Backwards(), extra=_nothing_more)
    with stopping_after(monkeypatch, 3):
        sl.write_lists(own, path, n=6, block=7)
    for changed in (two_stages(reranker=BackwardsToo(), extra=_nothing_more), two_stages(reranker=Backwards())):
        with pytest.raises(sl.StorageError, match="model changed"):
            sl.write_lists(changed, path, n=6, block=7)
    assert sl.write_lists(own, path, n=6, block=7).resumed == 21
    assert pl.read_parquet(path).equals(expected(own, own.contexts_.ids(), 6, 7))
    mine = two_stages(Mine, reranker=Backwards(), extra=_nothing_more)
    sl.write_lists(mine, tmp_path / "y.parquet", n=6, block=7)
    assert pl.read_parquet(tmp_path / "y.parquet").equals(pl.read_parquet(path))
    mine.save(tmp_path / "m")
    code = {"reranker": mine.reranker, "extra": _nothing_more}
    again = sl.TwoStage.load(tmp_path / "m", code=[Mine], **code)
    assert again.recommend([0], n=3).ids == mine.recommend([0], n=3).ids
    with pytest.raises(sl.StorageError, match=r"pass the class: load\(path, code=\[Mine\]\)"):
        sl.TwoStage.load(tmp_path / "m", **code)


def _nothing_more(candidates):
    return {"zero": np.zeros(len(candidates))}


# --- interrupted -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("k", [0, 1, 5, 8])
def test_stopped_after_some_blocks(model, tmp_path, monkeypatch, k, ending):
    whole, broken = tmp_path / f"whole{ending}", tmp_path / f"broken{ending}"
    sl.write_lists(model, whole, n=6, block=7)
    with stopping_after(monkeypatch, k):
        sl.write_lists(model, broken, n=6, block=7)
    assert not broken.exists()
    done = sl.write_lists(model, broken, n=6, block=7)
    assert done.resumed == 7 * k
    assert (done.contexts, done.rows) == (60, 360)
    assert broken.read_bytes() == whole.read_bytes()
    assert not folder_of(broken).exists()


def test_a_search_that_is_interrupted_keeps_what_is_finished(model, tmp_path, monkeypatch):
    path, search, asked = tmp_path / "x.parquet", type(model).top, []

    def interrupted(self, *args, **kwargs):
        asked.append(1)
        if len(asked) == 5:  # the first one asks for the columns
            raise KeyboardInterrupt
        return search(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(type(model), "top", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sl.write_lists(model, path, n=6, block=7)
    assert sl.write_lists(model, path, n=6, block=7).resumed == 21
    assert pl.read_parquet(path).equals(expected(model, model.contexts_.ids(), 6, 7))


def test_another_question_is_refused(model, tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    asked = {"n": 6, "block": 7, "contexts": list(range(40)), "deny": ["i01"]}
    with stopping_after(monkeypatch, 2):
        sl.write_lists(model, path, **asked)
    other = sl.IALS(dim=5, epochs=3, seed=1).fit(events())
    changed = sl.load(_saved(model, tmp_path / "m"))
    changed.item_embeddings_ = changed.item_embeddings_.copy()  # the one from the file is read-only
    changed.item_embeddings_[3, 2] += 1e-6
    for changes, what in (
        ({"n": 5}, "n was 6 and is 5"),
        ({"contexts": list(range(41))}, "contexts changed"),
        ({"contexts": None}, "contexts changed"),
        ({"deny": ["i02"]}, "deny changed"),
        ({"deny": None}, "deny changed"),
        ({"allow": ["i02"]}, "allow changed"),
        ({"exclude_seen": False}, "exclude_seen was True and is False"),
        ({"format": "lists"}, "format was 'long' and is 'lists'"),
        ({"block": 8}, "block was 7 and is 8"),
        ({"model": other}, "model changed"),
        ({"model": changed}, "model changed"),
        ({"model": sl.Popularity().fit(events())}, "recommender was 'IALS' and is 'Popularity'"),
        ({"slate": sl.slates.MMR(0.3)}, r"slate was None and is 'MMR\(diversity=0.3, pool=100\)'"),
    ):
        with pytest.raises(sl.StorageError, match=f"another file: .*{what}.*; .*pass restart=True to start over"):
            sl.write_lists(**{"model": model, "path": path, **asked, **changes})
    # the same filters in another order, and the same model from disk, are the same question
    loaded = sl.load(tmp_path / "m")
    same = {**asked, "deny": ["i01", "unheard of", "i01"], "exclude_seen": np.True_}
    assert sl.write_lists(loaded, path, **same).resumed == 14
    assert pl.read_parquet(path).equals(expected(model, list(range(40)), 6, 7, deny=["i01"]))


def test_a_block_that_nobody_named_is_not_what_changed(model, tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    monkeypatch.setattr(batch, "ROWS", 60)
    with stopping_after(monkeypatch, 2):
        sl.write_lists(model, path, n=6)
    with pytest.raises(sl.StorageError, match=r"another file: n was 6 and is 5; use the original"):
        sl.write_lists(model, path, n=5)
    with pytest.raises(sl.StorageError, match=r"another file: block was 10 and is 3, n was 6 and is 5; use the"):
        sl.write_lists(model, path, n=5, block=3)
    monkeypatch.setattr(batch, "ROWS", 120)
    with pytest.raises(sl.StorageError, match=r"another file: block was 10 and is 20; use the original"):
        sl.write_lists(model, path, n=6)


def _saved(model, path):
    model.save(path)
    return path


def test_restart(model, tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    with stopping_after(monkeypatch, 3):
        sl.write_lists(model, path, n=6, block=7)
    assert sl.write_lists(model, path, n=2, block=7, restart=True).resumed == 0
    assert pl.read_parquet(path).equals(expected(model, model.contexts_.ids(), 2, 7))


def test_a_file_that_is_there(model, tmp_path):
    path = tmp_path / "x.parquet"
    path.write_text("precious")
    with pytest.raises(sl.StorageError, match=r"x.parquet' already exists; pass overwrite=True"):
        sl.write_lists(model, path)
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["x.parquet"]
    sl.write_lists(model, path, n=2, overwrite=np.True_, restart=np.False_)
    assert pl.read_parquet(path).height == 120


def test_a_full_disk(model, tmp_path, monkeypatch):
    path, write, written = tmp_path / "x.parquet", os.write, [0]
    path.write_text("yesterday's")

    def full(fd, content):
        if written[0] + len(content) > 5000:
            write(fd, content[: 5000 - written[0]])
            raise OSError(errno.ENOSPC, "No space left on device")
        written[0] += len(content)
        return write(fd, content)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(sl.StorageError, match=r"No space left.*run the same call again to resume"):
            sl.write_lists(model, path, block=2, overwrite=True)
    assert path.read_text() == "yesterday's"
    done = sl.write_lists(model, path, block=2, overwrite=True)
    assert 0 < done.resumed < 60
    assert pl.read_parquet(path).equals(expected(model, model.contexts_.ids(), 100, 2))


_CHILD = """
import sys, time
import numpy as np
import shortlist as sl
from shortlist.storage.draft import Draft
model = sl.load(sys.argv[1])
append = Draft.append
def slow(self, content, about):
    append(self, content, about)
    time.sleep(0.06)
Draft.append = slow
print("ready", flush=True)
done = sl.write_lists(model, sys.argv[2], n=5, block=3)
print(done.resumed, flush=True)
"""


def test_killed_at_random_times(model, tmp_path):
    """SIGKILL while blocks are written, again and again, until a run gets through."""
    rng = random.Random(0)
    path = tmp_path / "x.parquet"
    model.save(tmp_path / "m")
    command = [sys.executable, "-c", _CHILD, str(tmp_path / "m"), str(path)]
    killed, resumed = 0, 0
    for _ in range(40):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        with child:
            assert child.stdout.readline() == "ready\n"
            if killed < 4:
                time.sleep(rng.uniform(0.05, 0.25))  # four of them are shorter than the pauses of all 20 blocks
                child.send_signal(signal.SIGKILL)
            told = child.stdout.read()
        if child.returncode == 0:
            resumed = int(told)
            break
        assert child.returncode == -signal.SIGKILL
        assert not path.exists()
        killed += 1
    assert killed
    assert resumed % 3 == 0
    assert pl.read_parquet(path).equals(expected(model, model.contexts_.ids(), 5, 3))
    assert not folder_of(path).exists()


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n is 0"),
        ({"block": 0}, "block is 0"),
        ({"format": "wide"}, "format is 'wide'"),
        ({"overwrite": 1}, "overwrite is 1"),
        ({"memory": "much"}, "memory is 'much'"),
        ({"unknown": "guess"}, "unknown is 'guess'"),
        ({"allow": "i01"}, "expected a list of item ids"),
        ({"allow": [["i01"]]}, "allow is a list of lists; expected one list"),
        ({"deny": {"i01": 1}}, "expected a list of item ids"),
        ({"path": 7}, "path is 7"),
        ({"path": "x.xlsx"}, r"expected a name that ends in \.parquet"),
        ({"path": "/"}, r"expected a name that ends in \.parquet"),
        ({"path": "a\0.parquet"}, r"expected a name that ends in \.parquet.* and contains no NUL"),
        ({"model": "models/shop"}, r"got 'models/shop'; load the model first: shortlist.load\(path\)"),
        ({"model": Path("models/shop")}, r"got 'models/shop'; load the model first"),
        ({"model": sl.IALS}, "got the class IALS; pass a fitted instance"),
        ({"model": [1]}, "got list; pass a fitted recommender"),
        ({"path": "x.csv", "format": "lists"}, "text formats cannot store lists"),
    ],
)
def test_what_makes_no_sense(model, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sl.SettingError, match=message):
        sl.write_lists(**{"model": model, "path": "x.parquet", **arguments})
    assert os.listdir(tmp_path) == []


def test_an_index_is_no_model(model, tmp_path):
    with pytest.raises(sl.SettingError, match="got an Index; pass the model that made it"):
        sl.write_lists(model.index("exact"), tmp_path / "x.parquet")


def test_wrong_places(model, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "x.parquet").mkdir()
    for path, message in (
        (tmp_path / "file" / "x.parquet", "cannot write to"),
        (tmp_path / "x.parquet", "is a directory"),
    ):
        with pytest.raises(sl.StorageError, match=message):
            sl.write_lists(model, path)


def test_iterators_are_taken_once(model, tmp_path):
    sl.write_lists(model, tmp_path / "x.parquet", n=30, contexts=iter(range(20)), deny=iter(["i00", "i01"]), block=4)
    assert pl.read_parquet(tmp_path / "x.parquet").equals(expected(model, list(range(20)), 30, 4, deny=["i00", "i01"]))


def test_blocks_are_bounded_by_rows(model, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "ROWS", 60)
    sl.write_lists(model, tmp_path / "x.parquet", n=6)
    assert pq.ParquetFile(tmp_path / "x.parquet").num_row_groups == 6


def test_blocks_are_bounded_by_what_is_found(model, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "POOL", 120)

    def groups(model, slate=None):
        sl.write_lists(model, tmp_path / "x.parquet", n=6, slate=slate, overwrite=True)
        return pq.ParquetFile(tmp_path / "x.parquet").num_row_groups

    assert groups(model) == 3
    assert groups(model, sl.slates.MMR(pool=12)) == 6
    assert groups(model, sl.slates.MMR(pool=10_000)) == 15  # there are 30 items
    assert groups(two_stages(reranker=Backwards(), candidates=24)) == 12


def test_progress(model, tmp_path, capsys):
    sl.write_lists(model, tmp_path / "x.parquet", n=2, block=6, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "writing x.parquet: 6/60 contexts"
    assert lines[-1] == "writing x.parquet: 60/60 contexts"
    sl.write_lists(model, tmp_path / "x.parquet", n=2, block=6, overwrite=True)
    assert not capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_names_that_look_like_markup(model, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    sl.write_lists(model, tmp_path / "[red]x.parquet", n=2)
    assert "writing [red]x.parquet" in re.sub(r"\x1b\[[0-9;?]*\w", "", sys.stderr.getvalue())


_MEMORY = """
import json, sys
import numpy as np
import shortlist as sl
def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
n = int(sys.argv[1])
how = {"n": 100, "block": 2000}
if sys.argv[3] == "slate":
    how = {"n": 10, "slate": sl.slates.MMR(pool=1000)}
model = sl.Popularity().fit(sl.datasets.synthetic(n, 1100, 4 * n, seed=0))
sl.write_lists(model, sys.argv[2] + "/warm.parquet", contexts=model.contexts_.ids()[:10], **how)
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
sl.write_lists(model, sys.argv[2] + "/x.parquet", memory="64MB", **how)
print(status("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the peak of memory cannot be reset here")
@pytest.mark.parametrize(("how", "few", "many"), [("lists", 20_000, 160_000), ("slate", 12_000, 48_000)])
def test_memory_does_not_grow_with_contexts(tmp_path, how, few, many):
    peaks = []
    for n in (few, many):
        (tmp_path / str(n)).mkdir()
        command = [sys.executable, "-c", _MEMORY, str(n), str(tmp_path / str(n)), how]
        peaks.append(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    assert peaks[1] < 400e6  # all lists have 16 million rows, and all pools 48 million items, of some 25 bytes each
    assert peaks[1] < 2 * peaks[0] + 50e6
