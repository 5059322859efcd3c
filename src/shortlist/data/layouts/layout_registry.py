"""The supported public layouts, and `read_parts`, which reads any of them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from shortlist._checks import number, one_of
from shortlist._wording import Argument, Message, Phrase
from shortlist.data.encode import OnBad
from shortlist.data.event_files import no_such_path
from shortlist.data.layouts import amazon, movielens, sequences
from shortlist.data.layouts.detect import claims, file_names, listed, only_layout
from shortlist.data.layouts.lightgcn import read_lightgcn
from shortlist.data.layouts.ncf import read_ncf
from shortlist.data.layouts.published import PublishedData
from shortlist.errors import DataError, SettingError

_Rated: TypeAlias = Callable[[Path, float | None, OnBad], PublishedData]
_Unrated: TypeAlias = Callable[[Path, OnBad], PublishedData]

LAYOUTS: dict[str, str] = {
    "movielens-dat": "MovieLens 1M and 10M: ratings.dat, with movies.dat and users.dat",
    "movielens-csv": "MovieLens 20M and later: ratings.csv, with movies.csv",
    "movielens-100k": "MovieLens 100K: u.data, with u.item and u.user",
    "lightgcn": "NGCF and LightGCN: train.txt, test.txt and optional valid.txt with lines 'user item item …'",
    "ncf": "NCF: NAME.train.rating, NAME.test.rating and NAME.test.negative",
    "sasrec": "SASRec and BERT4Rec: a text file of 'user item' lines in time order",
    "s3rec": "S3-Rec: NAME.txt of 'user item item …' lines in time order, with NAME_item2attributes.json",
    "amazon-2014": "Amazon ratings of 2014: CSV without a header, user,item,rating,timestamp",
    "amazon-2018": "Amazon ratings of 2018: CSV without a header, item,user,rating,timestamp",
    "amazon-2023": "Amazon ratings of 2023: CSV with the header user_id,parent_asin,rating,timestamp",
    "amazon-reviews": "Amazon reviews as JSON lines",
}
_RATED: dict[str, _Rated] = {
    "movielens-dat": movielens.read_dat,
    "movielens-csv": movielens.read_csv,
    "movielens-100k": movielens.read_100k,
    "ncf": read_ncf,
    "amazon-2014": amazon.read_2014,
    "amazon-2018": amazon.read_2018,
    "amazon-2023": amazon.read_2023,
    "amazon-reviews": amazon.read_reviews,
}
_UNRATED: dict[str, _Unrated] = {
    "lightgcn": read_lightgcn,
    "sasrec": sequences.read_sasrec,
    "s3rec": sequences.read_s3rec,
}


def read_parts(
    path: str | Path, layout: str | None, min_rating: float | None, on_bad: OnBad
) -> tuple[str, Path, PublishedData]:
    """Read a folder or a file; return the layout's name, its main file and the parts."""
    if layout is not None and not (isinstance(layout, str) and layout in LAYOUTS):
        near = difflib.get_close_matches(str(layout), LAYOUTS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SettingError(f"unknown layout {layout!r:.80}{hint}; known: {', '.join(LAYOUTS)}", field="layout")
    if min_rating is not None:
        min_rating = number("min_rating", min_rating)
    one_of("on_bad", on_bad, ("raise", "drop"))
    if not isinstance(path, str | os.PathLike):
        raise SettingError(f"path is {path!r:.80}; expected the path of a folder or a file", field="path")
    place = Path(path)
    if not place.exists():
        raise no_such_path(place)
    main_files = claims(place)
    if layout is None:
        if not main_files:
            raise _not_recognised(place)
        layout = only_layout(place, main_files)
    main = _main_file(place, layout, main_files.get(layout, []))
    if layout in _RATED:
        return layout, main, _RATED[layout](main, min_rating, on_bad)
    if min_rating is not None:
        refused = Argument("min_rating", f"{min_rating:g}")
        message = Message("{}: files in the layout {!r} have no ratings", refused, layout)
        raise SettingError(message, code="no-effect", field="min_rating", hint="omit it")
    return layout, main, _UNRATED[layout](main, on_bad)


def _main_file(place: Path, layout: str, claimed: list[Path]) -> Path:
    if len(claimed) > 1:
        raise DataError(
            f"{place} holds several data sets in the layout {layout!r}: {file_names(claimed)}",
            field="path",
            hint=f"pass the path of one of them, such as {claimed[0]}",
        )
    if claimed:
        return claimed[0]
    if place.is_file():
        return place
    raise DataError(
        f"folder {place} is not in the layout {layout!r}: {LAYOUTS[layout]}; {_content(place)}",
        field="layout",
        hint="If the file with the events has another name, pass its path",
    )


def _not_recognised(place: Path) -> DataError:
    what, way_out = str(place), "pass {}, or {}"
    if place.is_dir():
        what = f"folder {place} ({_content(place)})"
        way_out = "pass the path of the file with the events and its {}, or {}"
    named = Phrase("named-columns", "use Interactions.read if the file has named columns")
    return DataError(
        f"{what} is not in a known layout ({', '.join(LAYOUTS)})",
        field="layout",
        hint=Message(way_out, Argument("layout"), named),
    )


def _content(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    return f"it holds {listed(names)}" if names else "it is empty"
