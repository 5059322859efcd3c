"""Does it help to know the weekday, the hour or the basket?

    python -m benchmarks.questions.contexts [--data ../shared/data] [--kinds weekday hour basket] [--trials 16]
        [--seeds 2]

A year of orders of Online Retail is cut by time: the last tenth is the test part, the tenth before it validation. A
question is a user and a weekday, a user and a part of the day (two hours), or half of a basket of a user, drawn at
random as the data has no order within it; the answer is the items that the user bought then (or had in the other half).
Every model is asked the same questions, in two protocols: with all items that were known before (repeats kept), and
with those only that the user had never bought (repeats dropped). Items already in the basket are not asked for.

Every model has d = 64 and gets as many trials, judged by NDCG@20 on validation for each protocol by itself; the chosen
settings are fitted to everything before the test part and measured on it. "Parts shuffled" is a control: the baskets
that are learnt from have each other's weekdays or hours, so what it gains it does not gain by knowing them. Intervals
are of the difference to IALS on users (and of PARAFAC to its control, and of the model of user and basket to IALS on
baskets alone), over the same questions, by drawing users again and again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shortlist as sl
from benchmarks.lib.bootstrap import interval
from benchmarks.lib.halton_search import SQUARE, Ranges, best, searched
from benchmarks.lib.paths import DATA
from benchmarks.lib.results import MULTILINEAR, store, stored

N = 20
PROTOCOLS = ("kept", "dropped")
KINDS = ("weekday", "hour", "basket")
OWN = "own purchases by count"
SHUFFLED = "PARAFAC (parts shuffled)"
ON_BASKETS, BOTH = "IALS on baskets (folded in)", "FactorizationMachine (user and basket)"
PAIRED = (("PARAFAC", SHUFFLED), (BOTH, ON_BASKETS))  # compared beside all with IALS on users
SPACE: Ranges = SQUARE | {"weighting": ["binary", "log"]}
FIXED = {"dim": 64}
PARTS: Ranges = SPACE | {"part_strength": (0.03, 30.0)}
Lists = list[list[int]]
Fitted = Callable[[str], Lists]  # the answers to the questions by protocol


@dataclass
class Questions:
    """Of one kind: who asks when, what is in the basket already, and what was bought, by protocol."""

    kind: str
    frame: pl.DataFrame  # user, the other part of the context, shown, bought, past

    def asked(self, protocol: str) -> pl.DataFrame:
        """Those with an answer: truth, and what may not be recommended."""
        past = pl.col("past") if protocol == "dropped" else pl.lit([], pl.List(pl.Int32))
        found = self.frame.with_columns(deny=pl.concat_list("shown", past))
        return found.with_columns(truth=pl.col("bought").list.set_difference("deny")).filter(
            pl.col("truth").list.len() > 0
        )


@dataclass
class Part:
    """Events before a moment, and the questions of the time after it."""

    train: pl.DataFrame
    later: pl.DataFrame

    @cached_property
    def past(self) -> pl.DataFrame:
        """Of every user the items bought before."""
        return self.train.group_by("user", maintain_order=True).agg(past=pl.col("item").unique(maintain_order=True))

    @cached_property
    def questions(self) -> dict[str, Questions]:
        """By kind; of users and items that were there before."""
        known = self.later.join(self.past, on="user", how="semi").join(self.train, on="item", how="semi")
        known = known.sort("timestamp", "user", "item")
        nothing = pl.lit([], pl.List(pl.Int32)).alias("shown")
        found = {}
        for kind in KINDS:
            if kind == "basket":
                frame = halves(known).filter(pl.col("side") == 0, pl.col("shown").list.len() > 0)
            else:
                frame = known.group_by("user", kind, maintain_order=True).agg(bought=pl.col("item").unique())
                frame = frame.with_columns(nothing)
            found[kind] = Questions(kind, frame.join(self.past, on="user", maintain_order="left"))
        return found

    def shuffled(self, kind: str) -> Part:
        """The same, but every basket before the moment has the weekday or hour of another: they say nothing."""
        baskets = self.train.select("user", "timestamp", kind).unique(maintain_order=True)
        baskets = baskets.with_columns(pl.col(kind).shuffle(seed=0))
        train = self.train.drop(kind).join(baskets, on=["user", "timestamp"], maintain_order="left")
        return Part(train, self.later)

    def interactions(self, *context: str) -> sl.Interactions:
        """What is learnt from; the weight of a pair is how often it was."""
        return sl.Interactions.from_frame(self.train.select(*context, "item"), context=list(context), item="item")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="others stay as stored")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    validation, test = read(args.data)
    rows, sizes, pairs = [], [], []
    plain = trials_of("IALS", args.kinds, validation, args.trials)
    for kind in args.kinds:
        for protocol in PROTOCOLS:
            asked = test.questions[kind].asked(protocol)
            sizes.append({"kind": kind, "protocol": protocol, "questions": len(asked)})
            sizes[-1]["users"] = asked["user"].n_unique()
        means: dict[tuple[str, str], np.ndarray] = {}
        for model in MODELS[kind]:
            tuned = MODELS[kind][model] is not None
            found = (plain if model == "IALS" else trials_of(model, [kind], validation, args.trials)) if tuned else []
            for protocol in PROTOCOLS if model != OWN else ["kept"]:
                metric = f"{kind} {protocol}"
                settings = best(found, metric) if tuned else {}
                seeds = range(args.seeds if tuned else 1)
                values = [values_of(model, settings, kind, protocol, test, seed) for seed in seeds]
                mean = np.mean(values, axis=0)
                users = test.questions[kind].asked(protocol)["user"].to_numpy()
                means[model, protocol] = mean
                difference = mean - means["IALS", protocol]
                row = {
                    "kind": kind,
                    "protocol": protocol,
                    "model": model,
                    "settings": settings,
                    "trials": len(found),
                    "validation": max((one[metric] for one in found), default=None),
                    "seeds": [float(one.mean()) for one in values],
                    "ndcg@20": float(mean.mean()),
                    "interval": interval(mean, users),
                    "difference": float(difference.mean()),
                    "difference_interval": interval(difference, users),
                    "all_trials": [{"settings": one["settings"], "ndcg@20": one[metric]} for one in found],
                }
                rows.append(row)
                for one, less in PAIRED:
                    if model in (one, less) and {(one, protocol), (less, protocol)} <= means.keys():
                        gain = means[one, protocol] - means[less, protocol]
                        pair = {"kind": kind, "protocol": protocol, "model": one, "less": less}
                        pairs.append(pair | {"difference": float(gain.mean()), "interval": interval(gain, users)})
                print(f"{metric} {model}: {row['ndcg@20']:.4f} {row['difference_interval']} {settings}", flush=True)
    if len(args.kinds) < len(KINDS):
        before = stored("contexts", MULTILINEAR)
        rows += [row for row in before["rows"] if row["kind"] not in args.kinds]
        sizes += [size for size in before["questions"] if size["kind"] not in args.kinds]
        pairs += [pair for pair in before["pairs"] if pair["kind"] not in args.kinds]
    events = {"train": len(test.train), "later": len(test.later)}
    store("contexts", {"rows": rows, "pairs": pairs, "questions": sizes, "events": events}, MULTILINEAR)


# --- data ------------------------------------------------------------------------------------------------------------


def read(data: Path) -> tuple[Part, Part]:
    """Validation and test."""
    events = pl.read_parquet(data / "online-retail" / "interactions.parquet").select("user", "item", "timestamp")
    when = pl.from_epoch("timestamp")
    events = events.sort("timestamp", "user", "item").with_columns(
        weekday=when.dt.weekday().cast(pl.Int32),
        hour=(when.dt.hour() // 2 * 2).clip(8, 16).cast(pl.Int32),
    )
    begin, end = (float(one) for one in events.select(pl.min("timestamp"), pl.max("timestamp").alias("end")).row(0))
    first, second = (begin + share * (end - begin) for share in (0.8, 0.9))
    early, middle = pl.col("timestamp") <= first, pl.col("timestamp") <= second
    return (
        Part(events.filter(early), events.filter(middle & ~early)),
        Part(events.filter(middle), events.filter(~middle)),
    )


def halves(events: pl.DataFrame) -> pl.DataFrame:
    """Baskets, each cut at random into two: what is shown and what was bought with it, and the other way round."""
    order = np.random.default_rng(0).permutation(len(events))
    baskets = events[order].group_by("user", "timestamp", maintain_order=True).agg(pl.col("item"))
    baskets = baskets.with_columns(half=pl.col("item").list.len() // 2)
    one = pl.col("item").list.head(pl.col("half"))
    other = pl.col("item").list.slice(pl.col("half"), None)
    sides = [
        baskets.with_columns(pl.lit(side).alias("side"), shown=shown, bought=bought)
        for side, shown, bought in ((0, one, other), (1, other, one))
    ]
    return (
        pl.concat(sides).filter(pl.col("bought").list.len() > 0).drop("item", "half").sort("timestamp", "user", "side")
    )


# --- models ----------------------------------------------------------------------------------------------------------


def popular(settings: dict[str, Any], part: Part, kind: str) -> Fitted:
    return by_user(sl.Popularity().fit(part.interactions("user"), progress=False), part, kind)


def ials(settings: dict[str, Any], part: Part, kind: str) -> Fitted:
    return by_user(sl.IALS(**FIXED | settings).fit(part.interactions("user"), progress=False), part, kind)


def by_user(model: sl.Recommender, part: Part, kind: str) -> Fitted:
    def answers(protocol: str) -> Lists:
        asked = part.questions[kind].asked(protocol)
        users = asked["user"].to_list()
        return model.recommend(users, n=N, exclude_seen=False, deny=asked["deny"].to_list()).ids

    return answers


def own(settings: dict[str, Any], part: Part, kind: str) -> Fitted:
    """What the user has bought most often, then what everyone has."""
    counts = part.train.group_by("user", "item").len("own")
    total = part.train.group_by("item").len("total").sort("total", "item", descending=[True, False])
    mine = counts.join(total, on="item").sort("own", "total", "item", descending=[True, True, False])
    often = dict(mine.group_by("user").agg("item").iter_rows())
    rest = total["item"].to_list()

    def answers(protocol: str) -> Lists:
        lists = []
        for user, deny in part.questions[kind].asked(protocol).select("user", "deny").iter_rows():
            ranked = dict.fromkeys([*often[user], *rest[: N + len(deny) + len(often[user])]])
            banned = set(deny)
            lists.append([item for item in ranked if item not in banned][:N])
        return lists

    return answers


def folded(settings: dict[str, Any], part: Part, kind: str) -> Fitted:
    """IALS, which solves for a user with what is shown of the basket added to the history."""
    model = sl.IALS(**FIXED | settings).fit(part.interactions("user"), progress=False)
    counts = part.train.group_by("user", "item").len("n")
    had = {user: dict(zip(items, n)) for user, items, n in counts.group_by("user").agg("item", "n").iter_rows()}

    def answers(protocol: str) -> Lists:
        asked = part.questions[kind].asked(protocol)
        history = []
        for user, shown in asked.select("user", "shown").iter_rows():
            mine = dict(had[user])
            for item in shown:
                mine[item] = mine.get(item, 0) + 1
            history.append(mine)
        return model.recommend(history=history, n=N, exclude_seen=False, deny=asked["deny"].to_list()).ids

    return answers


def by_basket(settings: dict[str, Any], part: Part, kind: str) -> Fitted:
    """IALS whose contexts are baskets: it knows what is shown, and not whose it is."""
    model = sl.IALS(**FIXED | settings).fit(part.interactions("user", "timestamp"), progress=False)

    def answers(protocol: str) -> Lists:
        asked = part.questions[kind].asked(protocol)
        shown = asked["shown"].to_list()
        return model.recommend(history=shown, n=N, exclude_seen=False, deny=asked["deny"].to_list()).ids

    return answers


def composed(settings: dict[str, Any], part: Part, kind: str, model: str) -> Fitted:
    """A model of contexts (user, other part)."""
    fixed = {"within": False} if model == "FactorizationMachine" else {}
    if model == SHUFFLED:
        model, part = "PARAFAC", part.shuffled(kind)
    fitted = getattr(sl, model)(**FIXED | fixed | settings).fit(part.interactions("user", kind), progress=False)

    def answers(protocol: str) -> Lists:
        asked = part.questions[kind].asked(protocol)
        contexts = list(asked.select("user", kind).iter_rows())
        deny = asked["deny"].to_list()
        return fitted.recommend(contexts, n=N, exclude_seen=False, deny=deny, unknown="average").ids

    return answers


def basket_machine(settings: dict[str, Any], part: Part, kind: str) -> Fitted:
    """A factorization machine: contexts are a user and half a basket, items those of the other half."""
    settings = dict(settings)
    normalize = settings.pop("normalize")
    baskets = halves(part.train).select("user", "shown", "bought").with_row_index("context")
    events = baskets.select("context", "bought").explode("bought").rename({"bought": "item"})
    features = sl.Features.from_frame(
        baskets.select("context", "user", "shown"),
        id="context",
        categorical="user",
        multi_valued="shown",
        normalize=normalize,
    )
    train = sl.Interactions.from_frame(events, context="context", item="item")
    model = sl.FactorizationMachine(context_ids=False, within=False, **FIXED | settings)
    model.fit(train, context_features=features, progress=False)
    questions = part.questions[kind].frame.with_row_index("context", offset=len(baskets))
    model.add_contexts(features.encode(questions.select("context", "user", "shown"), unknown="missing"))

    def answers(protocol: str) -> Lists:
        asked = Questions(kind, questions).asked(protocol)
        return model.recommend(asked["context"].to_list(), n=N, exclude_seen=False, deny=asked["deny"].to_list()).ids

    return answers


def on(model: str) -> Callable[[dict[str, Any], Part, str], Fitted]:
    return lambda settings, part, kind: composed(settings, part, kind, model)


FITS: dict[str, Callable[[dict[str, Any], Part, str], Fitted]] = {
    "IALS": ials,
    "popularity": popular,
    OWN: own,
    "PARAFAC": on("PARAFAC"),
    SHUFFLED: on(SHUFFLED),
    "Tucker": on("Tucker"),
    "FactorizationMachine": on("FactorizationMachine"),
    "IALS (basket folded in)": folded,
    ON_BASKETS: by_basket,
    BOTH: basket_machine,
}
PAIRS: dict[str, Ranges | None] = {
    "IALS": SPACE,
    "PARAFAC": PARTS,
    SHUFFLED: PARTS,
    "Tucker": PARTS | {"part_dim": [2, 4]},
    "FactorizationMachine": SPACE,
    OWN: None,
    "popularity": None,
}
MODELS: dict[str, dict[str, Ranges | None]] = {  # of every kind of question; IALS first; None: nothing to choose
    "weekday": PAIRS,
    "hour": PAIRS,
    "basket": {
        "IALS": SPACE,
        "IALS (basket folded in)": SPACE,
        ON_BASKETS: SPACE,
        BOTH: SPACE | {"normalize": ["sum", "norm"]},
        OWN: None,
        "popularity": None,
    },
}


def trials_of(model: str, kinds: list[str], part: Part, trials: int) -> list[dict[str, Any]]:
    """Fits with random settings, judged on validation for both protocols."""
    ranges = MODELS[kinds[0]][model]
    assert ranges is not None

    def judged(settings: dict[str, Any]) -> dict[str, float]:
        found = {}
        for kind in kinds:
            answers = FITS[model](settings, part, kind)
            for protocol in PROTOCOLS:
                found[f"{kind} {protocol}"] = float(ndcg(answers(protocol), part.questions[kind], protocol).mean())
        return found

    return searched(f"{model}, {', '.join(kinds)}", ranges, judged, trials)


def values_of(model: str, settings: dict[str, Any], kind: str, protocol: str, part: Part, seed: int) -> np.ndarray:
    seeded = settings | ({"seed": seed} if settings else {})
    return ndcg(FITS[model](seeded, part, kind)(protocol), part.questions[kind], protocol)


def ndcg(answers: Lists, questions: Questions, protocol: str) -> np.ndarray:
    """Of every question, at 20."""
    gains = 1 / np.log2(np.arange(2, N + 2))
    ideal = np.cumsum(gains)
    truths = questions.asked(protocol)["truth"].to_list()
    assert len(answers) == len(truths)
    values = np.empty(len(truths))
    for k, (found, truth) in enumerate(zip(answers, truths)):
        wanted = set(truth)
        hits = np.fromiter((item in wanted for item in found), np.bool_, len(found))
        values[k] = gains[: len(found)][hits].sum() / ideal[min(N, len(wanted)) - 1]
    return values


if __name__ == "__main__":
    main()
