"""Fit, compare and recommend in a few lines, on the bundled data.

python examples/online_retail.py
"""

import shortlist as sl

data = sl.datasets.load("online-retail")
split = sl.splits.by_time(data.interactions, test=0.1, repeats="drop")
print(split, "\n")

model = sl.IALS().fit(split.train)
popularity = sl.Popularity().fit(split.train)
print(sl.compare(sl.evaluate(model, split), sl.evaluate(popularity, split)), "\n")

customer = split.truth.contexts.ids()[0]
offers = model.recommend([customer], n=5).to_polars()
print(offers.join(data.items, on="product", maintain_order="left"))

# A new customer, by the items in the basket.
basket = ["22423", "85123A"]
print(model.recommend(history=[basket], n=5).to_polars().join(data.items, on="product", maintain_order="left"))
