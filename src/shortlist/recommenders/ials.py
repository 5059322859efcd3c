"""iALS: matrix factorization from implicit feedback by alternating least squares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from shortlist._checks import one_of, whole
from shortlist.data.interactions import Interactions
from shortlist.errors import SettingError
from shortlist.objectives.frequency_weights import FrequencyWeights
from shortlist.recommenders.alternating import Alternating
from shortlist.solvers import exact
from shortlist.solvers.als import HalfStep
from shortlist.solvers.epochs import Loop

Solver: TypeAlias = Literal["eigen", "exact", "block", "coordinate"]  # each a module of shortlist.solvers


@dataclass(kw_only=True, repr=False, eq=False)
class IALS(Alternating):
    """Matrix factorization ŷ(i|c) = ⟨w_c, h_i⟩ on every pair of C × I, observed or not (section 5.1 of the article).

    It minimises

        L = Σ_{(c,i)∈S} α(c,i)·(ŷ(i|c) − y(c,i))² + α₀·Σ_{c∈C} Σ_{i∈I} ω_cω_i·ŷ(i|c)² + Σ_c λ_c‖w_c‖² + Σ_i λ_i‖h_i‖²
        λ_c = λ·(|I_c| + α₀|I|)^ν,   λ_i = λ·(|C_i| + α₀|C|)^ν

    by turns for the contexts and for the items (Hu et al. 2008; λ's scaling and the meaning of the weights as in Rendle
    et al. 2021). ω is 1 unless an exponent says otherwise. `PointwiseSquare` says what `convention`, `weighting`,
    `strength_as` and the exponents change.

    Args:
        dim: d, the length of the embeddings; 256 where it is left out. At the λ and α₀ that follow from the data, 128
            has 95 % and 512 102 % of the NDCG@20 on average; at other λ more need not be better.
        regularization: λ. Left out, it is between 0.004 and 0.016 at ν = 1: less where items have many pairs, and have
            equally many (`shortlist.recommenders.derived` has the formula); and less where `unobserved_weight` is set
            to more than follows from the data. Half and twice as much are worth a try. From about three times as much
            on, embeddings shrink until little but popularity is left, and `fit` warns.
        unobserved_weight: α₀, the weight of every pair beside what observed pairs have. Left out, it is
            10·|S| / (|C||I|), times the mean α of the pairs: all pairs of C × I weigh ten times what the observed ones
            do. Half and twice as much are worth a try.
        epochs: passes over both sides, at most: `fit` may stop earlier where it has a validation split.
        regularization_exponent: ν; 0 is the same λ for every row, then on a scale of 1 to 100.
        unobserved_item_exponent: ρ in ω_i ∝ (number of the item's contexts)^ρ. Above 0, popular items that were not
            taken count as more surely unwanted (eALS, He et al. 2016; try 0.25 to 0.75); below 0, as less.
        unobserved_context_exponent: likewise for contexts, by the number of their items.
        weighting: the strength of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.
        strength_as: whether the strength is the pair's `"weight"` α or its `"label"` y.
        observed_weight: α of a pair of strength 1.
        convention: `"added"`: α comes on top of α₀ (published settings mean this); `"total"`: α instead of α₀.
        init_scale: start values are N(0, (init_scale/√d)²).
        seed: of the start values; the same seed gives the same model at any number of threads.
        solver: how a side is improved. `"eigen"`: conjugate gradients in the eigenbasis of the Gramian. `"exact"`: to
            its minimum, by Cholesky for every row. `"block"`: iALS++ (Rendle et al. 2021), some dimensions at a time.
            `"coordinate"`: iCD (Bayer et al. 2017), one at a time.
        block: how many dimensions at a time, for the solver `"block"`.
        device: where the epochs run: `"cpu"`, or with PyTorch and the solver `"eigen"` a GPU, `"cuda"` or `"cuda:1"`
            (`"torch-cpu"` is the same code without one). Answers come from the CPU in any case.

    `fit` derives what is left out; `derived_` has it, and so have the repr, the log and a saved model.

    After `fit`, `training_` lists the epochs with the loss in its parts; a loaded model has none. With a validation
    split `best_epoch_` is the number of the epoch that remains, else None; the last loss in the list is then that of
    the last epoch, not that of the result.

    >>> from shortlist import datasets
    >>> events = datasets.load("online-retail").interactions
    >>> model = IALS(dim=16, epochs=2).fit(events)
    >>> len(model.recommend([12347], n=5).ids[0])
    5
    """

    solver: Solver = "eigen"
    block: int = 64
    device: str = "cpu"

    def _check(self) -> None:
        super()._check()
        one_of("solver", self.solver, get_args(Solver))
        whole("block", self.block)
        if not isinstance(self.device, str) or not re.fullmatch(r"cpu|torch-cpu|cuda(:\d+)?", self.device):
            raise SettingError(
                f"device is {self.device!r:.80}; expected 'cpu', 'cuda', 'cuda:1' for the second GPU, or 'torch-cpu'"
            )
        if self.device != "cpu" and self.solver != "eigen":
            raise SettingError(
                f"device is {self.device!r}, which only solver='eigen' can use; solver is {self.solver!r}"
            )

    def _unused(self) -> dict[str, str]:
        unused = super()._unused()
        if self.solver != "block":
            unused["block"] = f"it is for solver='block', and solver is {self.solver!r}"
        return unused

    def _half_steps(self) -> tuple[HalfStep, HalfStep]:
        solver = import_module(f"shortlist.solvers.{self.solver}")
        half_step: HalfStep = solver.half_step
        if self.solver == "block":
            half_step = partial(solver.half_step, block=self.block)
        return half_step, solver.last_half_step if self.solver == "eigen" else exact.half_step

    def _loop(
        self,
        interactions: Interactions,
        prepared: tuple[FrequencyWeights, FrequencyWeights],
        contexts: npt.NDArray[np.float32] | None,
        items: npt.NDArray[np.float32],
        threads: int | None,
        epochs: int,
    ) -> Loop:
        if self.device == "cpu":
            return super()._loop(interactions, prepared, contexts, items, threads, epochs)
        from shortlist.solvers.torch_alternation import DeviceAlternation

        rows = interactions.by_context, interactions.by_item
        return DeviceAlternation(self.objective(), *rows, items, contexts=contexts, device=self.device)
