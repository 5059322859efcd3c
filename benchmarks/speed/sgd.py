"""How fast is learning from sampled pairs beside implicit, Cornac and LightFM, and is the result as good?

    python -m benchmarks.speed.sgd speed --data FOLDER [--sets gowalla anime-30pct] [--dims 64 128] [--turns 5]
    python -m benchmarks.speed.sgd tune PEER --data FOLDER [--sets gowalla anime-30pct] [--trials 20] [--epochs 60]
    python -m benchmarks.speed.sgd race --data FOLDER [--sets gowalla anime-30pct] [--turns 5]

`speed`: positives a second, float32, two threads, every pair of the set learnt from, negatives checked against the
history; an epoch is as many samples as there are pairs. Peers have a bias for every item beside its d coordinates, ours
have none. BPR: one learning rate, and one λ for all but LightFM; WARP: Adagrad, at most ten draws. Each contestant has
a process of its own, in turns, and does so many epochs from the start (a WARP's become slower as it learns, so it has
to be the same ones); what counts is their mean. The clock runs around epochs, as `sgd_peers.py` says for each peer and
`Epoch.seconds` for us: setting up, compiling and measuring are not in it. Beside the time stands what was learnt in it:
of random pairs of an observed and an unobserved item, how many are in order.

`tune`: a peer's settings, d = 64, by validation NDCG@20 (5,000 contexts), measured eight times on the way; first over
the whole space, then around the best; the last trial is the best one once more, with three times the epochs. A trial
ends when it is past its best, or behind the best one by a sixth after as many epochs. Trials are kept in
benchmarks/studies/trials, in <set>-peer-<name>.csv; ours, `shortlist-bpr` and `shortlist-warp`, which are tuned by the
same search (WARP's margin, too), in <set>-sgd-<name>.csv; where there are some already, it goes on with them.
Validation is the published subset of gowalla's training pairs, and a random tenth of all pairs of anime-30pct.

`race`: a peer does the epochs that its study chose, and its validation NDCG@20 at the end is the goal; counted is our
time, at the settings of our study, until the goal is reached, measured between epochs and outside of the clock. Our
WARP begins with singular vectors (`init="svd"`), whose time counts, and takes four negatives a pair.

Peers are in an environment of their own: `make bench-sgd` makes it.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import shortlist as sl
from benchmarks.lib import published
from benchmarks.lib.machine import PLAIN_SGD, describe, quotients, record
from benchmarks.lib.paths import TRIALS
from benchmarks.lib.trials import best, trials
from benchmarks.speed.sgd_peers import LABELS, PEERS, ROUNDS, Enough, run
from shortlist.solvers.svd_init import singular_vectors

SETS = ("gowalla", "anime-30pct")
DIMS, DIM, THREADS, METRIC = (64, 128), 64, 2, "ndcg@20"
OURS = {"shortlist-bpr": "BPR", "shortlist-warp": "WARP"}
EPOCHS = {"bpr": 10, "warp": 5}  # of `speed`
SAME = {  # settings of `speed`; LightFM's λ means something else, and without one it is fastest
    "bpr": {"learning_rate": 0.05, "regularization": 0.01},
    "warp": {"learning_rate": 0.05, "regularization": 0.0},
    "lightfm-bpr": {"learning_rate": 0.05, "regularization": 0.0},
}
SPACE = {  # of `tune`: learning rate, λ, margin; LightFM's λ shrinks all embeddings in every step, its margin is 1
    "implicit-bpr": ((0.01, 0.1), (5e-4, 0.05)),
    "cornac-bpr": ((0.02, 0.2), (2e-4, 0.02)),
    "lightfm-bpr": ((0.01, 0.1), (1e-8, 1e-5)),
    "lightfm-warp": ((0.01, 0.1), (1e-8, 1e-5)),
    "shortlist-bpr": ((0.02, 0.2), (2e-4, 0.02)),
    "shortlist-warp": ((0.02, 0.1), (1e-3, 0.02), (1.0, 4.0)),
}
MORE = {  # of ours in `tune` and `race`; peers have biases, too; the time that the start values take is counted
    "shortlist-warp": {"biases": True, "n_negatives": 4, "init": "svd", "init_scale": 2.0},
}
PACKAGES = ("scipy", "numba", "implicit", "cornac", "lightfm-next")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, turns in (("speed", 5), ("race", 5)):
        one = commands.add_parser(name)
        one.add_argument("--turns", type=int, default=turns)
        one.add_argument("--who", nargs="+", choices=(*PEERS, *OURS), default=[*PEERS, *OURS])
        one.add_argument("--json", type=Path, help="append every measurement to this file")
        one.add_argument("--record", action="store_true", help="keep the ratios for the board")
        if name == "speed":
            one.add_argument("--dims", nargs="+", type=int, default=list(DIMS))
        else:
            one.add_argument("--users", type=int, default=5000, help="whose validation counts")
    one = commands.add_parser("tune")
    one.add_argument("who", choices=(*PEERS, *OURS))
    one.add_argument("--trials", type=int, default=20)
    one.add_argument("--epochs", type=int, default=60, help="of a trial, at most")
    one.add_argument("--users", type=int, default=5000, help="whose validation counts")
    one.add_argument("--seed", type=int, default=0)
    for one in list(commands.choices.values()):
        one.add_argument("--data", type=Path, required=True)
        one.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    child = commands.add_parser("one")
    child.add_argument("question")
    args = parser.parse_args()
    if args.command == "one":
        asked = json.loads(args.question)
        print(json.dumps((learn if asked.pop("do") == "speed" else to_goal)(**asked)))
        return
    describe(*PACKAGES)
    print(f"{THREADS} threads each", flush=True)
    for name in args.sets:
        if args.command == "tune":
            tune(name, args.who, args.data, args.trials, args.epochs, args.users, args.seed)
        elif args.command == "race":
            race(name, args.who, args.data, args.turns, args.users, args.json, args.record)
        else:
            for dim in args.dims:
                speed(name, args.who, dim, args.data, args.turns, args.json, args.record)


def kind(who: str) -> str:
    return who.rpartition("-")[2]


def label(who: str) -> str:
    return LABELS.get(who, f"`{OURS[who]}`" if who in OURS else who)


# --- data ------------------------------------------------------------------------------------------------------------


def everything(name: str, data: Path) -> sl.Interactions:
    """What `speed` learns from."""
    return published.read(data / name / ("train.parquet" if name == "gowalla" else "interactions.parquet"))


def validation(name: str, data: Path) -> sl.splits.Split:
    """What is learnt from while settings are chosen, and what is asked for; contexts are known from training."""
    if name == "gowalla":
        return published.gowalla(data, validation=True)
    return sl.splits.at_random(everything(name, data), 0.1, seed=0)


def some_of(split: sl.splits.Split, users: int) -> sl.splits.Split:
    """The same training part; a random so many of the contexts asked for."""
    n = split.truth.n_contexts
    chosen = np.random.default_rng(0).permutation(n) < users
    return sl.splits.given(split.train, split.truth.select(chosen[split.truth.context_codes], compact=True))


def matrix_of(train: sl.Interactions) -> Any:
    import scipy.sparse as sp

    return sp.csr_matrix(train.to_csr()[0])


def ndcg_of(split: sl.splits.Split, users: np.ndarray, items: np.ndarray) -> float:
    """What `shortlist.evaluate` would say of a model with these embeddings, by the codes of the training part."""
    from shortlist._checks import DEFAULT_MEMORY
    from shortlist.evaluation.catalogue_search import CatalogueSearch
    from shortlist.metrics import ndcg
    from shortlist.scoring import DotProductScorer

    codes = split.train.contexts.encode(split.truth.contexts.frame)
    scorer = DotProductScorer(users[codes], items)
    search = CatalogueSearch(scorer, split.truth.by_context, split.history.by_context, 0, DEFAULT_MEMORY, THREADS)
    return float(ndcg(search.ranks_within(search.top(20, one_more=False).items, 20), 20).mean())


def in_order(train: sl.Interactions, users: np.ndarray, items: np.ndarray, pairs: int = 200_000) -> float:
    """Of random pairs of an observed and an unobserved item of a context, how many have their scores in order."""
    from shortlist.data.sparse_rows import has_pairs

    rng, view = np.random.default_rng(0), train.by_context
    picked = rng.integers(0, len(train), pairs)
    contexts, good, bad = train.context_codes[picked], train.item_codes[picked], rng.integers(0, train.n_items, pairs)
    unobserved = ~has_pairs(view.indptr, view.indices, contexts, bad)
    contexts, good, bad = contexts[unobserved], good[unobserved], bad[unobserved]
    return float((np.einsum("nd,nd->n", users[contexts], items[good] - items[bad]) > 0).mean())


# --- ours ------------------------------------------------------------------------------------------------------------


def model_of(who: str, dim: int, settings: dict[str, Any], seed: int = 0) -> Any:
    extra = {"rounds": ROUNDS, "optimizer": "adagrad"} if kind(who) == "warp" else {}
    return getattr(sl, OURS[who])(**PLAIN_SGD | extra | settings | {"dim": dim, "seed": seed})


def compile_ours(who: str) -> None:
    """Kernels are compiled, or loaded, before the clock runs."""
    tiny = sl.splits.at_random(sl.datasets.synthetic(200, 100, 4000), 0.1)
    settings = SAME[kind(who)] | {"epochs": 1}
    model_of(who, 64, settings).fit(tiny.train, validation=tiny, threads=THREADS, progress=False)
    model_of(who, 64, settings).fit(tiny.train, threads=THREADS, progress=False)


# --- one contestant, in a process of its own -------------------------------------------------------------------------


def learn(who: str, name: str, data: str, dim: int) -> dict[str, Any]:
    """Some epochs: the seconds of each, and what was learnt in them."""
    train = everything(name, Path(data))
    settings = SAME.get(who, SAME[kind(who)]) | {"epochs": EPOCHS[kind(who)]}
    seconds: list[float] = []
    if who in OURS:
        compile_ours(who)
        model = model_of(who, dim, settings)
        model.fit(train, callbacks=lambda epoch: seconds.append(epoch.seconds), threads=THREADS, progress=False)
        embeddings = [model.context_embeddings_, model.item_embeddings_]
    else:
        embeddings = []

        def told(spent: float, users: np.ndarray, items: np.ndarray) -> None:
            seconds.append(spent)
            embeddings[:] = users, items

        run(who, matrix_of(train), dim, settings, THREADS, 0, told)
    quality = in_order(train, *embeddings)
    return {"who": who, "set": name, "dim": dim, "pairs": len(train), "seconds": seconds, "in order": quality}


def to_goal(
    who: str, name: str, data: str, dim: int, settings: dict[str, Any], goal: float, users: int, seed: int
) -> dict[str, Any]:
    """All epochs of the settings, or, of ours, those until the goal: seconds and NDCG@20 of each that was measured."""
    split = some_of(validation(name, Path(data)), users)
    found: dict[str, Any] = {"who": who, "set": name, "dim": dim, "seconds": [], METRIC: []}
    if who in OURS:
        compile_ours(who)
        start = spent_on_start(MORE.get(who, {}) | settings, split, dim, seed)

        def after(epoch: Any) -> None:
            found["seconds"].append(epoch.seconds + (0.0 if found["seconds"] else start))
            found[METRIC].append(epoch.validation)
            if epoch.validation >= goal:
                raise Enough

        fit_ours(who, dim, settings, seed, split, after)
        return found

    def told(spent: float, *embeddings: np.ndarray) -> None:
        found["seconds"].append(spent)
        if len(found["seconds"]) == settings["epochs"]:
            found[METRIC].append(ndcg_of(split, *embeddings))

    run(who, matrix_of(split.train), dim, settings, THREADS, seed, told)
    return found


def spent_on_start(settings: dict[str, Any], split: sl.splits.Split, dim: int, seed: int) -> float:
    """Seconds for the singular vectors, where the settings start from them."""
    if settings.get("init") != "svd":
        return 0.0
    began = time.perf_counter()
    singular_vectors(split.train.by_context, dim, seed)
    return time.perf_counter() - began


def fit_ours(who: str, dim: int, settings: dict[str, Any], seed: int, split: sl.splits.Split, after: Any) -> None:
    """Fit until whoever listens has enough."""
    with contextlib.suppress(Enough):
        model_of(who, dim, MORE.get(who, {}) | settings, seed).fit(
            split.train, validation=split, metric=METRIC, patience=settings["epochs"], every=1, callbacks=after,
            threads=THREADS, progress=False,
        )  # fmt: skip


def ask(log: Path | None, **question: Any) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.sgd",
        "one",
        json.dumps(question | {"data": str(question["data"])}),
    ]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode:
        raise SystemExit(f"{question['who']}: {child.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    if log is not None:
        with log.open("a") as out:
            out.write(json.dumps(found) + "\n")
    return found


# --- speed -----------------------------------------------------------------------------------------------------------


def speed(name: str, who: list[str], dim: int, data: Path, turns: int, log: Path | None, keep: bool) -> None:
    found: dict[str, list[dict[str, Any]]] = {one: [] for one in who}
    for _ in range(turns):
        for one in who:
            found[one].append(ask(log, do="speed", who=one, name=name, data=data, dim=dim))
    pairs = found[who[0]][0]["pairs"]
    told = ", ".join(f"{epochs} epochs of {which.upper()}" for which, epochs in EPOCHS.items())
    print(f"\n{name}, {pairs:,} pairs, d = {dim}: {told}, {turns} turns")
    head = "".join(f"{one:>9}" for one in ("s/epoch", "min", "max", "M/s", "first", "last", "in order"))
    print(f"{'':<18}{head}   ours, times as fast")
    mean = {one: [float(np.mean(turn["seconds"])) for turn in runs] for one, runs in found.items()}
    for one, values in mean.items():
        first, last = (median(turn["seconds"][k] for turn in found[one]) for k in (0, -1))
        ours = f"shortlist-{kind(one)}"
        ratios = sorted(quotients(values, mean[ours])) if one in PEERS and ours in mean else []
        ratio = f"   {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})" if ratios else ""
        quality = median(turn["in order"] for turn in found[one])
        print(
            f"{one:<18}{median(values):>9.3f}{min(values):>8.3f}{max(values):>8.3f}{pairs / median(values) / 1e6:>8.2f}"
            f"{first:>8.3f}{last:>8.3f}{quality:>10.4f}{ratio}",
            flush=True,
        )
    for ours in (one for one in who if one in OURS):
        peers = [one for one in who if one in PEERS and kind(one) == kind(ours)]
        if keep and peers:
            fastest = min(peers, key=lambda one: median(mean[one]))
            record(
                f"sgd-speed-{kind(ours)}-{name}-{dim}", question=f"an epoch of {OURS[ours]}, {name}, d = {dim}",
                ours=label(ours), against=label(fastest), what="peer's time / ours",
                ratios=quotients(mean[fastest], mean[ours]), packages=PACKAGES,
            )  # fmt: skip


# --- settings --------------------------------------------------------------------------------------------------------


def study_of(name: str, who: str) -> Path:
    return TRIALS / (f"{name}-sgd-{kind(who)}.csv" if who in OURS else f"{name}-peer-{who}.csv")


class Trial:
    """Told of epochs, it measures some of them and says when it is enough."""

    def __init__(self, split: sl.splits.Split, epochs: int, leader: list[tuple[int, float, float]]) -> None:
        self.split, self.limit, self.leader = split, epochs, leader
        self.epochs, self.trained = 0, 0.0
        self.curve: list[tuple[int, float, float]] = []  # epoch, training seconds, NDCG@20
        self.state = "complete"

    def told(self, seconds: float, users: np.ndarray, items: np.ndarray) -> None:
        """After an epoch of a peer."""
        self.epochs += 1
        self.trained += seconds
        if self.epochs % math.ceil(self.limit / 8) == 0:
            self.judge(ndcg_of(self.split, users, items))

    def after(self, epoch: Any) -> None:
        """After an epoch of ours, which comes with its figure."""
        self.epochs += 1
        self.trained += epoch.seconds
        self.judge(epoch.validation)

    def judge(self, value: float) -> None:
        """Raises `Enough` where there is no point in going on."""
        self.curve.append((self.epochs, self.trained, value if math.isfinite(value) else 0.0))
        at, _, top = max(self.curve, key=lambda one: one[2])
        if self.epochs < 0.3 * self.limit:  # figures are chance at first
            return
        there = [one[2] for one in self.leader if one[0] <= self.epochs]
        if there and 6 * top < 5 * max(there):
            self.state = "pruned"
            raise Enough
        if self.epochs >= self.limit / 2 and self.epochs - at >= 0.3 * self.limit:
            raise Enough


def tune(name: str, who: str, data: Path, n: int, epochs: int, users: int, seed: int) -> None:
    from scipy.stats import qmc

    whole = validation(name, data)
    split, path = some_of(whole, users), study_of(name, who)
    matrix = matrix_of(split.train)
    if who in OURS:
        compile_ours(who)
    low, high = np.log10(np.array(SPACE[who])).T
    names = ("learning_rate", "regularization", "margin")[: len(low)]
    rows = trials(path)
    points = qmc.Halton(len(low), seed=seed).random(len(rows) + n)[len(rows) :]
    rng = np.random.default_rng([seed, len(rows)])
    print(f"\n{name}, {who}: {len(split.train):,} pairs to learn from, {split.truth.n_contexts:,} contexts asked")
    leader: list[tuple[int, float, float]] = []  # the curve of the best of now
    for k in range(n):
        point = low + (points[k] if rows else 0.5) * (high - low)
        if k >= 0.6 * n:
            at = np.log10([best(rows, METRIC)[one] for one in names])
            near = at + rng.normal(0, 0.12, len(low)) * (high - low)
            point = at if k == n - 1 else np.clip(near, low, high)
        settings = {"dim": DIM} | {name: float(f"{10**value:.3g}") for name, value in zip(names, point)}
        most = epochs if k < n - 1 else 3 * epochs
        trial = Trial(split, epochs, leader)
        try:
            attempt(who, matrix, split, settings | {"epochs": most}, trial, seed)
        except (ValueError, FloatingPointError, sl.ShortlistError) as error:  # it diverged
            print(f"  {who} {settings}: {str(error)[:80]}")
        if not trial.curve:
            continue
        at, trained, value = max(trial.curve, key=lambda one: one[2])
        row = settings | {"epochs": at, "state": trial.state, METRIC: round(value, 6), "seconds": round(trained, 1)}
        rows.append(row)
        if trial.state == "complete" and value >= max((one[2] for one in leader), default=0.0):
            leader = trial.curve
        print(f"  {k + 1}/{n} {row} of {trial.epochs} epochs, {trial.trained / trial.epochs:.3f} s each", flush=True)
        write(path, rows)
    chosen = best(rows, METRIC)
    print(f"{name}, {who}: {chosen}", flush=True)


def attempt(who: str, matrix: Any, split: sl.splits.Split, settings: dict[str, Any], trial: Trial, seed: int) -> None:
    rest = {key: value for key, value in settings.items() if key != "dim"}
    if who not in OURS:
        run(who, matrix, settings["dim"], rest, THREADS, seed, trial.told)
        return
    fit_ours(who, settings["dim"], rest, seed, split, trial.after)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


# --- race ------------------------------------------------------------------------------------------------------------


def race(name: str, who: list[str], data: Path, turns: int, users: int, log: Path | None, keep: bool) -> None:
    chosen = {one: best(found, METRIC) for one in who if (found := trials(study_of(name, one)))}
    if missing := [one for one in who if one not in chosen]:
        print(f"{name}: no study of {', '.join(missing)}; run python -m benchmarks.speed.sgd tune NAME --data FOLDER")
    for ours in (one for one in chosen if one in OURS):
        peers = [one for one in chosen if one in PEERS and kind(one) == kind(ours)]
        if not peers:
            continue
        runs: dict[str, list[dict[str, Any]]] = {one: [] for one in (*peers, ours)}
        for turn in range(turns):
            for one, done in runs.items():  # ours last: peers set the goals
                goal = max((runs[peer][-1][METRIC][-1] for peer in peers), default=0.0) if one == ours else 0.0
                settings = {key: value for key, value in chosen[one].items() if key != "dim"}
                dim = chosen[one]["dim"]
                question = {"do": "race", "who": one, "name": name, "data": data, "dim": dim, "settings": settings}
                done.append(ask(log, **question, goal=goal, users=users, seed=turn))
        print(f"\n{name}, {OURS[ours]}, validation NDCG@20: seconds until the peer's at the end, {turns} turns")
        print(f"{'':<18}{'NDCG@20':>9}{'epochs':>8}{'s':>9}{'ours: epochs':>14}{'s':>9}   ours / peer")
        for peer in peers:
            ratios, spent, epochs = [], [], []
            for theirs, mine in zip(runs[peer], runs[ours]):
                reached = [k for k, value in enumerate(mine[METRIC]) if value >= theirs[METRIC][-1]]
                epochs.append(reached[0] + 1 if reached else math.inf)
                spent.append(sum(mine["seconds"][: reached[0] + 1]) if reached else math.inf)
                ratios.append(spent[-1] / sum(theirs["seconds"]))
            print(
                f"{peer:<18}{median(one[METRIC][-1] for one in runs[peer]):>9.4f}{chosen[peer]['epochs']:>8}"
                f"{median(sum(one['seconds']) for one in runs[peer]):>9.2f}{median(epochs):>14g}{median(spent):>9.2f}"
                f"   {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )
            if keep and all(map(math.isfinite, ratios)):
                record(
                    f"sgd-race-{kind(ours)}-{name}-{peer}",
                    question=f"{OURS[ours]} to the peer's validation NDCG@20, {name}, d = {DIM}", ours=label(ours),
                    against=label(peer), what="time / peer's time", ratios=ratios, packages=PACKAGES,
                )  # fmt: skip
        value = median(max(one[METRIC]) for one in runs[ours])
        print(f"ours: NDCG@20 up to {value:.4f}; {chosen[ours]}", flush=True)


if __name__ == "__main__":
    main()
