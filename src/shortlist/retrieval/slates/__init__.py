"""Slates: n items out of a longer list, chosen with an eye on each other (the article's section 2.2).

| slate                | beside relevance it wants                                    | its number  |
|----------------------|--------------------------------------------------------------|-------------|
| `MMR(0.3)`           | an item unlike the nearest of those before it                | `diversity` |
| `DPP(0.3)`           | items that span much of the space of items, all together     | `diversity` |
| `Calibrated(0.5)`    | as many popular and rare items as the history has            | `strength`  |

The number is 0 for the list as it was and 1 where relevance does not count. `recommend(..., slate=)` and
`evaluate(..., slate=)` take one, for every recommender.

>>> from shortlist import slates
>>> slates.MMR(0.3)
MMR(diversity=0.3, pool=100)
"""

from shortlist.retrieval.slates.base import Catalogue, Slate
from shortlist.retrieval.slates.calibrated import Calibrated
from shortlist.retrieval.slates.dpp import DPP
from shortlist.retrieval.slates.mmr import MMR

SLATES: dict[str, type[MMR | DPP | Calibrated]] = {"mmr": MMR, "dpp": DPP, "calibrated": Calibrated}

__all__ = ["DPP", "MMR", "SLATES", "Calibrated", "Catalogue", "Slate"]
