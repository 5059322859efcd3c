"""Law: a recommender is made of at most three of our classes, itself and `Recommender` included."""

from __future__ import annotations

from laws import exception_lists
from laws.inheritance import recommenders, too_deep


def test_recommenders_are_composed_not_inherited():
    exception_lists.check_counts(
        "inheritance",
        too_deep(recommenders()),
        "{0} is made of {number} of our classes",
        "Hand the shared part over as an object instead of inheriting it.",
    )
