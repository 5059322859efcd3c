"""The regions of docs/benchmarks.md that nobody edits by hand, rendered from the stored results."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shortlist as sl
from benchmarks.lib.markdown import GPU, SHORT, figure, number, percent, provenance, signed, table
from benchmarks.lib.paths import PAGE, QUALITY, SPEED, TRIALS
from benchmarks.lib.trials import complete, settings_of, trials
from benchmarks.quality.rows import PUBLISHED, SETS, DataSet, Row, data_set
from benchmarks.questions import fold_in_quality, peers_table, slate_diversity
from benchmarks.questions import tables as question_tables
from benchmarks.speed import fold_in, retrieval
from shortlist.evaluation.comparison import verdict_of
from shortlist.recommenders.registry import recommender_class

Results = list[tuple[Row, dict[str, Any]]]
SCRIPTS = ("evaluation", "retrieval", "batch", "neighbours", "reading", "memory", "ials-race", "ials-exact")
SCRIPTS += (
    "ials-bound",
    "sgd-speed",
    "sgd-race",
    "multilinear-epoch",
    "multilinear-growth",
    "slates",
    "fold_in",
    "loading",
    "gpu",
)


def write(page: Path = PAGE) -> None:
    """Render the regions anew."""
    page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")


def rendered(text: str) -> str:
    """A page with its regions as the stored results are."""
    more: dict[str, Callable[[], str]] = {
        **question_tables.REGIONS,
        "fold-in times": fold_in.times,
        "fold-in quality": fold_in_quality.people,
        "slates": slate_diversity.curve,
        "retrieval": retrieval.board,
        "peers": peers_table.table,
    }
    regions = {"quality": quality, "speed": speed, "tuning": tuning, "starts": starts, **more}
    for name, content in ((name, of_now()) for name, of_now in regions.items()):
        begin, end = f"<!-- board: {name} -->", f"<!-- end of board: {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise SystemExit(f"the page has no place for the board of {name}: it needs the lines {begin} and {end}")
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n{content}\n\n{end}{rest.split(end)[1]}"
    return text


# --- quality ---------------------------------------------------------------------------------------------------------


def quality() -> str:
    """Tables of every data set, and where they were measured."""
    sets = [data_set(name) for name in SETS]
    results = [(row, result) for measured in sets for row in measured.rows if (result := stored(row)) is not None]
    measured_on = provenance((f"{row.data} {_name(row, result)}", result) for row, result in results)
    return "\n\n".join(
        [*(_of_set(measured, [pair for pair in results if pair[0] in measured.rows]) for measured in sets), measured_on]
    )


def stored(row: Row) -> dict[str, Any] | None:
    """The result of a row, if there is one of the settings that it has now."""
    path = QUALITY / f"{row.key}.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result if result["settings"] == row.settings else None


def deterministic(model: str) -> bool:
    """Whether it needs no seed."""
    return "seed" not in {field.name for field in dataclasses.fields(recommender_class(model))}  # type: ignore[arg-type]


def _of_set(measured: DataSet, results: Results) -> str:
    parts = [f"### {measured.name}", _figures(results), verdict(measured, results), _settings(results)]
    shown = [row.key for row, _ in results]
    if missing := [row.label for row in measured.rows if row.key not in shown]:
        parts.append(f"No figures with the present settings yet: {'; '.join(missing)}.")
    return "\n\n".join(part for part in parts if part)


def _name(row: Row, result: dict[str, Any]) -> str:
    return row.label + (GPU if result["device"] else "")


def _figures(results: Results) -> str:
    head = ["recommender", "metric", "published", "ours", "95 % interval", "± between seeds", "seeds", "fit, s"]
    lines = []
    for row, result in results:
        seeds = f"{len(result['seeds']) or ''}{', of ties' if deterministic(row.model) and result['seeds'] else ''}"
        name, seconds = _name(row, result), _seconds(result["fit_seconds"])
        for metric, values in result["metrics"].items():
            published = f"{figure(row.published[metric])} ({row.source})" if metric in row.published else ""
            ours = [figure(values["mean"] + sides * values["stderr"]) for sides in (0, -1.96, 1.96)]
            lines.append(
                [name, metric, published, ours[0], f"{ours[1]} to {ours[2]}", _spread(row, values), seeds, seconds]
            )
            name = seeds = seconds = ""  # once a recommender
    return table(head, lines)


def _spread(row: Row, values: dict[str, Any]) -> str:
    """Between seeds; of a recommender that has none, between the orders of tied items."""
    spread = statistics.stdev(values["seeds"]) if len(values["seeds"]) > 1 else None
    if not deterministic(row.model):
        return "" if spread is None else figure(spread)
    return "deterministic" + (f", ties {figure(spread)}" if spread is not None and spread >= 0.00005 else "")


def _settings(results: Results) -> str:
    lines = []
    for row, result in results:
        if not row.study:
            continue
        told = ", ".join(f"{SHORT.get(name, name)} = {number(value)}" for name, value in row.settings.items())
        where = [f"of the {row.source}" if row.source == "reference" else f"of {row.source}", "", ""]
        if study := result["study"]:
            where = [f"`{study['file']}`", str(study["trials"]), f"{study['metric']} {figure(study['value'])}"]
        lines.append([_name(row, result), told, *where])
    return table(["recommender", "settings", "study", "trials", "validation"], lines) if lines else ""


def verdict(measured: DataSet, results: Results) -> str:
    """Which recommender is best, and from which it cannot be told: paired, by the contexts' means over seeds."""
    metric, known, without = measured.verdict, {}, []
    for row, result in results:
        if row.study == PUBLISHED:
            continue
        values = per_context(row, result, metric)
        if values is None:
            without.append(_name(row, result))
        else:
            contexts = pl.DataFrame({"context": np.arange(len(values))})
            known[row.label] = sl.Evaluation(row.model, measured.protocol, contexts, {metric: values})
    left_out = f" (Without {', '.join(without)}: no values by context are stored.)" if without else ""
    if len(known) < 2:
        return left_out.strip()
    compared = sl.compare(*known.values(), names=list(known)).rows
    groups: dict[str, list[str]] = {}
    for row in compared:
        difference, low, high = (signed(row[name]) for name in ("difference", "low", "high"))
        told = verdict_of(row)
        groups.setdefault(told, []).append(
            row["model"] + ("" if told == "best" else f" ({difference}, {low} to {high})")
        )
    said = "; ".join(f"{what}: {', '.join(names)}" for what, names in groups.items())
    return f"By {metric}, {said}.{left_out}"


def per_context(row: Row, result: dict[str, Any], metric: str) -> np.ndarray | None:
    """The values by context, where they are stored and are those of the result."""
    path = QUALITY / f"{row.key}.npz"
    if not path.exists():
        return None
    values = np.load(path)["values"].astype(np.float64)
    same = len(values) == result["contexts"] and abs(values.mean() - result["metrics"][metric]["mean"]) < 1e-5
    return values if same else None


# --- tuning ----------------------------------------------------------------------------------------------------------


def tuning() -> str:
    """What `tune` finds for IALS in some minutes, beside the best of a hundred trials."""
    lines = []
    for measured in map(data_set, SETS):
        bar, tuned = (trials(TRIALS / f"{measured.name}-ials-{which}.csv") for which in ("256", "tuned"))
        if not bar or not tuned:
            continue
        metric = measured.validation
        goal = max(trial[metric] for trial in complete(bar, metric))
        winner = max(complete(tuned, metric), key=lambda trial: trial[metric])
        pairs = done_both_ways(tuned, metric)
        epochs = (statistics.mean(pair[k]["epochs"] for pair in pairs) for k in (0, 1))
        gain = statistics.mean(warm[metric] / cold[metric] - 1 for warm, cold in pairs)
        states = [trial["state"] for trial in tuned]
        lines.append(
            [
                measured.name,
                metric,
                f"{len(bar)}",
                figure(goal),
                f"{sum(trial['seconds'] for trial in tuned) / 60:.0f}",
                f"{len(tuned)}",
                f"{states.count('pruned')}",
                str(winner["dim"]),
                figure(winner[metric]),
                percent(winner[metric] / goal - 1),
                " and ".join(f"{mean:.3g}" for mean in epochs),
                percent(gain),
            ]
        )
    head = ["data", "metric", "trials of the study", "its best", "minutes of `tune`", "trials", "given up", "d"]
    return table([*head, "its best", "difference", "epochs, warm and cold", "warm against cold"], lines)


def done_both_ways(study: list[dict[str, Any]], metric: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Trials that began from a smaller model, each with the one of the same settings that began from nothing."""

    def searched(trial: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings_of(trial).items() if name != "epochs"}

    cold = complete(study, metric)
    warm = [trial for trial in study if trial["state"] == "complete" and "start" in trial]
    return [(trial, other) for trial in warm for other in cold if searched(trial) == searched(other)]


# --- starts ----------------------------------------------------------------------------------------------------------


def starts() -> str:
    """How far factorizations by sampling get on gowalla's validation, by how they begin."""
    metric, lines = data_set("gowalla").validation, []
    for name in ("BPR", "AdaptiveBPR", "WARP", "LambdaMF", "SoftmaxMF"):
        ended = complete(trials(TRIALS / f"gowalla-{name.lower()}.csv"), metric)
        line = [name]
        for init in ("random", "svd"):
            values = [trial[metric] for trial in ended if (trial["init"], trial["dim"]) == (init, 256)]
            line += [f"{len(values)}", figure(max(values))]
        lines.append(line)
    return table(["recommender", "trials at random", "the best", "trials from singular vectors", "the best"], lines)


# --- speed -----------------------------------------------------------------------------------------------------------


def speed() -> str:
    """One table of all ratios."""
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in SPEED.glob("*.json")}
    names = sorted(results, key=_place)
    lines = []
    for name in names:
        row = results[name]
        script = re.search(r"-m benchmarks\.([\w.]+)", row["command"])
        lines.append(
            [
                row["question"],
                row["ours"] + (GPU if row["device"] else ""),
                row["against"],
                row["what"],
                f"{row['ratio']:.3g}",
                row.get("note") or ("" if row["low"] is None else f"{row['low']:.3g} to {row['high']:.3g}"),
                str(row["runs"]),
                f"`{script[1].replace('.', '/')}.py`" if script else "",
            ]
        )
    head = ["question", "ours", "against", "ratio of", "ratio", "range", "runs", "script"]
    scripts = ((_script(name).replace("-", " "), results[name]) for name in names)
    return "\n\n".join([table(head, lines), provenance(scripts)])


def _script(name: str) -> str:
    return next((script for script in SCRIPTS if name.startswith(script)), name)


def _place(name: str) -> tuple[Any, ...]:
    """By script, and numbers in a name by their size."""
    parts = re.split(r"(\d+)", name)
    script = _script(name)
    order = SCRIPTS.index(script) if script in SCRIPTS else len(SCRIPTS)
    return (order, *(int(part) if k % 2 else part for k, part in enumerate(parts)))


def _seconds(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:.0f}" if middle >= 10 else f"{middle:.1f}"
