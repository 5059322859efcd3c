"""Parts as text: read back as they were written, and never executed."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist._parts import format_part, parse_part
from shortlist.errors import SettingError, ShortlistError
from shortlist.objectives import OBJECTIVES, WEIGHTS, LambdaRank, Linear, Pairwise, Pointwise, Softmax, Step, TopN
from shortlist.sampling import SAMPLERS, AdaptiveRank, AllItems, InBatch, Popularity, Rejection, Uniform

KINDS = {**OBJECTIVES, **SAMPLERS, **WEIGHTS}
PARTS = [
    *(kind() for kind in KINDS.values()),
    Pointwise("hinge", 0.25),
    Pairwise("square", 0.25),
    Softmax(0.07),
    Uniform("positive"),
    Popularity(1e-07, "positive"),
    InBatch("positive"),
    AdaptiveRank(12.5, refresh=1000),
    Rejection(0.0, 7, "positive"),
    AllItems("history"),
    Step(3),
    TopN(20),
    LambdaRank("ap@20", "exact", 5),
]


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_there_and_back(part):
    assert parse_part("part", repr(part), KINDS) == part
    assert parse_part("part", format_part(part), KINDS) == part
    assert parse_part("part", part, KINDS) is part


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Uniform", Uniform()),
        ("uniform", Uniform()),
        ("UNIFORM()", Uniform()),
        ("  Popularity( 0.25 )  ", Popularity(0.25)),
        ("popularity(.25, exclude='positive')", Popularity(0.25, "positive")),
        ('Popularity(exclude="positive", beta=1)', Popularity(1, "positive")),
        ("AdaptiveRank(gamma=50)", AdaptiveRank(50)),
        ("adaptiverank(5e1, refresh=None)", AdaptiveRank(50.0)),
        ("Pairwise('hinge')", Pairwise("hinge")),
        ("linear", Linear()),
        ("Rejection(\n  margin=0.5,\n)", Rejection(0.5)),
    ],
)
def test_how_it_may_be_written(text, part):
    assert parse_part("part", text, KINDS) == part


def test_numbers_of_numpy_are_written_as_plain_ones():
    part = Rejection(np.float32(0.5), np.int64(7))
    assert format_part(part) == "Rejection(margin=0.5, rounds=7, exclude='history')"
    assert parse_part("part", format_part(part), KINDS) == part


BAD = [
    "",
    " ",
    "()",
    "Uniform(",
    "Uniform)",
    "Uniform(); Uniform()",
    "Uniform() or Uniform()",
    "lambda: Uniform()",
    "[Uniform()]",
    "Uniform()()",
    "x = Uniform()",
    "shortlist.Uniform()",
    "Uniform.bind(None)",
    "__import__('os').system('false')",
    "Uniform(__import__('os').getcwd())",
    "Uniform(exclude=open('/etc/hostname').read())",
    "Uniform(exclude=exclude)",
    "Uniform(exclude=Uniform)",
    "Uniform(exclude=Uniform())",
    "Uniform(exclude='history'.lower())",
    "Uniform(exclude=('history',)[0])",
    "Uniform(exclude=f'{1}')",
    "Uniform(*['history'])",
    "Uniform(**{'exclude': 'history'})",
    "Uniform(exclude='a' 'b')",
    "Uniform(exclude=(yield))",
    "Uniform(e := 'history')",
    "Popularity(2 ** 1000000)",
    "Popularity([0.5] * 3)",
    "Popularity({[]: 1})",
    "Popularity({{}})",
    "Popularity(1j)",
    "Popularity(...)",
    "Popularity(1e999)",
    "Popularity(-1)",
    "Popularity(True)",
    "Popularity(b'1')",
    "Popularity('1')",
    "Popularity(beta=0.5, beta=0.6)",
    "Popularity(0.5, beta=0.5)",
    "Popularity(0.5, 'history', 3)",
    "Popularity(gamma=3)",
    "Linear(1)",
    "Step(1.5)",
    "Step(0x" + "f" * 900 + ")",
    "Step(0x" + "f" * 100_000 + ")",
    "Step(" + "1" * 5_000 + ")",
    "Step(" + "-" * 200_000 + "1)",
    "Step(" + "(" * 100_000 + "1" + ")" * 100_000 + ")",
    "Step(" + "[" * 90 + "]" * 90 + ")",
    "Step(" + "1+" * 100_000 + "1)",
    "Step" + ".n" * 100_000,
    "Uniform" + "(" * 90 + ")" * 90,
    "Uniform('" + "x" * 100_000 + "')",
    "\0",
    "Uniform\0",
    "\ud800",
    "Únïform(é=1)",
]


@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text[:40]))
def test_what_is_no_part_is_refused(text):
    with pytest.raises(SettingError) as told:
        parse_part("sampler", text, KINDS)
    assert len(str(told.value)) < 1_500


@given(st.text(max_size=60) | st.text("Uniform()[]{},='\"0123456789.-+*:#\\\n \tj_", max_size=60))
def test_any_text_is_a_part_or_refused(text):
    with suppress(SettingError):
        parse_part("part", text, KINDS)


def test_nothing_is_executed(tmp_path):
    there = tmp_path / "there"
    for text in (
        f"Uniform(open({str(there)!r}, 'w'))",
        f"Uniform(exclude=__import__('pathlib').Path({str(there)!r}).touch())",
        f"open({str(there)!r}, 'w')",
        f"__import__('pathlib').Path({str(there)!r}).touch()",
        f"(lambda: open({str(there)!r}, 'w'))()",
        f"Uniform(*[open({str(there)!r}, 'w')])",
        f"Uniform(**{{'exclude': open({str(there)!r}, 'w')}})",
    ):
        with pytest.raises(SettingError):
            parse_part("sampler", text, KINDS)
    assert not there.exists()


@pytest.mark.parametrize("given", [None, 5, 0.5, b"Uniform()", ["Uniform()"], {"Uniform": {}}, Uniform, object()])
def test_what_is_neither_object_nor_text(given):
    with pytest.raises(
        SettingError, match=r"sampler is .*; expected one of Pointwise, .* as text such as \"Pointwise\("
    ):
        parse_part("sampler", given, KINDS)


def test_messages_say_the_way_out():
    def told(text, kinds=SAMPLERS):
        with pytest.raises(SettingError) as error:
            parse_part("sampler", text, kinds)
        return str(error.value)

    assert told("Unifrom()") == (
        "sampler is 'Unifrom()'; did you mean Uniform? expected one of Uniform, Popularity, InBatch, AdaptiveRank, "
        "Rejection, AllItems, as an object or as text such as \"Uniform(exclude='history')\""
    )
    assert "did you mean" not in told("Zzz()")
    assert told("Popularity(b=1)") == "sampler is 'Popularity(b=1)'; the settings of Popularity are: beta, exclude"
    assert told("Linear(1)", WEIGHTS) == "sampler is 'Linear(1)'; the settings of Linear are: none"
    assert told("Popularity(beta=-1)") == "beta is -1; expected a number ≥ 0"
    assert "Pairwise" not in told("Pairwise()").partition("expected")[2]  # of another setting
    assert told(Pairwise()).startswith(f"sampler is {Pairwise()}; expected one of Uniform")
    assert issubclass(SettingError, ShortlistError)
