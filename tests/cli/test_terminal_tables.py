import io
import re
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given

from shortlist.cli.output import Output
from shortlist.cli.terminal_tables import draw_facts, draw_table

METRICS = ["recall@20", "ndcg@20", "coverage@20", "gini@20", "popularity@20", "novelty@20"]
MODELS = ["Popularity", "EASE", "IALS"]
WIDTHS = [80, 60, 40, 20]
WORDS = st.text("abc, ", max_size=30)
NUMBERS = st.from_regex(r"-?[0-9]{1,8}\.[0-9]{4}", fullmatch=True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def drawn(draw, *args, width, **more):
    """The lines on a terminal of that width."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stdout", Terminal())
        draw(*args, **more)
        return re.sub(r"\x1b\[[0-9;]*m", "", sys.stdout.getvalue()).splitlines()


def squeezed(text):
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize("width", WIDTHS)
def test_results_are_whole_at_any_width(width):
    rows = [[name, *(f"{k + j / 10:.4f} ± 0.0012" for j in range(6))] for k, name in enumerate(MODELS)]
    lines = drawn(draw_table, ["model", *METRICS], rows, [False] + [True] * 6, width=width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert all(name in text for name in [*MODELS, *METRICS])
    for row in rows:
        assert all(squeezed(cell) in squeezed(text) for cell in row) if width < 60 else all(c in text for c in row)
    assert all(text.count(f"{k}.0000") == 1 for k in range(3))


def test_a_table_of_numbers_is_turned_over_before_it_is_taken_apart():
    rows = [["EASE", *["0.1234"] * 6], ["IALS", *["0.5678"] * 6]]
    heads, right = ["model", *METRICS], [False] + [True] * 6
    assert drawn(draw_table, heads, rows, right, width=100)[0].split() == heads
    turned = drawn(draw_table, heads, rows, right, width=60)
    assert turned[0].split() == ["model", "EASE", "IALS"]
    assert [line.split()[0] for line in turned[2:]] == METRICS
    assert drawn(draw_table, heads, rows, right, width=24).count("") == 1  # a model after the other


def test_titles_are_broken_over_lines():
    rows = [["ann", "1", "a title of many words " * 4, "0.1234"]]
    args = (["user", "rank", "product", "score"], rows, [False, True, False, True])
    lines = drawn(draw_table, *args, width=60)
    assert lines[0].split() == ["user", "rank", "product", "score"]
    assert lines[2].startswith("ann")
    assert lines[2].endswith("0.1234")
    assert len(lines) > 3
    begin, end = lines[0].index("product"), lines[2].index("0.1234")
    assert " ".join(line[begin:end] for line in lines[2:]).split() == rows[0][2].split()


@pytest.mark.parametrize("width", WIDTHS)
def test_facts(width):
    pairs = [("contexts with one event", "12.5%"), ("events", "386,250 of 4,334 contexts"), ("", "path/" * 12)]
    lines = drawn(draw_facts, pairs, width=width)
    assert max(map(len, lines)) <= width
    for name, value in pairs:
        assert all(word in "\n".join(lines) for word in name.split())
        assert squeezed(value) in squeezed("".join(lines))
    assert any("386,250" in line for line in lines)


def test_output_draws_on_a_terminal():
    say = Output.__new__(Output)
    lines = drawn(say.table, ["model", "mrr"], [["EASE", 0.5]], right=["mrr"], width=40)
    assert lines[0].split() == ["model", "mrr"]
    assert lines[0] != "model  mrr"  # which a pipe would get
    assert "EASE" in lines[-1]
    assert [line.split() for line in drawn(say.facts, [("model", "EASE")], width=40)] == [["model", "EASE"]]


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.tuples(WORDS, *[NUMBERS] * n, WORDS), min_size=1, max_size=4),
    ),
    st.integers(20, 120),
)
def test_no_number_is_ever_cut(rows, width):
    size = len(rows[0])
    lines = drawn(
        draw_table,
        [f"head {k}" for k in range(size)],
        [list(row) for row in rows],
        [False, *[True] * (size - 2), False],
        width=width,
    )
    assert all(len(line.rstrip()) <= width for line in lines)
    for row in rows:
        for number in row[1:-1]:
            assert any(number in line for line in lines)
    shown = "".join(lines)
    for sign in "abc,":
        assert shown.count(sign) >= sum(text.count(sign) for row in rows for text in (row[0], row[-1]))
