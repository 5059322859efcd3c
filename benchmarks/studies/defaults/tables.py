"""The tables of docs/benchmarks.md on defaults."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np

from benchmarks.studies.defaults.grids import GRIDS, OTHERS, Settings, default_of, ials
from benchmarks.studies.defaults.lines import read, text_of

SOURCES = {  # data sets that come from the same place leave together
    "ml-1m-ncf": "ml-1m",
    "ml-1m-sasrec": "ml-1m",
    "ml-1m-strong": "ml-1m",
    "anime-30pct": "anime",
    "anime-strong": "anime",
    "goodbooks-10k-v1": "goodbooks",
    "goodbooks-strong": "goodbooks",
    "beauty-bert4rec": "beauty",
    "s3rec-beauty": "beauty",
    "lastfm-hetrec2011": "lastfm",
    "s3rec-lastfm": "lastfm",
}


def source_of(name: str) -> str:
    """Where the data of a variant come from."""
    source = name.rpartition(" ")[0]
    return SOURCES.get(source, source)


def ndcgs(path: Path) -> dict[str, dict[str, float]]:
    """NDCG@20 by variant and settings."""
    scores: dict[str, dict[str, float]] = {}
    for line in read(path):
        scores.setdefault(line["variant"], {})[line["settings"]] = float(line["ndcg"])
    return scores


def ials_table(studies: Path) -> None:
    """Each variant: the default, the best fixed setting, implicit; then the rules without each source."""
    scores = ndcgs(studies / "defaults-ials.csv")
    fixed = [text_of(settings) for settings in ials() if "/I" not in text_of(settings)]
    best = {name: max(values[settings] for settings in fixed) for name, values in scores.items()}
    print("| data and split | `IALS()` | best of 30 | share | implicit | difference | standard error |")
    print("|---|---|---|---|---|---|---|")
    shares = []
    lines = sorted(read(studies / "defaults-implicit.csv"), key=lambda line: line["variant"])
    for line in lines:
        share = float(line["ndcg"]) / best[line["variant"]]
        shares.append(share)
        values = (float(line["ndcg"]), best[line["variant"]], share, float(line["implicit"]))
        both = float(line["difference"]), float(line["error"])
        print(f"| {line['variant']} | {' | '.join(figure(value) for value in values)} |", end=" ")
        print(f"{both[0]:+.4f} | {figure(both[1])} |".replace("+0.", "+.").replace("-0.", "−."))
    print(f"\nshare: mean {figure(np.mean(shares))}, least {figure(np.min(shares))}\n")
    print("| fixed settings and rules | mean share | least |\n|---|---|---|")
    every = {
        settings: [values[settings] / best[name] for name, values in scores.items()]
        for settings in map(text_of, ials())
    }
    for settings in sorted(every, key=lambda settings: -np.mean(every[settings])):
        print(f"| {settings} | {figure(np.mean(every[settings]))} | {figure(np.min(every[settings]))} |")
    print()
    shapes = {line["variant"]: (float(line["item_pairs"]), float(line["evenness"])) for line in lines}
    grid = itertools.product(
        (0.006, 0.007, 0.008, 0.009, 0.01, 0.011),
        (0.0, -0.1, -0.15, -0.2, -0.25, -0.3),
        (0.0, -0.1, -0.2, -0.3, -0.4),
        (8, 10, 12),
    )
    candidates = {
        rule: [rule_share(scores[name], best[name], *shapes[name], *rule) for name in scores] for rule in grid
    }
    values, rules = np.array(list(candidates.values())), list(candidates)
    sources = np.array([source_of(name) for name in scores])
    left_out = np.zeros(len(sources))
    for source in dict.fromkeys(sources):
        of_source = sources == source
        chosen = int(values[:, ~of_source].mean(axis=1).argmax())
        left_out[of_source] = values[chosen, of_source]
        level, by_pairs, by_evenness, kappa = rules[chosen]
        print(f"without {source}: λ = {level}·(n̄ / 30)^{by_pairs}·e^{by_evenness}, κ = {kappa}")
    print(
        f"share of what was chosen without the source: mean {figure(left_out.mean())}, least {figure(left_out.min())}"
    )


def rule_share(
    scores: dict[str, float], best: float, item_pairs: float, evenness: float, level: float, *rule: float
) -> float:
    """The share of λ = level·(n̄ / 30)^b·e^c and a κ, where `rule` is b, c and κ.

    Between the κ and λ of the study it is linear in their logarithms.
    """
    from scipy.interpolate import RegularGridInterpolator

    by_pairs, by_evenness, kappa = rule
    kappas, ridges = (4, 6, 8, 10, 13, 16, 20), (0.004, 0.006, 0.008, 0.01, 0.013, 0.016)
    usual = "dim=256 regularization={} unobserved_weight={}*n/I epochs=16"
    values = [[scores[usual.format(ridge, kappa)] / best for ridge in ridges] for kappa in kappas]
    ridge = level * (item_pairs / 30) ** by_pairs * evenness**by_evenness
    point = np.log([kappa, np.clip(ridge, ridges[0], ridges[-1])])
    return float(RegularGridInterpolator((np.log(kappas), np.log(ridges)), np.array(values))(point)[0])


def measured(studies: Path, kind: str) -> tuple[dict[str, dict[str, float]], dict[tuple[str, str], float]]:
    """NDCG@20 by variant and settings, and the CPU-seconds of each fit."""
    path = studies / f"defaults-{kind.lower()}.csv"
    return ndcgs(path), {(line["variant"], line["settings"]): float(line["seconds"]) for line in read(path)}


def others_table(studies: Path) -> None:
    """The models that are told of together: each data set now and before; the shares where all settings were tried."""
    studied = {kind: measured(studies, kind) for kind in OTHERS}
    both = {kind: (text_of(default_of(kind)), text_of(next(GRIDS[kind]()))) for kind in OTHERS}
    names = list(studied[OTHERS[0]][0])
    print(
        "| data | "
        + " | ".join(f"`{kind}()` | before" for kind in OTHERS)
        + " |\n|---"
        + "|---" * 2 * len(OTHERS)
        + "|"
    )
    for name in names:
        values = (figure(studied[kind][0][name][settings]) for kind in OTHERS for settings in both[kind])
        print(f"| {name.removesuffix(' random')} | {' | '.join(values)} |")
    head = ["", "settings tried", "mean share", "least", "before", "CPU-seconds of all", "before"]
    print(f"\n| {' | '.join(head)} |\n" + "|---" * len(head) + "|")
    for kind, (scores, seconds) in studied.items():
        tried = max(map(len, scores.values()))
        complete = [values for values in scores.values() if len(values) == tried]
        now, before = ([values[settings] / max(values.values()) for values in complete] for settings in both[kind])
        shares = " | ".join(map(figure, (np.mean(now), min(now), np.mean(before))))
        times = " | ".join(f"{sum(seconds[name, settings] for name in names):.0f}" for settings in both[kind])
        print(f"| `{kind}` | {tried} | {shares} | {times} |")


def sgd_table(studies: Path, kind: str, default: Settings) -> None:
    """Each data set: the default, the settings of before and the best; the mean share of every setting."""
    scores, seconds = measured(studies, kind)
    settings = [text_of(setting) for setting in GRIDS[kind]()]
    chosen, before = text_of(default), settings[0]
    scores = {name: values for name, values in scores.items() if len(values) == len(settings)}
    print(f"| data | `{kind}()` | before | best of {len(settings)} | share | CPU-seconds | before |")
    print("|---|---|---|---|---|---|---|")
    for name, values in scores.items():
        best = max(values.values())
        shown = (values[chosen], values[before], best, values[chosen] / best)
        times = (f"{seconds[name, setting]:.1f}" for setting in (chosen, before))
        print(f"| {name.removesuffix(' random')} | {' | '.join(map(figure, shown))} | {' | '.join(times)} |")
    print(f"\n| settings of `{kind}` | mean share | least | CPU-seconds |\n|---|---|---|---|")
    shares = {setting: [values[setting] / max(values.values()) for values in scores.values()] for setting in settings}
    for setting in sorted(settings, key=lambda setting: -np.mean(shares[setting])):
        mark = " (default)" * (setting == chosen) + " (before)" * (setting == before)
        total = sum(seconds[name, setting] for name in scores)
        share = f"{figure(np.mean(shares[setting]))} | {figure(np.min(shares[setting]))}"
        print(f"| {setting}{mark} | {share} | {total:.0f} |")


def figure(value: float) -> str:
    """As in the docs: without the zero before the point."""
    return f"{value:.4f}".replace("0.", ".", 1) if value < 1 else f"{value:.3f}"


def table(args: argparse.Namespace) -> None:
    """What docs/benchmarks.md shows."""
    if args.model == "IALS":
        ials_table(args.studies)
    elif args.model == "others":
        others_table(args.studies)
    else:
        sgd_table(args.studies, args.model, default_of(args.model))
