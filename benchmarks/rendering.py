"""The board as text: from the stored results to the regions of docs/benchmarks.md that nobody edits by hand."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shortlist as sl
from rows import PUBLISHED, SETS, STUDIES, DataSet, Row, complete, data_set, settings_of, trials
from shortlist.evaluation.comparison import verdict_of
from shortlist.recommenders.registry import recommender_class

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
QUALITY, SPEED = HERE / "results" / "quality", HERE / "results" / "speed"
GPU = "†"
MANY = 4  # rows that are not named one by one
Found = list[tuple[Row, dict[str, Any]]]
SCRIPTS = ("evaluation", "retrieval", "batch", "neighbours", "reading", "memory", "ials-race", "ials-exact")
SCRIPTS += (
    "ials-bound",
    "sgd-speed",
    "sgd-race",
    "multilinear-epoch",
    "multilinear-growth",
    "slates",
    "fold_in",
    "gpu",
)
SHORT = {
    "dim": "d",
    "regularization": "λ",
    "regularization_exponent": "ν",
    "unobserved_weight": "α₀",
    "unobserved_item_exponent": "ρ of items",
    "unobserved_context_exponent": "ρ of contexts",
    "neighbours": "k",
    "l1": "λ₁",
    "l2": "λ₂",
}


def write(page: Path = PAGE) -> None:
    """Render the regions anew."""
    page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")


def rendered(text: str) -> str:
    """A page with its regions as the stored results are."""
    import fold_in  # which have their tables made by functions from here
    import multilinear_tables
    import retrieval
    import slates

    more = {**multilinear_tables.REGIONS, **fold_in.REGIONS, "slates": slates.curve, "retrieval": retrieval.board}
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
    found = [(row, result) for one in sets for row in one.rows if (result := stored(row)) is not None]
    measured_on = provenance((f"{row.data} {_name(row, result)}", result) for row, result in found)
    return "\n\n".join([*(_of_set(one, [pair for pair in found if pair[0] in one.rows]) for one in sets), measured_on])


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


def _of_set(measured: DataSet, found: Found) -> str:
    parts = [f"### {measured.name}", _figures(found), verdict(measured, found), _settings(found)]
    shown = [row.key for row, _ in found]
    if missing := [row.label for row in measured.rows if row.key not in shown]:
        parts.append(f"No figures with the present settings yet: {'; '.join(missing)}.")
    return "\n\n".join(part for part in parts if part)


def _name(row: Row, result: dict[str, Any]) -> str:
    return row.label + (GPU if result["device"] else "")


def _figures(found: Found) -> str:
    head = ["recommender", "metric", "published", "ours", "95 % interval", "± between seeds", "seeds", "fit, s"]
    lines = []
    for row, result in found:
        seeds = f"{len(result['seeds']) or ''}{', of ties' if deterministic(row.model) and result['seeds'] else ''}"
        name, seconds = _name(row, result), _seconds(result["fit_seconds"])
        for metric, one in result["metrics"].items():
            published = f"{figure(row.published[metric])} ({row.source})" if metric in row.published else ""
            ours = [figure(one["mean"] + sides * one["stderr"]) for sides in (0, -1.96, 1.96)]
            lines.append(
                [name, metric, published, ours[0], f"{ours[1]} to {ours[2]}", _spread(row, one), seeds, seconds]
            )
            name = seeds = seconds = ""  # once a recommender
    return table(head, lines)


def _spread(row: Row, one: dict[str, Any]) -> str:
    """Between seeds; of a recommender that has none, between the orders of tied items."""
    spread = statistics.stdev(one["seeds"]) if len(one["seeds"]) > 1 else None
    if not deterministic(row.model):
        return "" if spread is None else figure(spread)
    return "deterministic" + (f", ties {figure(spread)}" if spread is not None and spread >= 0.00005 else "")


def _settings(found: Found) -> str:
    lines = []
    for row, result in found:
        if not row.study:
            continue
        told = ", ".join(f"{SHORT.get(name, name)} = {number(value)}" for name, value in row.settings.items())
        where = [f"of the {row.source}" if row.source == "reference" else f"of {row.source}", "", ""]
        if study := result["study"]:
            where = [f"`{study['file']}`", str(study["trials"]), f"{study['metric']} {figure(study['value'])}"]
        lines.append([_name(row, result), told, *where])
    return table(["recommender", "settings", "study", "trials", "validation"], lines) if lines else ""


def verdict(measured: DataSet, found: Found) -> str:
    """Which recommender is best, and from which it cannot be told: paired, by the contexts' means over seeds."""
    metric, known, without = measured.verdict, {}, []
    for row, result in found:
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
    for one in compared:
        difference, low, high = (signed(one[name]) for name in ("difference", "low", "high"))
        told = verdict_of(one)
        groups.setdefault(told, []).append(
            one["model"] + ("" if told == "best" else f" ({difference}, {low} to {high})")
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
        bar, own = (trials(STUDIES / f"{measured.name}-ials-{which}.csv") for which in ("256", "tuned"))
        if not bar or not own:
            continue
        metric = measured.validation
        goal = max(one[metric] for one in complete(bar, metric))
        found = max(complete(own, metric), key=lambda one: one[metric])
        pairs = done_both_ways(own, metric)
        epochs = (statistics.mean(pair[k]["epochs"] for pair in pairs) for k in (0, 1))
        gain = statistics.mean(warm[metric] / cold[metric] - 1 for warm, cold in pairs)
        states = [one["state"] for one in own]
        lines.append(
            [
                measured.name,
                metric,
                f"{len(bar)}",
                figure(goal),
                f"{sum(one['seconds'] for one in own) / 60:.0f}",
                f"{len(own)}",
                f"{states.count('pruned')}",
                str(found["dim"]),
                figure(found[metric]),
                percent(found[metric] / goal - 1),
                " and ".join(f"{one:.3g}" for one in epochs),
                percent(gain),
            ]
        )
    head = ["data", "metric", "trials of the study", "its best", "minutes of `tune`", "trials", "given up", "d"]
    return table([*head, "its best", "difference", "epochs, warm and cold", "warm against cold"], lines)


def done_both_ways(found: list[dict[str, Any]], metric: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Trials that began from a smaller model, each with the one of the same settings that began from nothing."""

    def searched(trial: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings_of(trial).items() if name != "epochs"}

    cold = complete(found, metric)
    warm = [one for one in found if one["state"] == "complete" and "start" in one]
    return [(one, other) for one in warm for other in cold if searched(one) == searched(other)]


# --- starts ----------------------------------------------------------------------------------------------------------


def starts() -> str:
    """How far factorizations by sampling get on gowalla's validation, by how they begin."""
    metric, lines = data_set("gowalla").validation, []
    for name in ("BPR", "AdaptiveBPR", "WARP", "LambdaMF", "SoftmaxMF"):
        ended = complete(trials(STUDIES / f"gowalla-{name.lower()}.csv"), metric)
        line = [name]
        for init in ("random", "svd"):
            own = [one[metric] for one in ended if (one["init"], one["dim"]) == (init, 256)]
            line += [f"{len(own)}", figure(max(own))]
        lines.append(line)
    return table(["recommender", "trials at random", "the best", "trials from singular vectors", "the best"], lines)


# --- speed -----------------------------------------------------------------------------------------------------------


def speed() -> str:
    """One table of all ratios."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in SPEED.glob("*.json")}
    names = sorted(found, key=_place)
    lines = []
    for name in names:
        row = found[name]
        script = re.search(r"benchmarks/\w+\.py", row["command"])
        lines.append(
            [
                row["question"],
                row["ours"] + (GPU if row["device"] else ""),
                row["against"],
                row["what"],
                f"{row['ratio']:.3g}",
                row.get("note") or ("" if row["low"] is None else f"{row['low']:.3g} to {row['high']:.3g}"),
                str(row["runs"]),
                f"`{script[0].removeprefix('benchmarks/')}`" if script else "",
            ]
        )
    head = ["question", "ours", "against", "ratio of", "ratio", "range", "runs", "script"]
    scripts = ((_script(name).replace("-", " "), found[name]) for name in names)
    return "\n\n".join([table(head, lines), provenance(scripts)])


def _script(name: str) -> str:
    return next((one for one in SCRIPTS if name.startswith(one)), name)


def _place(name: str) -> tuple[Any, ...]:
    """By script, and numbers in a name by their size."""
    parts = re.split(r"(\d+)", name)
    script = _script(name)
    order = SCRIPTS.index(script) if script in SCRIPTS else len(SCRIPTS)
    return (order, *(int(part) if k % 2 else part for k, part in enumerate(parts)))


# --- text ------------------------------------------------------------------------------------------------------------


def provenance(found: Iterable[tuple[str, dict[str, Any]]]) -> str:
    """When and on what the rows were measured, those with the same answer together; and how, where it took a GPU."""
    groups: dict[str, list[str]] = {}
    for name, row in found:
        told = ", ".join(f"{package} {version}" for package, version in row["versions"].items())
        if row["device"]:
            said = f"{GPU} {row['when']} on {row['device']} ({row['machine']}); {told}; `{row['command']}`"
        else:
            said = f"{row['when']} on {row['machine']}; {told}"
        groups.setdefault(said, []).append(name)
    many = max(groups, key=lambda said: len(set(groups[said])))
    if len(set(groups[many])) > MANY:
        groups[many] = ["all others" if len(groups) > 1 else "all"]
    return "\n".join(f"* {'; '.join(dict.fromkeys(names))}: {said}" for said, names in groups.items())


def table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *lines])


def figure(value: float) -> str:
    """Four digits, without the zero in front.

    >>> figure(0.45304)
    '.4530'
    """
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.4f}").replace("-", "−")


def percent(value: float) -> str:
    return f"{100 * value:+.1f} %".replace("-", "−")


def signed(value: float) -> str:
    return ("+" if value >= 0 else "") + figure(value)


def number(value: Any) -> str:
    """A setting: three digits are enough to know it by; the file of settings has it whole."""
    if isinstance(value, float) and value >= 1000:
        return f"{value:,.0f}"
    if isinstance(value, float):
        return re.sub(r"^(-?)0\.", r"\1.", f"{value:.3g}").replace("-", "−")
    return str(value)


def _seconds(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:.0f}" if middle >= 10 else f"{middle:.1f}"
