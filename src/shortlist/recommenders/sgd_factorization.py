"""Base class of matrix factorizations by sampling, for any objective, sampler and weight."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._aligned import aligned
from shortlist._checks import flag, integer, number, one_of
from shortlist._kernel_views import for_kernels, on_cache_line
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.objectives import LambdaRank, Pairwise, Penalty, Pointwise, Softmax
from shortlist.objectives.frequency_weights import FrequencyWeights
from shortlist.objectives.lambdarank import MetricTables
from shortlist.objectives.losses import CODES as LOSSES
from shortlist.objectives.weighting import BY_DEFAULT, WEIGHTINGS, Weighting, strengths
from shortlist.recommenders.base import largest_of
from shortlist.recommenders.dot_product import DotProduct, longest
from shortlist.recommenders.factorization import Factorization
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.search_space import Choice, Increasing, Real, Space, When
from shortlist.recommenders.unused_settings import unused_labels
from shortlist.recommenders.warm_start import known_embeddings
from shortlist.sampling import AdaptiveRank, BoundSampler, InBatch, Popularity, Rejection, Sampler, Uniform
from shortlist.sampling.all_items import AllItems
from shortlist.sampling.sampler_tables import SamplerTables
from shortlist.scoring.pair_score import unit_rows
from shortlist.solvers.als import initial_embeddings
from shortlist.solvers.optimizers import CODES as OPTIMIZERS
from shortlist.solvers.optimizers import OptimizerName, OptimizerState, n_alike
from shortlist.solvers.sgd import SCHEDULES, SampledSteps, Schedule, fold_in, for_histories, touches
from shortlist.solvers.sgd_tables import LAMBDA, PAIRWISE, PENALTY, PLAIN, POINTWISE, StepTables, WeightTables
from shortlist.solvers.square_fold_in import SquareFoldIn
from shortlist.solvers.train import Embeddings, EmbeddingTrainer

Objective: TypeAlias = Pointwise | Pairwise | Softmax
Weight: TypeAlias = Penalty | LambdaRank
StrengthAs: TypeAlias = Literal["weight", "label"]
MOST_DRAWS = 1_000_000  # largest n_negatives; more must be a mistake, and folding in would take too long
_NO_LAMBDAS = MetricTables(np.zeros(1, np.float32), np.ones(1, np.float32), 0, 1, np.zeros((1, 1), np.float32))


class TrainingRecipe(NamedTuple):
    """The loss, the sampler of negatives, and the weight of a negative."""

    objective: Objective
    sampler: Sampler | AllItems
    weight: Weight | None


@dataclass(frozen=True, eq=False)
class PairStats:
    """The training recipe, and statistics of the observed pairs: weights of contexts and items, and item counts."""

    recipe: TrainingRecipe
    by_context: SparseRows
    contexts: FrequencyWeights
    items: FrequencyWeights
    counts: npt.NDArray[np.int64]  # pairs of each item


@dataclass(kw_only=True, repr=False, eq=False)
class SGDFactorization(Factorization):
    """Base class of matrix factorizations by stochastic gradient descent; a subclass defines the loss in `recipe`.

    Args:
        dim: d, the length of the embeddings.
        epochs: maximum number of passes over the observed pairs; with a validation split `fit` may stop earlier.
        learning_rate: η, the step size; with a schedule, its value in the first epoch.
        regularization: λ. A step on a row is −η(∇l + λθ), so each update of the row adds ½λ‖θ‖² to the loss, and n
            updates in an epoch add ½λn‖θ‖². With `regularization_exponent=ν` it is ½λn^ν·‖θ‖²: ν = 1 is what published
            settings mean, and with ν = 0 every row has the same λ. For Softmax, n is the number of times that the row
            is observed, and ν is ignored.
        context_regularization: λ of the contexts; None: `regularization`.
        item_regularization: λ of the items; None: `regularization`.
        bias_regularization: λ of the biases; None: `regularization`.
        regularization_exponent: ν.
        biases: whether scores have biases: ŷ = ⟨w_c, h_i⟩ + b_i, and + b_c for pointwise losses. Biases are two more
            columns of the embeddings, so a score is still an inner product.
        normalize: whether ⟨w_c, h_i⟩ is the cosine of the two.
        n_negatives: m, the number of negatives per positive; for Softmax, the number per batch.
        weighting: how a weight w becomes the strength of a pair: 1 for `"binary"`, log₂(1 + w) for `"log"`, w for
            `"raw"`.
        strength_as: whether the strength is the pair's `"weight"` or, for pointwise losses, its `"label"` y.
        positive_context_exponent: ρ: a pair of a context with n pairs weighs n^ρ, scaled to a mean of 1 over contexts.
            With −1 every context has the same total weight.
        positive_item_exponent: the same by the number of the item's pairs; below 0, popular positives count less.
        optimizer: `"sgd"`, `"adagrad"` or `"adam"`. A step changes only the rows that it uses.
        schedule: the learning rate over the epochs: `"constant"`, `"linear"` or `"cosine"` to 0, or `"inverse"` to a
            tenth.
        schedule_epochs: number of epochs after which the schedule ends; 0: `epochs`.
        init: start values: `"random"`, N(0, (init_scale/√d)²), or `"svd"`, the leading singular vectors of the observed
            pairs, with rows of length `init_scale`. Biases start at 0.
        init_scale: see `init`.
        fold_in_epochs: passes over a history to compute the embedding of a new context. The pointwise square loss
            ignores it, because its minimum is computed directly.
        seed: seed of the start values and of all sampling. The same seed gives the same model only with
            `fit(..., threads=1)`: several threads run without locks, and the model varies slightly between runs.
    """

    _every: ClassVar[int] = 5
    _on_first_use: ClassVar[dict[str, str]] = DotProduct._on_first_use | dict.fromkeys(
        ("_prepared", "_folding"), "_prepare_fold_in"
    )

    dim: int = 256
    init_scale: float = 1.0
    epochs: int = 10
    learning_rate: float = 0.03
    regularization: float = 0.01
    context_regularization: float | None = None
    item_regularization: float | None = None
    bias_regularization: float | None = None
    regularization_exponent: float = 1.0
    biases: bool = False
    normalize: bool = False
    n_negatives: int = 1
    weighting: Weighting = BY_DEFAULT
    strength_as: StrengthAs = "weight"
    positive_context_exponent: float = 0.0
    positive_item_exponent: float = 0.0
    optimizer: OptimizerName = "adagrad"
    schedule: Schedule = "linear"
    schedule_epochs: int = 0
    fold_in_epochs: int = 20
    init: Literal["random", "svd"] = "svd"

    @abstractmethod
    def recipe(self) -> TrainingRecipe:
        """Return the objective, the sampler and the weight."""

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        super().check_settings()
        for name in ("learning_rate", "regularization", "regularization_exponent"):
            number(name, getattr(self, name))
        for name in ("context_regularization", "item_regularization", "bias_regularization"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name))
        for name in ("positive_context_exponent", "positive_item_exponent"):
            number(name, getattr(self, name), -math.inf)
        for name in ("biases", "normalize"):
            flag(name, getattr(self, name))
        integer("fold_in_epochs", self.fold_in_epochs, most=10_000)
        integer("schedule_epochs", self.schedule_epochs, least=0)
        one_of("weighting", self.weighting, WEIGHTINGS)
        one_of("strength_as", self.strength_as, ("weight", "label"))
        one_of("optimizer", self.optimizer, tuple(OPTIMIZERS))
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("init", self.init, ("random", "svd"))
        objective, sampler, weight = self.recipe()
        self._check_negatives(objective)
        if self.strength_as == "label" and not isinstance(objective, Pointwise):
            raise SettingError(
                f"strength_as is 'label', but {objective} has no labels", field="strength_as", hint="use 'weight'"
            )
        if isinstance(sampler, AllItems) and not isinstance(objective, Softmax):
            raise SettingError(
                f"{sampler} is for Softmax", field="sampler", hint=f"for {objective} use a sampler such as Uniform()"
            )
        if isinstance(objective, Softmax):
            from shortlist.recommenders.softmax_training import check_softmax_sampler

            check_softmax_sampler(sampler)
        if weight is not None and not isinstance(objective, Pairwise):
            raise SettingError(
                f"{weight} weights pairs of items, but {objective} has none", field="weight", hint="omit weight"
            )
        if isinstance(weight, LambdaRank) and sampler.exclude != "history":
            raise SettingError(
                f"{weight} needs irrelevant negatives, but {sampler} may draw the history",
                field="weight",
                hint="use exclude='history'",
            )
        if isinstance(sampler, AdaptiveRank) and self.normalize and self.biases:
            raise SettingError(
                f"{sampler} does not support normalize and biases together", field="sampler", hint="omit one of them"
            )
        if isinstance(weight, Penalty) and not isinstance(sampler, Rejection):
            raise SettingError(
                f"{weight} needs the ranks that Rejection estimates, but sampler is {sampler}",
                field="weight",
                hint="use Rejection()",
            )

    def unused_settings(self) -> dict[str, str]:
        """Return the settings that have no effect given the other settings, as {name: reason}."""
        unused = super().unused_settings() | unused_labels(self)
        recipe = self.recipe()
        objective, sampler, _ = recipe
        if self.schedule == "constant":
            unused["schedule_epochs"] = "with schedule='constant', because the learning rate never changes"
        if not self.biases:
            unused["bias_regularization"] = "with biases=False"
        if self._has_closed_form(recipe):
            unused["fold_in_epochs"] = f"with {objective}, because fold-in is solved directly, without passes"
        if isinstance(objective, Softmax):
            unused["regularization_exponent"] = f"with {objective}, because a row counts as often as it is observed"
            if isinstance(sampler, AllItems | InBatch):
                unused["n_negatives"] = f"with {sampler}, which draws no negatives"
        return unused

    def _unused_inputs(self, interactions: Interactions, options: FitOptions) -> list[str]:
        unused = super()._unused_inputs(interactions, options)
        if options.start is not None and self.init != type(self).init:
            unused.append(f"init={self.init!r} has no effect: the start values come from start; omit init")
        return unused

    def _check_negatives(self, objective: Objective) -> None:
        integer("n_negatives", self.n_negatives, most=MOST_DRAWS)

    @classmethod
    def space(cls) -> Space:
        """Return the search space: learning rate, regularization and start values; the dimension grows."""
        return {
            "dim": Increasing(64, 128, 256),
            "learning_rate": Real(3e-3, 0.3, log=True),
            "regularization": Real(1e-5, 0.1, log=True),
            "init": Choice("random", "svd"),
            "init_scale": Real(0.1, 4.0, log=True, when=When("init", "svd")),
        }

    # --- what a step is ----------------------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        return int(self.dim) + (2 if self.biases else 0)

    @property
    def latent_dim(self) -> int:
        """The number of columns without the biases, which come last."""
        return int(self.dim)

    def _by_column(self, latent: float, bias_1: float, bias_2: float) -> npt.NDArray[np.float32]:
        """Return a value for each column of the embeddings: the latent ones, then the two of the biases."""
        return np.array([latent] * int(self.dim) + ([bias_1, bias_2] if self.biases else []), np.float32)

    def _rates(self, objective: Objective) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return η by column for both sides; 0 in the column of ones that belongs to the other side's bias."""
        eta = float(self.learning_rate)
        context_bias = eta if isinstance(objective, Pointwise) else 0.0  # cancels in other losses
        return self._by_column(eta, 0, context_bias), self._by_column(eta, eta, 0)

    def _ridges(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return λ by column for both sides."""
        given = (self.context_regularization, self.item_regularization, self.bias_regularization)
        contexts, items, biases = (self.regularization if value is None else value for value in given)
        return self._by_column(contexts, 0, biases), self._by_column(items, biases, 0)

    def _step_tables(self, prepared: PairStats, effective_counts: npt.NDArray[np.float64]) -> StepTables:
        """Return the tables of a step, for contexts with these `SparseRows.effective_counts`."""
        objective = prepared.recipe.objective
        assert not isinstance(objective, Softmax)
        kind = PAIRWISE if isinstance(objective, Pairwise) else POINTWISE
        context_ridges, item_ridges = self._ridges()
        context_rates, item_rates = self._rates(objective)
        context_scales, item_scales = self._scales(kind, prepared, effective_counts)
        return StepTables(
            objective=kind,
            loss=LOSSES[objective.loss],
            optimizer=OPTIMIZERS[self.optimizer],
            n_negatives=int(self.n_negatives),
            cosine=self._cosine,
            sharpness=1 / float(objective.temperature),
            strength_is_label=int(self.strength_as == "label"),
            negative_label=objective.negative_label if isinstance(objective, Pointwise) else 0.0,
            negative_weight=float(objective.negative_weight) if isinstance(objective, Pointwise) else 0.0,
            context_weights=prepared.contexts.new(effective_counts),
            item_weights=prepared.items.values,
            context_rates=context_rates,
            item_rates=item_rates,
            context_ridges=context_ridges,
            item_ridges=item_ridges,
            alike=min(n_alike(context_rates, context_ridges), n_alike(item_rates, item_ridges)),
            context_scales=context_scales,
            item_scales=item_scales,
            frozen=0,
        )

    def _tables_for(
        self, tables: StepTables, prepared: PairStats, effective_counts: npt.NDArray[np.float64]
    ) -> StepTables:
        """Return the tables of a step for other contexts."""
        scales, _ = self._scales(tables.objective, prepared, effective_counts)
        return tables._replace(context_weights=prepared.contexts.new(effective_counts), context_scales=scales)

    def _scales(
        self, kind: int, prepared: PairStats, effective_counts: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return the factors of λ of contexts and of items, one for all if they do not depend on their pairs."""
        if self.regularization_exponent == 1:
            return np.ones(1, np.float32), np.ones(1, np.float32)
        updates = touches(kind, int(self.n_negatives), effective_counts, prepared.counts)
        contexts, items = ((np.maximum(n, 1) ** (self.regularization_exponent - 1)).astype(np.float32) for n in updates)
        return contexts, items

    @property
    def _cosine(self) -> int:
        return int(self.dim) if self.normalize else 0

    def _weigher(self, prepared: PairStats, longest_history: int) -> WeightTables:
        return _weigher(prepared.recipe.weight, prepared.by_context.n_columns, longest_history)

    # --- learning ----------------------------------------------------------------------------------------------------

    def _precompute(self, by_context: SparseRows) -> PairStats:
        counts = by_context.column_counts()
        contexts = FrequencyWeights.of(by_context.lengths, self.positive_context_exponent)
        items = FrequencyWeights.of(counts, self.positive_item_exponent)
        return PairStats(self.recipe(), by_context, contexts, items, counts)

    def _schedule_epochs(self, epochs: int) -> int | None:
        return None if self.schedule == "constant" else int(self.schedule_epochs or epochs)

    def settings_ending_at(self, epoch: int) -> dict[str, Any]:
        """Return the settings with which a fit from scratch ends with the model of this epoch."""
        schedule_epochs = self._schedule_epochs(int(self.epochs))
        return {"epochs": epoch} | ({} if schedule_epochs is None else {"schedule_epochs": schedule_epochs})

    def _start(
        self, interactions: Interactions, prepared: PairStats, start: DotProduct | None, threads: int | None
    ) -> tuple[Embeddings | None, Embeddings]:
        sizes = (interactions.n_contexts, interactions.n_items)
        sides = [initial_embeddings(n, self.dim, self.init_scale, self.seed, k) for k, n in zip((1, 0), sizes)]
        if self.init == "svd" and start is None:
            from shortlist.solvers.svd_init import singular_vectors, spread_along

            U, s, V = singular_vectors(interactions.by_context, int(self.dim), int(self.seed))
            for side, vectors in zip(sides, (U, V)):
                spread_along(side, vectors, s, float(self.init_scale))
        if self.biases:
            of_context, of_item = self._by_column(0, 1, 0)[-2:], self._by_column(0, 0, 1)[-2:]
            columns = (of_context, of_item)
            sides = [np.hstack([side, np.tile(last, (len(side), 1))]) for side, last in zip(sides, columns)]
        if start is not None:
            both_biased = self.biases and isinstance(start, SGDFactorization) and start.biases
            known_embeddings(start, interactions, sides[0], sides[1], 2 if both_biased else 0)
        sides[0][interactions.by_context.lengths == 0] = 0  # like a folded-in empty history; they are never updated
        return sides[0], sides[1]

    def _trainer(
        self,
        interactions: Interactions,
        prepared: PairStats,
        contexts: Embeddings | None,
        items: Embeddings,
        threads: int | None,
        epochs: int,
    ) -> EmbeddingTrainer:
        assert contexts is not None
        objective, sampler, weight = prepared.recipe
        rows = prepared.by_context
        if isinstance(objective, Softmax):
            from shortlist.recommenders.softmax_training import softmax_trainer

            rates, ridges = self._rates(objective), self._ridges()
            return softmax_trainer(
                self, prepared, contexts, items, rates=rates, ridges=ridges, threads=threads, epochs=epochs
            )
        assert isinstance(sampler, Sampler)
        kind = OPTIMIZERS[self.optimizer]
        negatives = sampler.bind(rows)
        return SampledSteps(
            rows,
            strengths(rows.values, self.weighting),
            negatives,
            self._weigher(prepared, int(rows.lengths.max(initial=0))),
            isinstance(weight, LambdaRank) and weight.ranks == "exact",
            self._step_tables(prepared, rows.effective_counts),
            prepared.counts,
            contexts,
            items,
            (OptimizerState.of(kind, contexts.shape), OptimizerState.of(kind, items.shape)),
            self.schedule,
            int(self.schedule_epochs or epochs),
            int(self.seed),
            threads,
        )

    # --- answers -----------------------------------------------------------------------------------------------------

    def _set_contexts(self, contexts: Embeddings) -> None:
        super()._set_contexts(unit_rows(contexts, self._cosine))

    def _set_items(self, items: Embeddings, prepared: PairStats) -> None:
        self.item_embeddings_ = aligned(unit_rows(items, self._cosine))  # type: ignore[misc]
        self._keep_prepared(prepared)

    def _keep_prepared(self, prepared: PairStats) -> None:
        self._prepared = prepared
        self._folding: Any = None  # what folding in derives from the items, on first use

    def _fold_in(self, histories: SparseRows, threads: int | None = None) -> Embeddings:
        """Return embeddings of contexts with these histories, with the items fixed.

        See `solvers.sgd.fold_in`, `solvers.square_fold_in` and `solvers.softmax_fold_in`.
        """
        prepared = self._prepared
        if isinstance(prepared.recipe.objective, Softmax):
            from shortlist.recommenders.softmax_training import pair_weights, softmax_fold_in

            folding = self._folding
            if folding is None:
                folding = self._folding = softmax_fold_in(self, prepared, self._ridges()[0], threads)
            weights = pair_weights(self, prepared, histories)
            return unit_rows(folding(histories, weights, threads), self._cosine)
        folding = self._folding
        if folding is None:
            folding = self._folding = self._fold_in_tables(prepared, threads)
        of_items, tables = folding
        tables = self._tables_for(tables, prepared, histories.effective_counts)
        weights = strengths(histories.values, self.weighting)
        if isinstance(of_items, SquareFoldIn):
            return unit_rows(of_items(histories, weights, tables, threads), self._cosine)
        longest_history = 1 << int(histories.lengths.max(initial=0)).bit_length()  # few values, for the cache
        embeddings = fold_in(
            histories,
            weights,
            for_kernels(self.item_embeddings_),
            dim=int(self.dim),
            tables=for_histories(of_items, histories, int(self.seed)),
            weigher=self._weigher(prepared, longest_history),
            rules=tables,
            passes=int(self.fold_in_epochs),
            seed=int(self.seed),
            threads=threads,
        )
        return unit_rows(embeddings, self._cosine)

    def _fold_in_tables(
        self, prepared: PairStats, threads: int | None
    ) -> tuple[SquareFoldIn | SamplerTables, StepTables]:
        """Return the closed form or the sampler's tables, and the tables of a step."""
        sampler = prepared.recipe.sampler
        assert isinstance(sampler, Sampler)
        tables = self._step_tables(prepared, np.zeros(1))
        negatives = folding_sampler(sampler, prepared.by_context)
        if self._has_closed_form(prepared.recipe):
            return SquareFoldIn(for_kernels(self.item_embeddings_), int(self.dim), negatives, tables), tables
        negatives.refresh(for_kernels(self.item_embeddings_), threads)
        return negatives.tables, tables

    def _has_closed_form(self, recipe: TrainingRecipe) -> bool:
        """Return whether fold-in has a closed form: a square loss, with negatives from a fixed distribution."""
        objective, sampler, weight = recipe
        square = isinstance(objective, Pointwise) and objective.loss == "square" and not self.normalize
        return square and weight is None and isinstance(sampler, Uniform | Popularity | InBatch)

    def _fold_in_items(self, rows: SparseRows, threads: int | None = None) -> Embeddings:
        raise SettingError(
            f"{type(self).__name__} learns from sampled negatives and cannot fold in items: an item's loss depends on "
            "how often it is drawn as a negative, and a new item never is",
            hint="Use partial_fit(events) to learn new items, or IALS, whose loss is over all pairs",
        )

    def _check_arrays(self) -> None:
        super()._check_arrays()
        self._require_shape("item_embeddings_", (len(self.items_), self._width))
        if not on_cache_line(self.item_embeddings_):  # saved by an earlier version
            self.item_embeddings_ = aligned(self.item_embeddings_)  # type: ignore[misc]

    def _prepare_fold_in(self) -> None:
        """Set what folding in to a loaded model needs."""
        self._keep_prepared(self._precompute(self.seen_))

    def _largest(self) -> float:
        folding_in = longest(self.item_embeddings_) ** 2 * max(1.0, float(self.learning_rate)) * self._width
        return largest_of(super()._largest(), folding_in)


@lru_cache(maxsize=16)
def _weigher(weight: Weight | None, n_items: int, longest_history: int) -> WeightTables:
    """Return the tables of a weight, for this number of items and histories up to this length."""
    if isinstance(weight, LambdaRank):
        return WeightTables(LAMBDA, np.zeros(1, np.float32), weight.tables(n_items, longest_history))
    if isinstance(weight, Penalty):
        return WeightTables(PENALTY, weight.table(n_items), _NO_LAMBDAS)
    return WeightTables(PLAIN, np.zeros(1, np.float32), _NO_LAMBDAS)


def folding_sampler(sampler: Sampler, histories: SparseRows) -> BoundSampler:
    """Return the sampler for folding in single contexts; they have no batch, so `InBatch` becomes popularity."""
    if isinstance(sampler, InBatch):
        return Popularity(1.0, sampler.exclude).bind(histories)
    return sampler.bind(histories)
