"""Write the lists of exceptions anew from today's code: `python tests/laws/write_exceptions.py`.

For renames of modules and classes only. A list should not grow, so a longer one is not written; `--grow` does it all
the same, which is right only when a law is new or stricter.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from laws import exception_lists
from laws.cycles import edges_to_remove
from laws.exception_lists import FOLDER, Row
from laws.import_graph import imports_from_below, package_edges, runtime_edges
from laws.inheritance import recommenders, too_deep
from laws.names import old_names_in_use, repeated_classes, repeated_modules
from laws.old_names import OLD_NAMES
from laws.private_names import accesses
from laws.source_code import ROOT, read_modules


def todays_lists() -> dict[str, set[Row]]:
    """Every list of exceptions as it must be for today's code."""
    modules = read_modules(ROOT)
    edges, below = runtime_edges(modules), imports_from_below(modules)
    counts = {
        "inheritance": too_deep(recommenders()),
        "old_names": old_names_in_use(modules, OLD_NAMES),
        "same_name_modules": repeated_modules(modules),
        "same_name_classes": repeated_classes(modules),
    }
    return {
        "imports": below,
        "cycles": edges_to_remove(edges, below),
        "package_cycles": edges_to_remove(package_edges(edges), package_edges(below)),
        "private_names": {(use.module, use.name, use.across) for use in accesses(modules)},
        **{name: {(*row, str(number)) for row, number in rows.items()} for name, rows in counts.items()},
    }


def main(grow: bool) -> bool:
    """Write the lists; return whether each could be written."""
    grown = set()
    for name, rows in todays_lists().items():
        before, after = _size(exception_lists.read(name)), _size(rows)
        sys.stdout.write(f"{name}: {before} → {after}\n")
        if after > before and not grow:
            grown.add(name)
            continue
        path = FOLDER / f"{name}.txt"
        header = [line for line in path.read_text().splitlines() if line.startswith("#")]
        path.write_text("\n".join([*header, *sorted(" ".join(row) for row in rows)]) + "\n")
    if grown:
        sys.stdout.write(f"Not written, as they would grow: {', '.join(sorted(grown))}. Fix the code instead.\n")
    return not grown


def _size(rows: set[Row]) -> int:
    return sum(int(row[-1]) if row[-1].isdigit() else 1 for row in rows)


if __name__ == "__main__":
    sys.exit(not main(grow="--grow" in sys.argv[1:]))
