"""Matrix factorization by sampling: any objective, sampler and weight, and named combinations from the literature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shortlist._checks import integer, number
from shortlist._parts import format_part, parse_part
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

    For each observed pair (c, i), in a new random order every epoch, it draws negatives j from the sampler's q(j|c,i)
    and takes a gradient step on the objective's loss. `shortlist.sampling.implied_weight` computes the equivalent loss
    over all pairs. The defaults are those of `BPR`.

    `objective`, `sampler` and `weight` also accept text, as in files and on the command line:
    `sampler="Popularity(beta=0.5)"`.

    Args:
        objective: `Pointwise(loss)`, `Pairwise(loss)` or `Softmax(temperature)` of `shortlist.objectives`.
        sampler: `Uniform`, `Popularity`, `InBatch`, `AdaptiveRank` or `Rejection` of `shortlist.sampling`. Softmax also
            accepts `AllItems`, for the full softmax.
        weight: None. For pairwise losses also `LambdaRank`, or a penalty on the rank that `Rejection` estimates:
            `Reciprocal`, `Linear`, `Step`, `TopN`.
        batch: batch size of Softmax: number of contexts with `AllItems`, else number of pairs, which share negatives.
    """

    objective: str | Pointwise | Pairwise | Softmax = "Pairwise(loss='logistic', temperature=1.0)"
    sampler: str | Sampler | AllItems = "Uniform(exclude='history')"
    weight: str | Penalty | LambdaRank | None = None
    batch: int = 512

    def recipe(self) -> TrainingRecipe:
        """Return the objective, the sampler and the weight."""
        weight = self.weight
        if isinstance(weight, str) and weight.strip().lower() == "none":
            weight = None
        return TrainingRecipe(
            parse_part("objective", self.objective, OBJECTIVES),
            parse_part("sampler", self.sampler, SAMPLERS),
            None if weight is None else parse_part("weight", weight, WEIGHTS),
        )

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        integer("batch", self.batch)
        super().check_settings()

    def unused_settings(self) -> dict[str, str]:
        """Return the settings that have no effect given the other settings, as {name: reason}."""
        unused = super().unused_settings()
        objective = self.recipe().objective
        if not isinstance(objective, Softmax):
            unused["batch"] = f"with the objective {objective}, only with Softmax"
        return unused

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments, with objective, sampler and weight as text."""
        parts = self.recipe()._asdict()
        return super().settings() | {name: None if part is None else format_part(part) for name, part in parts.items()}


_shared_settings = (SGDFactorization.__doc__ or "").partition("Args:\n")[2]
MatrixFactorization.__doc__ = f"{(MatrixFactorization.__doc__ or '').rstrip()}\n{_shared_settings}"


@dataclass(kw_only=True, repr=False, eq=False)
class _Preset(SGDFactorization):
    """Base class of the named combinations."""

    temperature: float = 1.0

    @classmethod
    def space(cls) -> Space:
        """Return the search space of all models trained by sampling, with the number of negatives."""
        return super().space() | {"n_negatives": Integer(1, 8, log=True)}


@dataclass(kw_only=True, repr=False, eq=False)
class BPR(_Preset):
    """Bayesian personalized ranking (Rendle et al. 2009): pairwise logistic loss, uniform negatives.

    It minimises Σ_{(c,i)∈S} Σ_{j∉I_c} ln(1 + exp(ŷ(j|c) − ŷ(i|c))) / (|I| − |I_c|), a smooth form of AUC in which a
    context counts in proportion to its number of pairs, and all ranks count equally.

    >>> from shortlist import datasets
    >>> model = BPR(dim=16, epochs=2).fit(datasets.load("online-retail").interactions, threads=1)
    >>> len(model.recommend([12347], n=5).ids[0])
    5

    Args:
        temperature: τ. The loss sees (ŷ(i|c) − ŷ(j|c))/τ. With `normalize=True`, τ should be well below 1.

    All other settings, such as `dim`, are those of `MatrixFactorization`. By default, BPR starts from singular vectors
    of the observed pairs and needs few epochs. Over 19 data sets the defaults reached 96 % of the NDCG@20 of the best
    of 20 settings; with random start values it was 74 % (docs/benchmarks.md).
    """

    def recipe(self) -> TrainingRecipe:
        """Return the pairwise logistic loss, uniform negatives and no weight."""
        return TrainingRecipe(Pairwise("logistic", self.temperature), Uniform(), None)


@dataclass(kw_only=True, repr=False, eq=False)
class AdaptiveBPR(_Preset):
    """BPR that draws negatives by their rank in the context's current list (Rendle and Freudenthaler 2014).

    Args:
        gamma: γ in q(j|c) ∝ exp(−r(j|c)/γ). With smaller γ, negatives are nearer to the top; see `AdaptiveRank`.
        temperature: as for `BPR`.

    All other settings, such as `dim`, are those of `MatrixFactorization`.
    """

    epochs: int = 20
    regularization: float = 0.02
    gamma: float = 500.0

    def recipe(self) -> TrainingRecipe:
        """Return the pairwise logistic loss, negatives by adaptive ranks and no weight."""
        return TrainingRecipe(Pairwise("logistic", self.temperature), AdaptiveRank(self.gamma), None)

    @classmethod
    def space(cls) -> Space:
        """Return the search space of BPR, with `gamma`."""
        return super().space() | {"gamma": Real(10.0, 10_000.0, log=True)}


@dataclass(kw_only=True, repr=False, eq=False)
class WARP(SGDFactorization):
    """Weighted approximate-rank pairwise loss (Weston et al. 2011): negatives within the margin, weighted by rank.

    For each positive, items are drawn uniformly until one scores within `margin` of it. The step on the pairwise hinge
    max(0, 1 − (ŷ(i|c) − ŷ(j|c))/margin) is then weighted by γ(⌊(|I|−1)/N⌋), where N is the number of draws.

    Args:
        rounds: maximum number of draws for a positive. If none is within the margin, the positive is skipped.
        margin: see above. With `normalize=True` it should be well below 1.
        penalty: γ: `Reciprocal()`, `Linear()`, `Step(n)` or `TopN(n)` of `shortlist.objectives`, or text such as
            "TopN(5)".

    All other settings, such as `dim`, are those of `MatrixFactorization`. By default, WARP starts from singular vectors
    of the observed pairs. Over 19 data sets the defaults reached 98 % of the NDCG@20 of the best of 20 settings; with
    50 epochs from random start values it was 65 % (docs/benchmarks.md).
    """

    epochs: int = 20
    learning_rate: float = 0.01
    regularization: float = 0.0
    rounds: int = 50
    margin: float = 1.0
    penalty: str | Penalty = "Reciprocal()"

    def recipe(self) -> TrainingRecipe:
        """Return the pairwise hinge loss, negatives by rejection and a penalty on the estimated rank."""
        penalties: dict[str, type[Any]] = {name: kind for name, kind in WEIGHTS.items() if issubclass(kind, Penalty)}
        penalty: Penalty = parse_part("penalty", self.penalty, penalties)
        number("margin", self.margin, above=True)
        return TrainingRecipe(Pairwise("hinge", self.margin), Rejection(self.margin, self.rounds), penalty)

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the penalty as text."""
        return super().settings() | {"penalty": format_part(self.recipe().weight)}

    @classmethod
    def space(cls) -> Space:
        """Return the search space of all models trained by sampling, with `rounds`."""
        return super().space() | {"rounds": Integer(5, 200, log=True)}


@dataclass(kw_only=True, repr=False, eq=False)
class LambdaMF(_Preset):
    """LambdaRank for matrix factorization: pairwise logistic loss, weighted by the effect of a swap on a metric.

    The weight of a pair of items is |ΔM|, see `LambdaRank`, so the loss is q·|ΔM|·ln(1 + exp(ŷ(j|c) − ŷ(i|c))). For
    most uniform negatives |ΔM| is nearly 0; with `sampler="AdaptiveRank(gamma=2000.0)"`, for fewer.

    Args:
        sampler: `Uniform`, `Popularity`, `InBatch` or `AdaptiveRank` of `shortlist.sampling`, or text such as
            "Uniform()".
        metric: M: "ndcg", "ap", "auc", or with a cutoff "ndcg@20", "ap@20", "precision@10", "recall@20".
        ranks: `"sampled"` (estimated) or `"exact"`.
        candidates: number of items from which a sampled rank is estimated.
        temperature: as for `BPR`.

    All other settings, such as `dim`, are those of `MatrixFactorization`.
    """

    regularization: float = 3e-5  # small, because the weights make the gradients small
    sampler: str | Sampler = "Uniform(exclude='history')"
    metric: str = "ndcg"
    ranks: Ranks = "sampled"
    candidates: int = 32

    def recipe(self) -> TrainingRecipe:
        """Return the pairwise logistic loss, the sampler and the weight |ΔM|."""
        weight = LambdaRank(self.metric, self.ranks, self.candidates)
        return TrainingRecipe(
            Pairwise("logistic", self.temperature), parse_part("sampler", self.sampler, SAMPLERS), weight
        )

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the sampler as text."""
        return super().settings() | {"sampler": format_part(self.recipe().sampler)}

    @classmethod
    def space(cls) -> Space:
        """Return the search space of BPR, with less regularization because |ΔM| is small."""
        return super().space() | {"regularization": Real(1e-6, 1e-2, log=True)}


@dataclass(kw_only=True, repr=False, eq=False)
class _PointwiseMF(_Preset):
    """Base class of pointwise models trained by sampling."""

    epochs: int = 20
    biases: bool = True
    n_negatives: int = 4
    exclude: Exclude = "history"

    @classmethod
    def space(cls) -> Space:
        """Return the search space of all models trained by sampling, with more negatives."""
        return super().space() | {"n_negatives": Integer(1, 16, log=True)}


@dataclass(kw_only=True, repr=False, eq=False)
class LogisticMF(_PointwiseMF):
    """Logistic matrix factorization with biases: pointwise logistic loss, uniform negatives.

    It minimises Σ_{(c,i)∈S} ln(1 + e^{−ŷ}) + Σ_c m·|I_c|/(|I| − |I_c|)·Σ_{j∉I_c} ln(1 + e^{ŷ}). Rendle et al. (2020)
    draw negatives from all items; `exclude="positive"` is the same except for the item of the pair itself.

    Args:
        exclude: items that are not drawn as negatives: `"history"`, all items of the context, or `"positive"`, only the
            item of the pair.

    All other settings, such as `dim`, are those of `MatrixFactorization`.
    """

    learning_rate: float = 0.05

    def recipe(self) -> TrainingRecipe:
        """Return the pointwise logistic loss, uniform negatives and no weight."""
        return TrainingRecipe(Pointwise("logistic", temperature=self.temperature), Uniform(self.exclude), None)


@dataclass(kw_only=True, repr=False, eq=False)
class HingeMF(_PointwiseMF):
    """Matrix factorization with biases and pointwise hinge loss: observed pairs above 1, unobserved pairs below −1.

    The settings are those of `LogisticMF`.
    """

    def recipe(self) -> TrainingRecipe:
        """Return the pointwise hinge loss, uniform negatives and no weight."""
        return TrainingRecipe(Pointwise("hinge", temperature=self.temperature), Uniform(self.exclude), None)


@dataclass(kw_only=True, repr=False, eq=False)
class SquareMF(_PointwiseMF):
    """Matrix factorization with biases and pointwise square loss: observed pairs near 1, unobserved pairs near 0.

    `IALS` minimises this type of loss over all pairs, without sampling. The settings are those of `LogisticMF`.
    """

    epochs: int = 10
    learning_rate: float = 0.02
    regularization: float = 0.03

    def recipe(self) -> TrainingRecipe:
        """Return the pointwise square loss, uniform negatives and no weight."""
        return TrainingRecipe(Pointwise("square", temperature=self.temperature), Uniform(self.exclude), None)


@dataclass(kw_only=True, repr=False, eq=False)
class SoftmaxMF(SGDFactorization):
    """Matrix factorization of cosines with the softmax loss over the whole catalogue: −Σ_{(c,i)∈S} ln p(i|c).

    The defaults work without tuning: 9 epochs that start from singular vectors of the pairs. From random start values
    (`init="random"`) about 30 epochs are as good. An epoch takes 6·|C||I|d floating-point operations, regardless of the
    number of pairs.

    >>> from shortlist import datasets
    >>> model = SoftmaxMF(dim=16, epochs=2, batch=64).fit(datasets.load("online-retail").interactions)
    >>> len(model.recommend([12347], n=5).ids[0])
    5

    Args:
        temperature: τ of p(i|c) ∝ exp(ŷ(i|c)/τ). Try 0.08 to 0.12.
        n_negatives: 0: the full softmax, in batches of contexts. Above 0: the sampled softmax with this number of
            negatives, shared by a batch of observed pairs, drawn with q ∝ popularity^β and corrected by q.
        beta: β in q ∝ popularity^β.
        exclude: items excluded from the partition function of a positive: `"history"`, the other items of the context,
            or `"positive"`, no other items (the ordinary softmax).
        batch: batch size: number of contexts, or of pairs if negatives are drawn.

    All other settings, such as `dim`, are those of `MatrixFactorization`. The result does not depend on the number of
    threads.
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
        """Return the softmax loss, all items or popularity-based negatives, and no weight."""
        sampled = self.n_negatives is not None and integer("n_negatives", self.n_negatives, 0) > 0
        sampler = Popularity(self.beta, self.exclude) if sampled else AllItems(self.exclude)
        return TrainingRecipe(Softmax(self.temperature), sampler, None)

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        integer("batch", self.batch)
        number("beta", self.beta)
        super().check_settings()

    def unused_settings(self) -> dict[str, str]:
        """Return the settings that have no effect given the other settings, as {name: reason}."""
        unused = super().unused_settings()
        unused.pop("n_negatives", None)  # 0 means no sampling
        if not self.n_negatives:
            unused["beta"] = f"with n_negatives={self.n_negatives}, because no negatives are drawn"
        return unused

    def _check_negatives(self, objective: Any) -> None:
        integer("n_negatives", self.n_negatives, 0, MOST_DRAWS)

    @classmethod
    def space(cls) -> Space:
        """Return the search space: temperature, learning rate, start values and exponents; the dimension grows."""
        return {
            "dim": Increasing(64, 128, 256),
            "temperature": Real(0.05, 0.15, log=True),
            "learning_rate": Real(1e-3, 0.03, log=True),
            "init": Choice("random", "svd"),
            "positive_context_exponent": Real(-0.5, 0.2),
            "positive_item_exponent": Real(-0.1, 0.3),
        }
