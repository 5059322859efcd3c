"""The tables of docs/benchmarks.md on contexts, features, cold start and a second stage.

`planted`, `contexts`, `cold_items` and `two_stage` measure and store; `python -m benchmarks.quality.board render` puts
these tables on the page.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from textwrap import fill
from typing import Any

from benchmarks.lib.markdown import SHORT, figure, number, provenance, signed, table
from benchmarks.lib.results import MULTILINEAR, RERANKING, stored

ASKED = {"weekday": "user, weekday", "hour": "user, part of the day", "basket": "user, half a basket"}
NAMES = SHORT | {
    "part_strength": "strength of parts",
    "part_dim": "d of parts",
    "feature_strength": "strength of features",
    "min_count": "least count of a tag",
    "idf_exponent": "power of idf",
    "norm_exponent": "power of the length",
    "similarity_exponent": "power of the similarity",
}


def planted() -> str:
    """Recall of a planted tensor and of planted tags."""
    found = stored("planted", MULTILINEAR)
    parts = []
    for what, title in (("tensor", "Users × days × items"), ("tags", "Tastes by tags")):
        rows = [row for row in found["rows"] if row["what"] == what]
        groups = list(rows[0]["seeds"])
        lines = [
            [row["model"], *(_over_seeds(row["seeds"][group]) for group in groups), _told(row["settings"])]
            for row in rows
        ]
        for key, name in (("truth", "knowing the truth"), ("chance", "chance")):
            lines.append([name, *(figure(found["bounds"][what][f"{key}, {group}"]) for group in groups), ""])
        asked = {"seen": "seen pairs", "unseen": "unseen pairs", "warm": "observed items", "cold": "cold items"}
        head = ["model", *(f"Recall@20, {asked[group]}" for group in groups), "settings"]
        parts += [f"**{title}**", table(head, lines)]
    said = (
        f"Means over {found['seeds']} planted data sets, ± standard deviation; {found['trials']} trials for each model."
    )
    return "\n\n".join([*parts, said, provenance([("planted", found)])])


def contexts() -> str:
    """NDCG@20 of every kind of context, and the difference to IALS on users."""
    found = stored("contexts", MULTILINEAR)
    lines, chosen, verdicts = [], [], []
    for kind, asked in ASKED.items():
        for protocol in ("kept", "dropped"):
            rows = [row for row in found["rows"] if (row["kind"], row["protocol"]) == (kind, protocol)]
            size = next(one for one in found["questions"] if (one["kind"], one["protocol"]) == (kind, protocol))
            first = [asked, protocol, f"{size['questions']:,} of {size['users']:,} users"]
            for row in rows:
                lines.append([*first, row["model"], *_figures(row, "ndcg@20")])
                if row["trials"]:
                    told = [row["model"], _told(row["settings"]), figure(row["validation"])]
                    chosen.append([*first[:2], *told])
                first = ["", "", ""]
            verdicts.append(f"* {asked}, repeats {protocol}: {_verdict(rows[1:])}")
    head = ["question", "repeats", "questions", "model", "NDCG@20", "95 % interval", "to IALS", "95 % interval"]
    settings = table(["question", "repeats", "model", "settings", "validation"], chosen)
    events, one = found["events"], found["rows"][0]
    said = (
        f"Training has {events['train']:,} events, the test part {events['later']:,}. {one['trials']} trials for each "
        f"model and type of question. Scores of models with a seed are means over {len(one['seeds'])} seeds."
    )
    against = "Against IALS on users, by the intervals:\n\n" + "\n".join(verdicts)
    lines_of_pairs = [
        f"* {ASKED[pair['kind']]}, repeats {pair['protocol']}: {pair['model']} less {pair['less']} "
        f"{signed(pair['difference'])}, {' to '.join(signed(end) for end in pair['interval'])}"
        for kind in ASKED
        for pair in found["pairs"]
        if pair["kind"] == kind
    ]
    against += "\n\nAgainst the controls (95 % intervals):\n\n"
    against += "\n".join(lines_of_pairs)
    return "\n\n".join([table(head, lines), against, fill(said, 120), settings, provenance([("contexts", found)])])


def cold() -> str:
    """Recall of items without events, deep in the list and at its head."""
    found = stored("cold", MULTILINEAR)
    valid, test, rows = found["parts"]["valid"], found["parts"]["test"], found["rows"]
    lines, chosen, verdicts = [], [], []
    for by in dict.fromkeys(row["by"] for row in rows):
        own = [row for row in rows if row["by"] == by]
        first = by
        for row in own:
            deep, head = row["recall@100"], row["recall@20"]
            lines.append(
                [first, row["model"], *_figures(deep, "mean"), *_figures(head, "mean")[::2], *_apart(head)[1:]]
            )
            chosen.append([first, row["model"], _told(row["settings"]), str(row["trials"]), figure(row["validation"])])
            first = ""
        for metric in ("recall@100", "recall@20"):
            told = _verdict([{"model": row["model"], **row[metric]} for row in own[1:]])
            verdicts.append(f"* chosen by {by}, {metric.capitalize()} on test: {told}")
    lines.append(["", "chance", figure(test["random"]), "", "", "", figure(test["random"] / 5), "", ""])
    head = ["chosen by", "model", "Recall@100", "95 % interval", "to neighbours", "95 % interval"]
    said = (
        f"{test['users']:,} users, {test['candidates']:,} articles as candidates, of which {test['tagged']:,} have "
        f"tags. So no model can exceed {figure(test['most'])} ({figure(valid['most'])} on validation, "
        f"which has {valid['candidates']:,} candidates). Scores of "
        f"models with a seed are means over {max(len(row['seeds']) for row in rows)} seeds. Capped recall "
        f"differs by at most {figure(max(row['capped'] - row['recall@100']['mean'] for row in rows))}."
    )
    return "\n\n".join(
        [
            table([*head, "Recall@20", "to neighbours", "95 % interval"], lines),
            "Against the neighbours, by the intervals:\n\n" + "\n".join(verdicts),
            fill(said, 120),
            table(["chosen by", "model", "settings", "trials", "validation"], chosen),
            provenance([("cold", found)]),
        ]
    )


def two_stage() -> str:
    """NDCG@20 with and without a second stage, and the recall that it has to work with."""
    found = stored("two_stage", RERANKING)
    recall = f"recall@{found['candidates']}"
    lines, chosen, verdicts, facts = [], [], [], []
    for one, size in zip(found["protocols"], found["sizes"]):
        first = [one["repeats"], f"{size['test']:,}"]
        for row in one["rows"]:
            lines.append([*first, row["model"], *_figures(row["ndcg@20"], "mean"), figure(row[recall]["mean"])])
            if "features" in row:
                told = ", ".join(f"{name} {share:.0%}" for name, share in row["importance"][:4])
                counts = [f"{row[name]:,}" for name in ("lists", "features", "trees")]
                facts.append([one["repeats"], row["model"], *counts, told])
            first = ["", ""]
        told = _verdict([{"model": row["model"], **row["ndcg@20"]} for row in one["rows"][1:]])
        verdicts.append(f"* repeats {one['repeats']}: {told}")
        for metric, settings in one["settings"].items():
            best_value = max(trial[metric] for trial in one["trials"])
            chosen.append([one["repeats"], metric, _told(settings), figure(best_value)])
    head = ["repeats", "customers", "model", "NDCG@20", "95 % interval", "to the first row", "95 % interval"]
    events, one = found["events"], found["protocols"][0]
    said = (
        f"Training has {events['train']:,} events, the held-out part {events['held out']:,}, the test part "
        f"{events['test']:,}. {len(one['trials'])} trials of IALS for each protocol; scores are means over "
        f"{len(one['rows'][0]['ndcg@20']['seeds'])} seeds."
    )
    about = ["repeats", "second stage", "lists learned from", "features", "trees", "first by gain"]
    return "\n\n".join(
        [
            table([*head, recall.capitalize()], lines),
            "Against IALS chosen by NDCG@20, by the intervals:\n\n" + "\n".join(verdicts),
            fill(said, 120),
            table(about, facts),
            table(["repeats", "chosen by", "settings of IALS", "validation"], chosen),
            provenance([("two_stage", found)]),
        ]
    )


def _figures(row: dict[str, Any], metric: str) -> list[str]:
    low, high = map(figure, row["interval"])
    return [figure(row[metric]), f"{low} to {high}", *_apart(row)]


def _apart(row: dict[str, Any]) -> list[str]:
    """A difference and its interval; nothing for the one that others are compared with."""
    ends = row["difference_interval"]
    return [signed(row["difference"]), f"{signed(ends[0])} to {signed(ends[1])}"] if any(ends) else ["", ""]


def _verdict(rows: list[dict[str, Any]]) -> str:
    """Which models are above, below, or neither."""
    groups: dict[str, list[str]] = {"above": [], "below": [], "no real difference": []}
    for row in rows:
        low, high = row["difference_interval"]
        groups["above" if low > 0 else "below" if high < 0 else "no real difference"].append(row["model"])
    return "; ".join(f"{name}: {', '.join(models)}" for name, models in groups.items() if models) + "."


def _over_seeds(values: list[float]) -> str:
    return f"{figure(statistics.mean(values))} ± {figure(statistics.stdev(values))}"


def _told(settings: dict[str, Any]) -> str:
    return ", ".join(f"{NAMES.get(name, name)} = {number(value)}" for name, value in settings.items())


REGIONS: dict[str, Callable[[], str]] = {
    "planted": planted,
    "contexts": contexts,
    "cold": cold,
    "two_stage": two_stage,
}
