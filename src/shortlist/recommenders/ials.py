"""iALS: matrix factorization from implicit feedback by alternating least squares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer, one_of
from shortlist.data.interactions import Interactions
from shortlist.errors import SettingError
from shortlist.objectives.pointwise_square import WeightedSquare
from shortlist.recommenders.alternating import Alternating
from shortlist.solvers.exact import ExactSolver
from shortlist.solvers.half_step import HalfStep
from shortlist.solvers.train import EmbeddingTrainer

Solver: TypeAlias = Literal["eigen", "exact", "block", "coordinate"]  # modules of shortlist.solvers


@dataclass(kw_only=True, repr=False, eq=False)
class IALS(Alternating):
    """Matrix factorization ŷ(i|c) = ⟨w_c, h_i⟩ by alternating least squares over all pairs, observed or not.

    It minimises

        L = Σ_{(c,i)∈S} α(c,i)·(ŷ(i|c) − y(c,i))² + α₀·Σ_{c∈C} Σ_{i∈I} ω_cω_i·ŷ(i|c)² + Σ_c λ_c‖w_c‖² + Σ_i λ_i‖h_i‖²
        λ_c = λ·(|I_c| + α₀|I|)^ν,   λ_i = λ·(|C_i| + α₀|C|)^ν

    by alternating between the contexts and the items (section 5.1 of the article; Hu et al. 2008; the scaling of λ and
    the meaning of the weights follow "Revisiting iALS", Rendle et al. 2021). ω is 1 unless an exponent is set.
    `PointwiseSquare` explains `convention`, `weighting`, `strength_as` and the exponents.

    A context of several parts, such as (user, weekday), is a context of its own, unrelated to (user, another weekday).
    `PARAFAC`, `Tucker` and `FactorizationMachine` learn from the parts.

    Args:
        dim: d, the length of the embeddings. Default: 256. If λ and α₀ are derived from the data, d = 128 reaches 95 %
            and d = 512 reaches 102 % of the default's NDCG@20 on average; at other λ, larger d may not help.
        regularization: λ. Default: derived from the data, between 0.004 and 0.016 at ν = 1. It is smaller if items have
            more pairs, and if the pairs are spread more evenly over the items (`shortlist.recommenders.derived` has the
            formula). It is also smaller if you set `unobserved_weight` above its derived value. Half and twice the
            derived value are worth a try. At more than about three times the derived value, embeddings shrink until the
            model ranks almost only by popularity, and `fit` warns.
        unobserved_weight: α₀, the weight of every pair, observed or not; observed pairs have their own weight α on top.
            Default: derived from the data, 10·|S| / (|C||I|) times the mean α of the pairs, so that all pairs of C × I
            together weigh ten times as much as the observed ones. Half and twice the derived value are worth a try.
        epochs: maximum number of passes over both sides; with a validation split `fit` may stop earlier.
        regularization_exponent: ν. With 0 every row has the same λ; good values of λ are then from 1 to 100.
        unobserved_item_exponent: ρ in ω_i ∝ (number of the item's contexts)^ρ. Above 0, unobserved pairs with popular
            items count more (eALS, He et al. 2016; try 0.25 to 0.75); below 0, they count less.
        unobserved_context_exponent: the same exponent for contexts, by the number of their items.
        weighting: how a weight w becomes the strength of a pair: 1 for `"binary"`, log₂(1 + w) for `"log"`, w for
            `"raw"`.
        strength_as: whether the strength is the pair's `"weight"` α or its `"label"` y.
        observed_weight: α of a pair of strength 1.
        convention: `"added"`: α is added to α₀, as in most published settings; `"total"`: α replaces α₀.
        init_scale: start values are N(0, (init_scale/√d)²).
        seed: seed of the start values; the same seed gives the same model with any number of threads.
        solver: how each side is solved. `"eigen"`: conjugate gradients in the eigenbasis of the Gramian. `"exact"`:
            Cholesky for every row. `"block"`: a block of dimensions at a time ("iALS++", Rendle et al. 2021).
            `"coordinate"`: iCD (Bayer et al. 2017), one dimension at a time.
        block: number of dimensions per block for `solver="block"`.
        device: where the epochs run: `"cpu"`, or a GPU, `"cuda"` or `"cuda:1"`, with PyTorch and `solver="eigen"`.
            `"torch-cpu"` runs the GPU code on the CPU. Recommendations are always computed on the CPU.

    `fit` fills in `dim`, `regularization` and `unobserved_weight` if they are None. These values are in
    `derived_`, in the repr, in the log and in the saved model.

    After `fit`, `training_` lists the epochs with the parts of the loss; it is empty for a loaded model. With a
    validation split, `best_epoch_` is the epoch whose model was kept, but the last entry of `training_` is still the
    last epoch. Without one, `best_epoch_` is None.

    >>> from shortlist import datasets
    >>> events = datasets.load("online-retail").interactions
    >>> model = IALS(dim=16, epochs=2).fit(events)
    >>> len(model.recommend([12347], n=5).ids[0])
    5
    """

    solver: Solver = "eigen"
    block: int = 64
    device: str = "cpu"

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        super().check_settings()
        one_of("solver", self.solver, get_args(Solver))
        integer("block", self.block)
        if not isinstance(self.device, str) or not re.fullmatch(r"cpu|torch-cpu|cuda(:\d+)?", self.device):
            raise SettingError(
                f"device is {self.device!r:.80}; expected 'cpu', 'cuda', 'cuda:1' (the second GPU) or 'torch-cpu'",
                field="device",
            )
        if self.device != "cpu" and self.solver != "eigen":
            raise SettingError(
                f"device is {self.device!r}, which needs solver='eigen', but solver is {self.solver!r}", field="device"
            )

    def unused_settings(self) -> dict[str, str]:
        """Return the settings that have no effect given the other settings, as {name: reason}."""
        unused = super().unused_settings()
        if self.solver != "block":
            unused["block"] = f"with solver={self.solver!r}, only with solver='block'"
        return unused

    def _half_steps(self) -> tuple[HalfStep[Any], HalfStep[Any]]:
        if self.solver == "eigen":  # each solver has kernels to load, so only the chosen one is imported
            from shortlist.solvers.eigen import TO_CONVERGENCE, EigenSolver

            return EigenSolver(), TO_CONVERGENCE
        if self.solver == "block":
            from shortlist.solvers.block import BlockSolver

            return BlockSolver(int(self.block)), ExactSolver()
        if self.solver == "coordinate":
            from shortlist.solvers.coordinate import CoordinateSolver

            return CoordinateSolver(), ExactSolver()
        return ExactSolver(), ExactSolver()

    def _trainer(
        self,
        interactions: Interactions,
        prepared: WeightedSquare,
        contexts: npt.NDArray[np.float32] | None,
        items: npt.NDArray[np.float32],
        threads: int | None,
        epochs: int,
    ) -> EmbeddingTrainer:
        if self.device == "cpu":
            return super()._trainer(interactions, prepared, contexts, items, threads, epochs)
        from shortlist.solvers.torch_alternation import DeviceAlternation

        rows = interactions.by_context, interactions.by_item
        return DeviceAlternation(prepared, *rows, items, contexts=contexts, device=self.device)
