from __future__ import annotations

import pytest

from laws.source_code import ROOT, read_modules


@pytest.fixture(scope="module")
def modules():
    """The modules of src/shortlist; parsed for each file of tests, as keeping so many nodes slows other tests down."""
    return read_modules(ROOT)
