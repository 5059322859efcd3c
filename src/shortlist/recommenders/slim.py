"""SLIM: a sparse linear model from histories to items."""

from __future__ import annotations

from dataclasses import dataclass

from shortlist._checks import flag, integer, number, one_of
from shortlist.data.interactions import Interactions
from shortlist.objectives.weighting import WEIGHTINGS, strengths
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor
from shortlist.recommenders.search_space import Real, Space
from shortlist.recommenders.sparse_items import SparseItems
from shortlist.solvers.elastic_net import solve_columns


@dataclass(kw_only=True, repr=False, eq=False)
class SLIM(SparseItems):
    """Sparse linear method (Ning & Karypis 2011).

    ŷ(i|c) = Σ_{j∈I_c} x_{cj}·W_{ij}, where row i of W minimises ½‖x_i − Xw‖² + λ₁‖w‖₁ + ½λ₂‖w‖² with w_i = 0 and
    w ≥ 0. This is an elastic net for each item, solved by coordinate descent for many items at once.

    The weights of item i are fitted jointly, so of two redundant items only one needs a weight; in `ItemKNN` each
    neighbour is chosen on its own. New histories are scored directly, without folding in.

    Args:
        l1: λ₁, on the scale of how often two items occur together; larger values give fewer weights. Try 0.3 to 10.
        l2: λ₂, on the scale of how often items occur. Try 1 to 300.
        positive: whether w ≥ 0. If False, memory and time per item grow with the catalogue.
        tolerance: allowed violation of the optimality conditions, as a fraction of the largest number of contexts that
            the item shares with another item.
        sweeps: maximum number of coordinate descent sweeps over a working set; `fit` warns if they are too few.
        weighting: the strength x of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.

    scikit-learn's ElasticNet(alpha, l1_ratio) corresponds to l1 = alpha·l1_ratio·n and l2 = alpha·(1 − l1_ratio)·n for
    n contexts.
    """

    l1: float = 1.0
    l2: float = 30.0
    positive: bool = True
    tolerance: float = 1e-3
    sweeps: int = 1000

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        number("l1", self.l1)
        number("l2", self.l2, above=True)
        number("tolerance", self.tolerance, above=True)
        integer("sweeps", self.sweeps)
        one_of("weighting", self.weighting, WEIGHTINGS)
        flag("positive", self.positive)

    @classmethod
    def space(cls) -> Space:
        """Return the search space: both penalties on log scales."""
        return {"l1": Real(0.1, 30.0, log=True), "l2": Real(3.0, 1000.0, log=True)}

    def learn(self, interactions: Interactions, options: FitOptions, monitor: Monitor) -> None:
        """Learn from interactions."""
        by_item, by_context = interactions.by_item, interactions.by_context
        self._set_weights(
            solve_columns(
                by_item,
                strengths(by_item.values, self.weighting),
                by_context,
                strengths(by_context.values, self.weighting),
                l1=float(self.l1),
                l2=float(self.l2),
                positive=bool(self.positive),
                tolerance=float(self.tolerance),
                sweeps=int(self.sweeps),
                threads=options.threads,
                step=monitor.step,
            )
        )
