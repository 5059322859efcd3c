"""The Markdown table of `peers.py`, made from the kept figures alone."""

from __future__ import annotations

import textwrap
from typing import Any

from benchmarks.questions.peers_libraries import FEATURES, LIBRARIES, PART, Library
from benchmarks.questions.peers_results import read

ABSENT = "–"
NORMAL = 1.96


def table() -> str:
    """Return the table with all notes, for docs/benchmarks.md."""
    sections = {name: read(name) for name in LIBRARIES}
    return "\n".join([*table_lines(sections), "", *notes(sections)])


def short_table() -> str:
    """Return the table with the notes that a reader of the README needs."""
    sections = {name: read(name) for name in LIBRARIES}
    epoch = sections["shortlist"]["epoch"]
    dim, pairs = epoch["dim"], epoch["data"]["training_pairs"] / 1e6
    note = (
        f"Training epoch (of iALS) and evaluation: {pairs:.1f} million pairs, d = {dim}, two threads. In brackets: "
        "how many times longer it takes than Shortlist. Runs of each library and of Shortlist alternated; the "
        "factor is the median of their ratios, so it can differ from the ratio of the seconds shown. ndcg@20: the "
        "default model on Online Retail, with a 95 % interval. Intervals: confidence intervals of metrics. A ✓ "
        f"under filters: you always get n results if n items remain after filtering. {PART}: only for some models, "
        "or only with an additional package. ᵃ With PyTorch, CPU build. ᵇ LightFM itself does not install; all "
        "figures are for its fork lightfm-next. ᶜ Fails with NumPy 2; measured with older versions of its "
        "dependencies. ᵈ It has no iALS; this is an epoch of its most similar model. [How this was "
        "measured](docs/benchmarks.md#comparison-with-other-libraries)."
    )
    return "\n".join(
        [*table_lines(sections), "", *textwrap.wrap(note, 120, break_long_words=False, break_on_hyphens=False)]
    )


def table_lines(sections: dict[str, Any]) -> list[str]:
    """Return the lines of the table: one for each library."""
    titles = ["library", "install, MB", "training epoch", "ndcg@20", "evaluation", *FEATURES]
    rows = [row(library, sections[library.name]) for library in LIBRARIES.values()]
    rule = ["---"] + ["---:"] * 4 + [":---:"] * len(FEATURES)
    return ["| " + " | ".join(cells) + " |" for cells in (titles, rule, *rows)]


def row(library: Library, sections: dict[str, Any]) -> list[str]:
    name = library.label + (f" {version(library, sections)}" if sections else "")
    measured = [size(sections), time(sections, "epoch", library), ndcg(sections), time(sections, "evaluation", library)]
    return [name, *measured, *(library.features.get(feature, ABSENT) for feature in FEATURES)]


def version(library: Library, sections: dict[str, Any]) -> str:
    versions = sections.get("install", {}).get("versions", {})
    name = library.name if library.requirement == "." else library.requirement
    return str(versions.get(name, ""))


def size(sections: dict[str, Any]) -> str:
    if "install" not in sections:
        return ABSENT
    section = sections["install"]
    text = f"{section['mb']:,.0f}"
    if "torch_mb" in section:
        text += " ᵃ"
    if "refused" in section and section["refused"]["error"]:
        text = f"does not install; fork: {text} ᵇ"
    if section["error"]:
        text += ", does not run ᶜ"
    return text


def time(sections: dict[str, Any], question: str, library: Library) -> str:
    """Seconds, and how many times as long that is as Shortlist takes."""
    if question not in sections:
        return ABSENT
    section = sections[question]
    text = f"{digits(section['median'])} s"
    if "ratio" in section:
        text += f" ({digits(section['ratio'])}×)"
    if question == "epoch" and library.like:
        text += " ᵈ"
    return text


def ndcg(sections: dict[str, Any]) -> str:
    if "quality" not in sections:
        return ABSENT
    section = sections["quality"]
    return f"{section['ndcg']:.3f} ± {NORMAL * section['stderr']:.3f}"


def digits(value: float) -> str:
    """Two significant digits, and all before the point."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.2g}" if value >= 0.0995 else f"{value:.1g}"


# --- what must be said -----------------------------------------------------------------------------------------------


def notes(sections: dict[str, dict[str, Any]]) -> list[str]:
    """Paragraphs below the table; each only where its figures are kept."""
    made = [columns(sections), defaults(sections), torch(sections), refused(sections), broken(sections)]
    made += [likes(sections), variants(sections), features(sections)]
    return [line for note in made if note for line in (note, "")][:-1]


def columns(sections: dict[str, dict[str, Any]]) -> str:
    """What the columns are, with the data as they were."""
    ours = sections["shortlist"]
    if not {"epoch", "evaluation", "quality"} <= set(ours):
        return ""
    data, retail = ours["epoch"]["data"], ours["quality"]["data"]
    return (
        f"Install: growth of an empty environment (Python {ours['install']['python']}) by `pip install`, without pip "
        f"and setuptools. Epoch: {data['training_pairs']:,} synthetic pairs, {data['users']:,} users × "
        f"{data['items']:,} items, d = {ours['epoch']['dim']}; evaluation: the whole catalogue for "
        f"{ours['evaluation']['data']['users_asked']:,} of these users with the same embeddings, by each library's own "
        f"function. {ours['epoch']['threads']} threads on {ours['epoch']['cores']} cores; in brackets the median ratio "
        f"to Shortlist over turns ({turns(sections)}). ndcg@20: default models on Online Retail split by time, "
        f"{retail['users_asked']:,} customers, 95 % interval over customers, the same metric code for all. Measured "
        f"{days(sections)}."
    )


def turns(sections: dict[str, dict[str, Any]]) -> str:
    numbers = sorted(
        {
            section[question]["turns"]
            for name, section in sections.items()
            for question in ("epoch", "evaluation")
            if name != "shortlist" and question in section
        }
    )
    return " or ".join(map(str, numbers))


def days(sections: dict[str, dict[str, Any]]) -> str:
    dates = sorted({part["when"] for section in sections.values() for part in section.values()})
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


def defaults(sections: dict[str, dict[str, Any]]) -> str:
    """What was run for epoch, quality and evaluation."""
    parts = []
    for name, library in LIBRARIES.items():
        kept = sections[name]
        if {"epoch", "quality"} <= set(kept):
            parts.append(f"{library.label.strip('*')}: {kept['epoch']['what']}; {kept['quality']['what']}")
    return "Epoch and default model. " + ". ".join(parts) + "." if parts else ""


def torch(sections: dict[str, dict[str, Any]]) -> str:
    parts = []
    for name, section in sections.items():
        part = section.get("install", {})
        if "torch_mb" not in part:
            continue
        text = f"{LIBRARIES[name].label} {part['mb'] - part['torch_mb']:,.0f} MB beside {part['torch_mb']:,.0f} MB"
        parts.append(text)
    if not parts:
        return ""
    return f"ᵃ With the CPU build of PyTorch, installed first; plain pip takes the one for CUDA. {'; '.join(parts)}."


def refused(sections: dict[str, dict[str, Any]]) -> str:
    parts = []
    for section in sections.values():
        part = section.get("install", {}).get("refused", {})
        if part.get("error"):
            requirement = section["install"]["requirement"]
            parts.append(
                f"ᵇ `pip install {part['requirement']}` does not install ({part['error']}); measured is its fork "
                f"`{requirement}`."
            )
    return " ".join(parts)


def broken(sections: dict[str, dict[str, Any]]) -> str:
    parts = []
    for name, section in sections.items():
        part = section.get("install", {})
        if part.get("error"):
            pins = ", ".join(f"`{pin}`" for pin in part["pinned"]["pins"])
            errors = part["error"]
            if part.get("repair", {}).get("error"):
                errors += f"; with {part['repair']['requirement']}: {part['repair']['error']}"
            parts.append(f"ᶜ {LIBRARIES[name].label} installs but does not run ({errors}); it was run with {pins}.")
    return " ".join(parts)


def likes(sections: dict[str, dict[str, Any]]) -> str:
    parts = []
    for name, section in sections.items():
        part = section.get("epoch", {}).get("like")
        if part:
            parts.append(f"{LIBRARIES[name].label} {digits(part['ratio'])} times as long as {part['what']}")
    return f"ᵈ Not iALS. Against the same loss: {'; '.join(parts)}." if parts else ""


def variants(sections: dict[str, dict[str, Any]]) -> str:
    parts = [
        f"{LIBRARIES[name].label} with {variant['what']}: {variant['ndcg']:.3f} ± {NORMAL * variant['stderr']:.3f}"
        for name, section in sections.items()
        for variant in section.get("quality", {}).get("variants", ())
    ]
    return f"ndcg@20 of {'; '.join(parts)}." if parts else ""


def features(sections: dict[str, dict[str, Any]]) -> str:
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in FEATURES.items())
    return f"{PART}: for some of its models only, or with a package installed beside it. The columns: {meanings}."
