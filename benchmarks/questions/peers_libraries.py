"""The libraries of `peers.py`: how each is installed and run, what of it is measured, and which features it has."""

from __future__ import annotations

from dataclasses import dataclass, field

TORCH = "torch==2.13.0"  # a CPU build where the package index has one; anything looser brings several GB of CUDA
OLD = ("numpy<2", "pandas<3", "scipy<1.14", "setuptools<81")  # what RecBole needs

# --- features --------------------------------------------------------------------------------------------------------

FEATURES = {
    "iALS": "weighted least squares over all pairs, observed or not, by alternating solves",
    "BPR": "a pairwise logistic loss on sampled negatives",
    "WARP": "a loss that draws negatives until one is ranked too high",
    "softmax": "a softmax loss, full or sampled",
    "features": "a model that learns from features of users or items",
    "fold-in": "recommendations for a new history without a new fit",
    "filters": "a list of allowed or of forbidden items, and still n results where as many are left",
    "intervals": "evaluation reports confidence intervals of a metric or of a difference",
    "ANN": "approximate nearest neighbours for a large catalogue",
}
YES, PART = "✓", "(✓)"


@dataclass(frozen=True)
class Library:
    """A library and what is measured of it.

    Attributes:
        name: of its results, its environment and its worker.
        label: in the table.
        requirement: what pip is told to install.
        refused: what pip is told first, which is known to fail, because it is the name that people try.
        torch: whether PyTorch is installed before it, so that pip takes the CPU build.
        check: Python code that fails where the installed library does not run.
        repair: what is installed after a failed check, to see whether that was all.
        pins: further requirements of a second environment; that one runs the measurement.
        environment: variables of the worker.
        epoch: what an epoch is.
        like: the command of the Shortlist worker that does the same kind of epoch, where it is not iALS.
        like_label: the same in words.
        slow: the questions in which a turn takes so long that there are fewer of them.
        model: its default model.
        variants: further commands of the worker that make lists, with what they are.
        evaluation: what is timed for evaluation.
        features: those it has; what is missing it has not.
    """

    name: str
    label: str
    requirement: str
    check: str
    epoch: str
    model: str
    evaluation: str
    features: dict[str, str]
    refused: str | None = None
    torch: bool = False
    repair: str | None = None
    pins: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    like: str | None = None
    like_label: str = ""
    slow: tuple[str, ...] = ()
    variants: dict[str, str] = field(default_factory=dict)

    @property
    def pinned(self) -> str:
        """The name of the environment that runs the measurement."""
        return f"{self.name}-pinned" if self.pins else self.name


ONE_BLAS_THREAD = {"OPENBLAS_NUM_THREADS": "1"}

SHORTLIST = Library(
    name="shortlist",
    label="**Shortlist**",
    requirement=".",
    check="import shortlist; shortlist.IALS()",
    epoch="iALS, conjugate gradients in the eigenbasis",
    model="IALS()",
    evaluation="evaluate: recall and NDCG",
    features=dict.fromkeys(FEATURES, YES),
)

IMPLICIT = Library(
    name="implicit",
    label="implicit",
    requirement="implicit",
    check="import implicit.als, implicit.evaluation",
    environment=ONE_BLAS_THREAD,
    epoch="iALS, three steps of conjugate gradients",
    model="AlternatingLeastSquares()",
    evaluation="evaluation.ranking_metrics_at_k: precision, MAP, NDCG and AUC",
    features={
        "iALS": YES,  # implicit.als.AlternatingLeastSquares
        "BPR": YES,  # implicit.bpr.BayesianPersonalizedRanking
        "fold-in": YES,  # recommend(recalculate_user=True), partial_fit_users
        # recommend(items=) or recommend(filter_items=), not both; tried: n results while as many are left. Where fewer
        # are left it fills the list up with items that were to be left out.
        "filters": YES,
        "ANN": PART,  # implicit.ann: wrappers of annoy, faiss and nmslib, which are not installed with it
    },
)

RECTOOLS = Library(
    name="rectools",
    label="RecTools",
    requirement="rectools",
    check="from rectools.models import ImplicitALSWrapperModel",
    environment=ONE_BLAS_THREAD,
    epoch="implicit's iALS in its wrapper",
    model="ImplicitALSWrapperModel(AlternatingLeastSquares())",
    evaluation="recommend and calc_metrics: recall and NDCG",
    features={
        "iALS": YES,  # rectools.models.ImplicitALSWrapperModel
        "BPR": YES,  # rectools.models.ImplicitBPRWrapperModel
        "WARP": PART,  # rectools.models.LightFMWrapperModel, extra "lightfm"
        "softmax": PART,  # rectools.models.SASRecModel(loss="softmax"), extra "torch"
        "features": YES,  # ImplicitALSWrapperModel(fit_features_together=), DSSMModel, LightFMWrapperModel
        # SASRecModel and BERT4RecModel read histories from the dataset of `recommend`
        # (TransformerDataPreparatorBase.transform_dataset_u2i); iALS and BPR do not: recommends_for_warm = False
        "fold-in": PART,
        "filters": YES,  # recommend(items_to_recommend=, filter_viewed=): allowed items only
        "ANN": PART,  # rectools.tools.ann.UserToItemAnnRecommender, extra "nmslib"
    },
)

LIGHTFM = Library(
    name="lightfm",
    label="LightFM",
    requirement="lightfm-next",
    refused="lightfm",
    check="from lightfm import LightFM; from lightfm._lightfm_fast_openmp import fit_warp",
    epoch="WARP; it has no iALS",
    like="epoch_warp",
    like_label="Shortlist's WARP",
    model="LightFM(), logistic loss, one epoch",
    variants={"recommend_quickstart": 'LightFM(loss="warp"), 30 epochs, as in its quickstart'},
    evaluation="evaluation.recall_at_k: recall",
    features={
        "BPR": YES,  # LightFM(loss="bpr")
        "WARP": YES,  # LightFM(loss="warp"), and "warp-kos"
        "features": YES,  # fit(user_features=, item_features=)
        # It has predict and predict_rank, no recommend: no filters. New users only by their features, so no fold-in;
        # its documentation shows an index built by hand with other packages, so no ANN.
    },
)

RECBOLE = Library(
    name="recbole",
    label="RecBole",
    requirement="recbole",
    torch=True,
    check="from recbole.quick_start import run_recbole",
    repair="setuptools<81",
    pins=OLD,
    environment={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},  # its checkpoints hold objects, which torch 2.6 refuses
    epoch="BPR with Adam, batches of 2,048; it has no iALS",
    like="epoch_bpr",
    like_label="Shortlist's BPR with Adam",
    slow=("epoch",),
    model="BPR, 64 dimensions, stopped early on a tenth of the training pairs",
    evaluation="Trainer.evaluate: recall and NDCG, with a larger eval_batch_size",
    features={
        # ENMF has a loss of the kind of iALS, learnt by Adam; no alternating least squares: no iALS
        "BPR": YES,  # recbole.model.general_recommender.BPR
        "softmax": YES,  # SASRec with loss_type "CE", MultiVAE
        "features": YES,  # context_aware_recommender: FM, DeepFM, ...
        # SASRec.full_sort_predict scores any sequence that one puts into an Interaction; the general models and
        # utils.case_study.full_sort_topk know the users of the training data only
        "fold-in": PART,
        # full_sort_topk has no filters. significance_test.py, in the repository only, tests differences over seeds; no
        # intervals. faiss is imported for the clusters of NCL, not for search.
    },
)

LENSKIT = Library(
    name="lenskit",
    label="LensKit",
    requirement="lenskit",
    torch=True,
    check="from lenskit.als import ImplicitMFScorer",
    environment={**ONE_BLAS_THREAD, "LK_NUM_THREADS": "2", "LK_NUM_BACKEND_THREADS": "1", "LK_NUM_PROCS": "2"},
    epoch="iALS, Cholesky",
    slow=("evaluation",),
    model="ImplicitMFScorer()",
    evaluation="batch.recommend and RunAnalysis: recall and NDCG",
    features={
        "iALS": YES,  # lenskit.als.ImplicitMFScorer
        "BPR": YES,  # lenskit.flexmf.FlexMFImplicitScorer(preset="bpr")
        "WARP": YES,  # lenskit.flexmf.FlexMFImplicitScorer(preset="warp")
        "fold-in": YES,  # RecQuery(history_items=) and ALSBase.new_user_embedding
        # lenskit.recommend(pipeline, query, n, items=): allowed items only; seen items among them are recommended too,
        # so one leaves them out of `items`
        "filters": YES,
        # RunAnalysisResult.list_summary has mean, median and standard deviation: no intervals
    },
)

LIBRARIES = {library.name: library for library in (SHORTLIST, IMPLICIT, LIGHTFM, RECTOOLS, RECBOLE, LENSKIT)}
PEERS = tuple(name for name in LIBRARIES if name != "shortlist")
