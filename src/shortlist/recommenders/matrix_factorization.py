"""Matrix factorization by sampling: any objective, sampler and weight, and the named compositions of the literature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shortlist._checks import number, whole
from shortlist._parts import part_of, text_of
from shortlist.objectives import OBJECTIVES, WEIGHTS, LambdaRank, Pairwise, Penalty, Pointwise, Softmax
from shortlist.objectives.lambdarank import Ranks
from shortlist.recommenders.search_space import Choice, Increasing, Integer, Real, Space
from shortlist.recommenders.sgd_factorization import MOST_DRAWS, SGDFactorization, TrainingRecipe
from shortlist.sampling import SAMPLERS, AdaptiveRank, AllItems, Popularity, Rejection, Sampler, Uniform
from shortlist.sampling.base import Exclude
from shortlist.solvers.sgd import Schedule

__all__ = [
    "BPR", "WARP", "AdaptiveBPR", "HingeMF", "LambdaMF", "LogisticMF", "MatrixFactorization", "SoftmaxMF", "SquareMF",
]  # fmt: skip


@dataclass(kw_only=True, repr=False, eq=False)
class MatrixFactorization(SGDFactorization):
    """Matrix factorization with any objective, sampler and weight (section 4 of the article).

    For each observed pair (c, i), in a fresh random order every epoch, it draws negatives j from the sampler's q(j|c,i)
    and takes a step on the objective's loss. `shortlist.sampling.implied_weight` says what loss over all pairs that is.

    Args:
        objective: `Pointwise(loss)`, `Pairwise(loss)` or `Softmax(temperature)` of `shortlist.objectives`.
        sampler: `Uniform`, `Popularity`, `InBatch`, `AdaptiveRank` or `Rejection` of `shortlist.sampling`; for Softmax
            also `AllItems`, which is the full softmax.
        weight: None; for pairwise losses also a penalty of the rank that `Rejection` estimates (`Reciprocal`, `Linear`,
            `Step`, `TopN`) or `LambdaRank`.
        batch: for Softmax: so many contexts make a step where the sampler is `AllItems`, else so many pairs, with
            negatives that they share.

    Parts may be given as text too, as in files and on the command line: `sampler="Popularity(beta=0.5)"`. The defaults
    are those of `BPR`. The other settings are those of every factorization by sampling:
    """

    objective: str | Pointwise | Pairwise | Softmax = "Pairwise(loss='logistic', temperature=1.0)"
    sampler: str | Sampler | AllItems = "Uniform(exclude='history')"
    weight: str | Penalty | LambdaRank | None = None
    batch: int = 512

    def recipe(self) -> TrainingRecipe:
        """The objective, the sampler and the weight."""
        weight = self.weight
        if isinstance(weight, str) and weight.strip().lower() == "none":
            weight = None
        return TrainingRecipe(
            part_of("objective", self.objective, OBJECTIVES),
            part_of("sampler", self.sampler, SAMPLERS),
            None if weight is None else part_of("weight", weight, WEIGHTS),
        )

    def _check(self) -> None:
        whole("batch", self.batch)
        super()._check()

    def _unused(self) -> dict[str, str]:
        unused = super()._unused()
        objective = self.recipe().objective
        if not isinstance(objective, Softmax):
            unused["batch"] = f"it is for Softmax, and objective is {objective}"
        return unused

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments; parts as text."""
        parts = self.recipe()._asdict()
        return super().settings() | {name: None if one is None else text_of(one) for name, one in parts.items()}


MatrixFactorization.__doc__ = f"{MatrixFactorization.__doc__}\n{(SGDFactorization.__doc__ or '').partition('Args:')[2]}"


@dataclass(kw_only=True, repr=False, eq=False)
class _Preset(SGDFactorization):
    """What the named compositions share."""

    temperature: float = 1.0

    @classmethod
    def space(cls) -> Space:
        """Learning rate, regularization and the number of negatives, the dimension last."""
        return super().space() | {"n_negatives": Integer(1, 8, log=True)}


@dataclass(kw_only=True, repr=False, eq=False)
class BPR(_Preset):
    """Bayesian personalized ranking (Rendle et al. 2009): pairwise logistic loss, negatives drawn uniformly.

    It minimises Σ_{(c,i)∈S} Σ_{j∉I_c} ln(1 + exp(ŷ(j|c) − ŷ(i|c))) / (|I| − |I_c|), which is about AUC: a context
    counts by the number of its pairs, and every place in the list alike.

    >>> from shortlist import datasets
    >>> model = BPR(dim=16, epochs=2).fit(datasets.load("online-retail").interactions, threads=1)
    >>> len(model.recommend([12347], n=5).ids[0])
    5

    Args:
        temperature: τ of the loss of (ŷ(i|c) − ŷ(j|c))/τ: with `normalize=True`, well below 1.

    The other settings are those of `MatrixFactorization` without its parts. By default it starts from singular vectors
    of the observed pairs and takes few epochs from there: over 19 data sets this had 96 % of the NDCG@20 of the best of
    20 settings, and random start values 74 % (docs/benchmarks.md).
    """

    def recipe(self) -> TrainingRecipe:
        """Pairwise logistic, uniform, without weights."""
        return TrainingRecipe(Pairwise("logistic", self.temperature), Uniform(), None)


@dataclass(kw_only=True, repr=False, eq=False)
class AdaptiveBPR(_Preset):
    """BPR with negatives drawn by their rank in the context's current list (Rendle and Freudenthaler 2014).

    Args:
        gamma: of q(j|c) ∝ exp(−r(j|c)/γ): the smaller, the nearer to the top negatives are; see `AdaptiveRank`.
        temperature: as for `BPR`.

    The other settings are those of `MatrixFactorization` without its parts.
    """

    epochs: int = 20
    regularization: float = 0.02
    gamma: float = 500.0

    def recipe(self) -> TrainingRecipe:
        """Pairwise logistic, by adaptive ranks, without weights."""
        return TrainingRecipe(Pairwise("logistic", self.temperature), AdaptiveRank(self.gamma), None)

    @classmethod
    def space(cls) -> Space:
        """That of BPR, and how near to the top negatives are."""
        return super().space() | {"gamma": Real(10.0, 10_000.0, log=True)}


@dataclass(kw_only=True, repr=False, eq=False)
class WARP(SGDFactorization):
    """Weighted approximate-rank pairwise loss (Weston et al. 2011): negatives within the margin, weighted by rank.

    Items are drawn uniformly until one scores within `margin` of the positive; a step on the pairwise hinge
    max(0, 1 − (ŷ(i|c) − ŷ(j|c))/margin) then weighs γ(⌊(|I|−1)/N⌋), where N is the number of draws it took.

    Args:
        rounds: draws for a positive, at most; where none is within the margin, nothing is learnt from it.
        margin: see above; with `normalize=True`, well below 1.
        penalty: γ: `Reciprocal()`, `Linear()`, `Step(n)` or `TopN(n)` of `shortlist.objectives`, or its text.

    The other settings are those of `MatrixFactorization` without its parts. By default it starts from singular vectors
    of the observed pairs: over 19 data sets this had 98 % of the NDCG@20 of the best of 20 settings, and 50 epochs from
    random start values 65 % (docs/benchmarks.md).
    """

    epochs: int = 20
    learning_rate: float = 0.01
    regularization: float = 0.0
    rounds: int = 50
    margin: float = 1.0
    penalty: str | Penalty = "Reciprocal()"

    def recipe(self) -> TrainingRecipe:
        """Pairwise hinge, by rejection, weighted by the estimated rank."""
        penalties: dict[str, type[Any]] = {name: one for name, one in WEIGHTS.items() if issubclass(one, Penalty)}
        penalty: Penalty = part_of("penalty", self.penalty, penalties)
        number("margin", self.margin, above=True)
        return TrainingRecipe(Pairwise("hinge", self.margin), Rejection(self.margin, self.rounds), penalty)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments; the penalty as text."""
        return super().settings() | {"penalty": text_of(self.recipe().weight)}

    @classmethod
    def space(cls) -> Space:
        """That of BPR, and how long to look for a negative."""
        return super().space() | {"rounds": Integer(5, 200, log=True)}


@dataclass(kw_only=True, repr=False, eq=False)
class LambdaMF(_Preset):
    """LambdaRank for matrix factorization: pairwise logistic loss, weighted by what a swap changes in a metric.

    The weight of a pair of items is |ΔM|, see `LambdaRank`. What is minimised is q·|ΔM|·ln(1 + exp(ŷ(j|c) − ŷ(i|c))):
    with `sampler="AdaptiveRank(gamma=2000.0)"` more of the negatives are where |ΔM| is not about 0.

    Args:
        sampler: `Uniform`, `Popularity`, `InBatch` or `AdaptiveRank` of `shortlist.sampling`, or its text.
        metric: M: "ndcg", "ap", "auc", or with a cut "ndcg@20", "ap@20", "precision@10", "recall@20".
        ranks: `"sampled"` or `"exact"`.
        candidates: how many items a sampled rank is estimated from.
        temperature: as for `BPR`.

    The other settings are those of `MatrixFactorization` without its parts.
    """

    regularization: float = 3e-5  # little, as the weights make the slopes small
    sampler: str | Sampler = "Uniform(exclude='history')"
    metric: str = "ndcg"
    ranks: Ranks = "sampled"
    candidates: int = 32

    def recipe(self) -> TrainingRecipe:
        """Pairwise logistic, any sampler, weighted by |ΔM|."""
        weight = LambdaRank(self.metric, self.ranks, self.candidates)
        return TrainingRecipe(
            Pairwise("logistic", self.temperature), part_of("sampler", self.sampler, SAMPLERS), weight
        )

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments; the sampler as text."""
        return super().settings() | {"sampler": text_of(self.recipe().sampler)}

    @classmethod
    def space(cls) -> Space:
        """That of BPR with less regularization, since |ΔM| is small."""
        return super().space() | {"regularization": Real(1e-6, 1e-2, log=True)}


@dataclass(kw_only=True, repr=False, eq=False)
class _PointwiseMF(_Preset):
    """What pointwise factorizations by sampling share."""

    epochs: int = 20
    biases: bool = True
    n_negatives: int = 4
    exclude: Exclude = "history"

    @classmethod
    def space(cls) -> Space:
        """That of every factorization by sampling, and how many negatives there are."""
        return super().space() | {"n_negatives": Integer(1, 16, log=True)}


@dataclass(kw_only=True, repr=False, eq=False)
class LogisticMF(_PointwiseMF):
    """Logistic matrix factorization with biases: is (c, i) observed or not? (pointwise, negatives drawn uniformly)

    It minimises Σ_{(c,i)∈S} ln(1 + e^{−ŷ}) + Σ_c m·|I_c|/(|I| − |I_c|)·Σ_{j∉I_c} ln(1 + e^{ŷ}). The factorization of
    Rendle et al. (2020) draws negatives from all items, as `exclude="positive"` does but for the item of the pair.

    Args:
        exclude: what is not drawn as a negative: `"history"`, all items of the context, or `"positive"`, that of the
            pair only.

    The other settings are those of `MatrixFactorization` without its parts.
    """  # noqa: D415

    learning_rate: float = 0.05

    def recipe(self) -> TrainingRecipe:
        """Pointwise logistic, uniform, without weights."""
        return TrainingRecipe(Pointwise("logistic", temperature=self.temperature), Uniform(self.exclude), None)


@dataclass(kw_only=True, repr=False, eq=False)
class HingeMF(_PointwiseMF):
    """Matrix factorization with biases under the pointwise hinge loss: observed pairs above 1, others below −1.

    The settings are those of `LogisticMF`.
    """

    def recipe(self) -> TrainingRecipe:
        """Pointwise hinge, uniform, without weights."""
        return TrainingRecipe(Pointwise("hinge", temperature=self.temperature), Uniform(self.exclude), None)


@dataclass(kw_only=True, repr=False, eq=False)
class SquareMF(_PointwiseMF):
    """Matrix factorization with biases under the pointwise square loss: observed pairs near 1, others near 0.

    `IALS` minimises a loss of this kind over all pairs, without sampling. The settings are those of `LogisticMF`.
    """

    epochs: int = 10
    learning_rate: float = 0.02
    regularization: float = 0.03

    def recipe(self) -> TrainingRecipe:
        """Pointwise square, uniform, without weights."""
        return TrainingRecipe(Pointwise("square", temperature=self.temperature), Uniform(self.exclude), None)


@dataclass(kw_only=True, repr=False, eq=False)
class SoftmaxMF(SGDFactorization):
    """Matrix factorization under the softmax loss over the catalogue, of cosines: −Σ_{(c,i)∈S} ln p(i|c).

    The defaults suit data that nobody has tuned for: 9 epochs that begin with the singular vectors of the pairs. From
    random start values (`init="random"`) it takes some 30 to be as good. An epoch takes 6·|C||I|d floating-point
    operations, whatever the number of pairs.

    >>> from shortlist import datasets
    >>> model = SoftmaxMF(dim=16, epochs=2, batch=64).fit(datasets.load("online-retail").interactions)
    >>> len(model.recommend([12347], n=5).ids[0])
    5

    Args:
        temperature: τ of p(i|c) ∝ exp(ŷ(i|c)/τ). Try 0.08 to 0.12.
        n_negatives: 0: the full softmax, in batches of contexts. Otherwise so many negatives are drawn for a batch of
            observed pairs, which share them, with q ∝ popularity^β and the correction by q.
        beta: β.
        exclude: what is not in the partition function of a positive beside itself: `"positive"` nothing, the ordinary
            softmax; `"history"` what else the context has had.
        batch: so many contexts make a step, or so many pairs where negatives are drawn.

    The other settings are those of `MatrixFactorization` without its parts. Here the result does not depend on the
    number of threads.
    """

    dim: int = 128
    epochs: int = 9
    learning_rate: float = 0.006
    regularization: float = 0.0
    normalize: bool = True
    n_negatives: int = 0
    schedule: Schedule = "constant"
    init_scale: float = 0.05
    positive_context_exponent: float = -0.25
    temperature: float = 0.095
    beta: float = 0.5
    exclude: Exclude = "history"
    batch: int = 512

    def recipe(self) -> TrainingRecipe:
        """Softmax, over everything or by popularity, without weights."""
        few = self.n_negatives is not None and whole("n_negatives", self.n_negatives, 0) > 0
        sampler = Popularity(self.beta, self.exclude) if few else AllItems(self.exclude)
        return TrainingRecipe(Softmax(self.temperature), sampler, None)

    def _check(self) -> None:
        whole("batch", self.batch)
        number("beta", self.beta)
        super()._check()

    def _unused(self) -> dict[str, str]:
        unused = super()._unused()
        unused.pop("n_negatives", None)  # 0 says that there is no sampling
        if not self.n_negatives:
            unused["beta"] = "n_negatives is 0, so no negatives are drawn"
        return unused

    def _check_negatives(self, objective: Any) -> None:
        whole("n_negatives", self.n_negatives, 0, MOST_DRAWS)

    @classmethod
    def space(cls) -> Space:
        """Temperature and learning rate, where to begin, the dimension last."""
        return {
            "dim": Increasing(64, 128, 256),
            "temperature": Real(0.05, 0.15, log=True),
            "learning_rate": Real(1e-3, 0.03, log=True),
            "init": Choice("random", "svd"),
            "positive_context_exponent": Real(-0.5, 0.2),
            "positive_item_exponent": Real(-0.1, 0.3),
        }
