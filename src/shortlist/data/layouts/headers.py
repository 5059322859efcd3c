"""Headers and keys by which files of public data sets are recognised."""

from __future__ import annotations

import json
from pathlib import Path

from shortlist.data.csv_lines import opened

CSV_HEADER = ("userId", "movieId", "rating", "timestamp")  # MovieLens 20M and later
HEADER_2023 = ("user_id", "parent_asin", "rating", "timestamp")
# The keys of user, item, rating and time in reviews, with the unit of the time.
REVIEWS: dict[tuple[str, ...], str] = {
    ("reviewerID", "asin", "overall", "unixReviewTime"): "s",
    HEADER_2023: "ms",
}


def review_names(path: Path) -> tuple[str, ...] | None:
    """Return the keys of user, item, rating and time in a file of reviews; None if its first line is not a review."""
    with opened(path) as stream:
        line = next((line for line in iter(lambda: stream.readline(1 << 20), b"") if line.strip()), b"")
    try:
        review = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return next((names for names in REVIEWS if isinstance(review, dict) and set(names) <= review.keys()), None)
