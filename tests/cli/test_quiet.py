import pytest

import shortlist as sl
from cli.helpers import COLUMNS
from shortlist._compile_notes import silenced


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_says_nothing_of_the_compiler_either(run, odd_csv, monkeypatch, quiet):
    monkeypatch.delenv("SHORTLIST_COMPILE_NOTE")
    heard = []
    scorer = sl.Popularity.scorer

    def listen(self, *args):
        heard.append(silenced())
        return scorer(self, *args)

    monkeypatch.setattr(sl.Popularity, "scorer", listen)
    options = ["--split", "random", "--model", "popularity", *(["--quiet"] if quiet else [])]
    run("evaluate", odd_csv, *COLUMNS, *options)
    assert set(heard) == {quiet}
    assert not silenced()
