"""iALS with a reranker as second stage, on the bundled data.

The data are split by time: train | held out for the reranker | test.

pip install "shortlist[rerank]"
python examples/two_stage.py
"""

import polars as pl

import shortlist as sl

data = sl.datasets.load("online-retail")
test = sl.splits.by_time(data.interactions, test=0.1)  # for the final evaluation
held = sl.splits.by_time(test.train, test=0.1)  # for training the reranker


def stage_one(events: sl.Interactions) -> sl.IALS:
    return sl.IALS(dim=64, regularization=0.003, unobserved_weight=1.0, epochs=6).fit(events)


# Features that stage one does not use: words of the title, and the price.
words = data.items.with_columns(pl.col("title").str.split(" "))
items = sl.Features.from_frame(
    words, id="product", multi_valued="title", numeric={"price": "log"}, min_count={"title": 50}
)
two = sl.TwoStage(stage_one(held.train), sl.LambdaMART(), candidates=100, item_features=items).fit(held)
print(two, "\n")
print(two.reranker.importance().head(8), "\n")

# The same reranker on a first stage trained on everything before the test.
two = two.with_first(stage_one(test.train))
result = sl.evaluate(two, test, ["ndcg@20", "recall@20"])
print(result, "\n")
print(sl.compare(*result.stages()), "\n")

customer = test.truth.contexts.ids()[0]
print(two.recommend([customer], n=5).to_polars().join(data.items, on="product", maintain_order="left"))
