"""Singular vectors and metrics on a GPU, by PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def singular_vectors(contexts: Any, items: Any, n_contexts: int, n_items: int, dim: int) -> tuple[Any, Any, Any]:
    """As `shortlist.solvers.svd_init`, on a GPU: U, s and V of the pairs that these columns name."""
    import torch

    of_context, of_item = torch.bincount(contexts).float() ** -0.5, torch.bincount(items).float() ** -0.5
    where = torch.stack([contexts, items]).long()
    values = of_context[where[0]] * of_item[where[1]]
    matrix = torch.sparse_coo_tensor(where, values, (n_contexts, n_items)).coalesce()
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    U, s, V = torch.svd_lowrank(matrix, q=dim + 16, niter=4)
    return U[:, :dim], s[:dim], V[:, :dim]


def by_context(scores: Callable[[int, int], Any], seen: Any, truth: Any, cut: int) -> tuple[Any, Any]:
    """Recall and NDCG at the cut of every context with a truth; what was seen is left out.

    Args:
        scores: from the first and last row of a block to its scores, a new tensor each time.
        seen: indptr and indices of the histories, on the device.
        truth: the same of what is asked for.
        cut: how long the lists are.
    """
    import torch

    device, block = truth[0].device, 4096
    discount = 1 / torch.log2(torch.arange(2, cut + 2, device=device, dtype=torch.float64))
    ideal = discount.cumsum(0)

    def entries(rows: Any, start: int, stop: int) -> tuple[Any, Any, Any]:
        """The size of each row, and the row and column of each entry."""
        indptr, indices = rows
        size = indptr[start + 1 : stop + 1] - indptr[start:stop]
        row = torch.repeat_interleave(torch.arange(stop - start, device=device), size)
        return size, row, indices[int(indptr[start]) : int(indptr[stop])]

    recalls, ndcgs = [], []
    n = len(truth[0]) - 1
    for start in range(0, n, block):
        stop = min(n, start + block)
        values = scores(start, stop)
        _, row, column = entries(seen, start, stop)
        values[row, column] = -torch.inf
        top = values.topk(cut, dim=1).indices
        size, row, column = entries(truth, start, stop)
        relevant = torch.zeros_like(values, dtype=torch.bool)
        relevant[row, column] = True
        hits = relevant.gather(1, top).double()
        some = size > 0
        recalls.append(hits.sum(1)[some] / size[some])
        ndcgs.append((hits @ discount)[some] / ideal[size[some].clamp(max=cut) - 1])
    return torch.cat(recalls), torch.cat(ndcgs)
