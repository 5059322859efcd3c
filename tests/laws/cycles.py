"""Cycles in a graph of imports: which modules reach each other, and which imports to take out."""

from __future__ import annotations

from collections.abc import Iterable

Edge = tuple[str, str]


def cycles(edges: Iterable[Edge]) -> list[frozenset[str]]:
    """Return the groups of nodes that reach each other (strongly connected components), the largest first."""
    graph: dict[str, list[str]] = {}
    loops = set()
    for start, end in sorted(edges):
        graph.setdefault(start, []).append(end)
        graph.setdefault(end, [])
        if start == end:
            loops.add(start)
    components = [part for part in _components(graph) if len(part) > 1 or part & loops]
    return sorted(components, key=lambda part: (-len(part), sorted(part)))


def edges_within(part: frozenset[str], edges: Iterable[Edge]) -> set[Edge]:
    """Return the edges between members of the group."""
    return {(start, end) for start, end in edges if start in part and end in part}


def needless(removed: Iterable[Edge], edges: set[Edge]) -> set[Edge]:
    """Return those removed edges that no longer exist, or that can all be put back without closing a cycle."""
    removed = set(removed)
    rest = edges - removed
    back = removed - edges
    for edge in sorted(removed & edges):
        if not cycles(rest | {edge}):
            rest.add(edge)
            back.add(edge)
    return back


def edges_to_remove(edges: set[Edge], prefer: Iterable[Edge] = ()) -> set[Edge]:
    """Return few edges without which there is no cycle, those in `prefer` first.

    The choice is greedy: few, but not always the fewest.
    """
    preferred = set(prefer)
    rest, removed = set(edges), set()
    while parts := cycles(rest):
        inside = edges_within(parts[0], rest)
        candidates = sorted(inside & preferred) or sorted(inside)
        worst = min(candidates, key=lambda edge: sum(len(part) ** 2 for part in cycles(inside - {edge})))
        rest.remove(worst)
        removed.add(worst)
    return removed - needless(removed, edges)  # a later removal may have made an earlier one needless


def cycle_complaints(name: str, listed: set[Edge], edges: set[Edge], advice: str) -> list[str]:
    """Return what a test must report: cycles without any listed edge, and listed edges that close none."""
    rest = edges - listed
    new = []
    for part in cycles(rest):
        breaks = " and ".join(f"{start} → {end}" for start, end in sorted(edges_to_remove(edges_within(part, rest))))
        new.append(f"new cycle among {', '.join(sorted(part))}: break it at {breaks}. {advice}")
    fixed = [
        f"no longer true: {start} → {end} closes a cycle. Remove the line '{start} {end}' from exceptions/{name}.txt."
        for start, end in sorted(needless(listed, edges))
    ]
    return new + fixed


def _components(graph: dict[str, list[str]]) -> list[frozenset[str]]:
    """Tarjan's algorithm without recursion."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    parts: list[frozenset[str]] = []
    for root, ends in graph.items():
        if root in number:
            continue
        work = [(root, iter(ends))]
        number[root] = low[root] = len(number)
        path.append(root)
        on_path.add(root)
        while work:
            node, following = work[-1]
            for end in following:
                if end not in number:
                    number[end] = low[end] = len(number)
                    path.append(end)
                    on_path.add(end)
                    work.append((end, iter(graph[end])))
                    break
                if end in on_path:
                    low[node] = min(low[node], number[end])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    cut = path.index(node)
                    parts.append(frozenset(path[cut:]))
                    on_path -= parts[-1]
                    del path[cut:]
    return parts
