"""Slates: n items chosen together from a longer list, for diversity or calibration (the article's section 2.2).

| slate             | trades relevance for                                              | setting     |
|-------------------|-------------------------------------------------------------------|-------------|
| `MMR(0.3)`        | a low similarity of each item to the most similar item before it  | `diversity` |
| `DPP(0.3)`        | a large volume spanned by the embeddings of all items in the slate| `diversity` |
| `Calibrated(0.5)` | the same mix of popular and rare items as in the history          | `strength`  |

With setting 0 the slate is the list of the n best items; with 1 relevance only breaks ties. Pass a slate to
`recommend(..., slate=)` or `evaluate(..., slate=)` of any recommender.

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
