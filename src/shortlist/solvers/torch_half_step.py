"""iALS in the eigenbasis of the Gramian for all rows at once, in torch: on a GPU, or on torch's CPU.

NumPy arrays go in and come out; in between everything stays on the device. Nothing but NumPy and torch is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist.errors import DataError, SettingError
from shortlist.solvers.cg_limits import CLEAR, END, FROZEN, NEAR, NOISE, ON_THE_WAY, TO_THE_END, CGLimits, least_ridge

try:
    torch: Any = import_module("torch")
except ModuleNotFoundError:  # said by `DeviceSolver`
    torch = None

if TYPE_CHECKING:
    from shortlist.data.sparse_rows import SparseRows
    from shortlist.objectives.pointwise_square import Terms

Tensor: TypeAlias = Any  # torch.Tensor; torch may not be there to name it

_GRAMIAN_BLOCK = 2048  # rows multiplied in float32 before they are added in float64
_ROTATE_BLOCK = 1 << 17  # rows rotated, or squared, at once
_LOSS_PAIRS = 1 << 22  # pairs scored at once
_FLOOR = 1e-6  # of the dense part: no entry of the preconditioner is below, where excess < 0 cancels


class DeviceSolver:
    """Alternating least squares where all rows of a half-step take a few steps of conjugate gradients at once.

    What `shortlist.solvers.eigen` does on a CPU.

    Each half-step rotates both sides into the eigenbasis of the other side's Gramian, G = QΛQᵀ, so the system of a row,

        (dense·G + Σ excess·ψψᵀ + ridge·I) w = Σ target·ψ,

    has the diagonal M = dense·Λ + ridge for its dense part. Conjugate gradients start from the row as it was; the
    preconditioner is the diagonal of the whole system, M + Σ excess·ψ². With S the observed pairs, a pass over all
    rows P is two sparse products: q = P Ψᵀ at S, and AP = (S with values excess·q) Ψ + M∘P.

    That is the plain form, and the one for a CPU. On a GPU with Triton the two are one kernel, which gathers every ψ
    once for both (`shortlist.solvers.triton_kernels`); its sums have a fixed order, so the same GPU gives the same
    result again.

    Everything is float32, but for Gramians, which are summed over blocks and diagonalised in float64, and sums over
    all pairs. TF32 is off.

    Args:
        by_context: the observed pairs by contexts; `by_item` the same by items.
        by_item: see `by_context`.
        context_terms: what the objective says of the pairs by contexts: `PointwiseSquare.terms`.
        item_terms: likewise by items.
        items: start values of the items, |I| × d; they are copied.
        contexts: start values of the contexts, to go on from an earlier state; else zero.
        device: a torch device, `"cuda"`, `"cuda:1"` or `"cpu"`, which may be called `"torch-cpu"`.
        limits: how far the rows of a half-step go.
        fused: Triton kernels instead of the plain form; by default on a GPU where Triton is installed.
    """

    def __init__(
        self,
        by_context: SparseRows,
        by_item: SparseRows,
        context_terms: Terms,
        item_terms: Terms,
        items: npt.NDArray[np.float32],
        *,
        contexts: npt.NDArray[np.float32] | None = None,
        device: str = "cuda",
        limits: CGLimits = ON_THE_WAY,
        fused: bool | None = None,
    ) -> None:
        self.device = _device(device)
        self._limits = limits
        if fused is None:
            fused = self.device.type == "cuda" and find_spec("triton") is not None
        sides = (by_context, context_terms), (by_item, item_terms)
        _refuse_what_does_not_fit(sides, items.shape[1], self.device, fused)
        dim = items.shape[1]
        self._by_context, self._by_item = (_Side(rows, terms, dim, self.device, fused) for rows, terms in sides)
        self._items = _put(items.astype(np.float32), self.device)
        start = np.zeros((by_context.n_rows, dim), np.float32) if contexts is None else contexts.astype(np.float32)
        self._contexts = _put(start, self.device)

    def epoch(self) -> None:
        """One pass: contexts given items, then items given contexts."""
        self._half_step(self._by_context, self._items, self._contexts, self._limits)
        self._half_step(self._by_item, self._contexts, self._items, self._limits)
        self._wait()

    def finish(self) -> None:
        """Solve the contexts to the end, so that each is what its history folds in to."""
        self._half_step(self._by_context, self._items, self._contexts, TO_THE_END)
        self._wait()

    def loss(self, *, total: bool = False) -> tuple[float, float, float]:
        """The loss of `PointwiseSquare` in its parts: observed, unobserved, regularizer.

        Args:
            total: whether the terms are of the `"total"` convention: excess is α − α₀ω_cω_i, and the unobserved sum
                leaves out the observed pairs.
        """
        with _computing(self.device):
            side, W, H = self._by_context, self._contexts, self._items
            observed = squares = torch.zeros((), dtype=torch.float64, device=self.device)
            for first, last, start, stop in side.parts(_LOSS_PAIRS):
                scores = side.scores(W, H, first, last, start, stop)
                weight, target = (_part(one, start, stop) for one in (side.excess, side.target))
                if total:
                    repeats = (side.indptr[first + 1 : last + 1] - side.indptr[first:last]).long()
                    dense = _part(side.dense, first, last).expand(last - first).repeat_interleave(repeats)
                    added = dense * (side.omega[side.indices[start:stop].long()] if len(side.omega) > 1 else side.omega)
                    weight = weight + added
                    squares = squares + (added * scores**2).sum(dtype=torch.float64)
                label = _ratio(target, weight)
                errors = (weight * (scores - label) ** 2).expand(stop - start)
                observed = observed + errors.sum(dtype=torch.float64)
            everywhere = (_gramian(W, side.dense) * _gramian(H, side.omega)).sum()
            regularizer = sum((one.ridge.double() * _squares(x)).sum() for one, x in ((side, W), (self._by_item, H)))
            return float(observed), float(everywhere - squares), float(regularizer)

    def embeddings(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Contexts and items as they are now. A solver that starts from them goes on as this one would."""
        contexts, items = (one.to("cpu", copy=True).numpy() for one in (self._contexts, self._items))
        return contexts, items

    def restore(self, items: npt.NDArray[np.float32]) -> None:
        """Take these items and forget the contexts."""
        self._items.copy_(torch.tensor(items))
        self._contexts.zero_()

    def _half_step(self, side: _Side, other: Tensor, own: Tensor, limits: CGLimits) -> None:
        with _computing(self.device):
            spectrum, Q = _eigenbasis(_gramian(other, side.omega))
            clear = side.is_clear(spectrum)
            if not clear:  # see `solvers.basis`
                spectrum, Q = _eigenbasis(_gramian(other.double(), side.omega))
            for embeddings in (other, own):
                _rotate(embeddings, Q.float() if clear else Q)
            if not clear:
                _drop_noise(spectrum, other, own)
            own[side.empty] = 0
            side.solve(other, own, spectrum, limits)

    def _wait(self) -> None:
        """Until all is done: who times an epoch means the work, not the asking for it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class _Side:
    """One side's observed pairs and terms on the device."""

    def __init__(self, rows: SparseRows, terms: Terms, dim: int, device: Any, fused: bool) -> None:
        kind = _index_type(len(rows))
        self.indptr, self.indices = (_put(one.astype(kind, copy=False), device) for one in (rows.indptr, rows.indices))
        arrays = terms.excess, terms.target, terms.ridge, terms.dense, terms.omega
        self.excess, self.target, self.ridge, self.dense, self.omega = (_put(one, device) for one in arrays)
        self.empty = _put(np.flatnonzero(rows.lengths == 0), device)
        self._least_ridge = least_ridge(terms.ridge)
        self._most_dense = float(terms.dense.max(initial=0.0))
        self._fused = None
        if fused:
            from shortlist.solvers.triton_kernels import FusedRows

            self._fused = FusedRows(rows.indptr, rows.indices, dim, device)

    def is_clear(self, spectrum: Tensor) -> bool:
        """Whether eigenvalues of a Gramian summed in float32 are precise enough for these rows."""
        most, least = float(spectrum[0]), float(spectrum[-1])
        return least > CLEAR * most or self._least_ridge > CLEAR * most * self._most_dense

    def solve(self, other: Tensor, own: Tensor, spectrum: Tensor, limits: CGLimits) -> None:
        """Set every row of `own` by CG; `other` is in the eigenbasis of its Gramian, whose eigenvalues are given."""
        spectrum = spectrum.float()
        if self._fused is not None:
            self._fused.solve(self, other, own, spectrum, limits)
            return
        n = len(own)
        excess, target = (one.expand(len(self.indices)) for one in (self.excess, self.target))

        def residual(w: Tensor) -> tuple[Tensor, Tensor]:
            values = target - excess * self.scores(w, other, 0, n, 0, len(excess))
            return self._sums(values, other), self._sums(excess.contiguous(), other * other)

        def product(p: Tensor) -> Tensor:
            return self._sums(excess * self.scores(p, other, 0, n, 0, len(excess)), other)

        M = self.dense[:, None] * spectrum + self.ridge[:, None]
        _conjugate_gradients(own, M.expand(n, -1), residual, product, limits)

    def parts(self, pairs: int) -> Iterator[tuple[int, int, int, int]]:
        """Runs of rows of about so many pairs: their first and last row, and their first and last pair."""
        marks = torch.tensor(range(pairs, len(self.indices), pairs), device=self.indptr.device)
        cuts = [0, *torch.searchsorted(self.indptr.long(), marks).unique().tolist(), len(self.indptr) - 1]
        bounds = self.indptr[torch.tensor(cuts, device=self.indptr.device)].tolist()
        for k in range(len(cuts) - 1):
            if bounds[k] < bounds[k + 1]:
                yield cuts[k], cuts[k + 1], bounds[k], bounds[k + 1]

    def scores(self, own: Tensor, other: Tensor, first: int, last: int, start: int, stop: int) -> Tensor:
        """The scores ŷ of the observed pairs `start` to `stop`, which are those of rows `first` to `last`."""
        if start == stop:
            return own.new_zeros(0)
        indptr = self.indptr[first : last + 1] - self.indptr[first]
        pattern = _csr(indptr, self.indices[start:stop], own.new_zeros(stop - start), (last - first, len(other)))
        return torch.sparse.sampled_addmm(pattern, own[first:last], other.T, beta=0).values()

    def _sums(self, values: Tensor, other: Tensor) -> Tensor:
        """For each row the sum of value·ψ over its pairs."""
        if len(values) == 0:
            return other.new_zeros(len(self.indptr) - 1, other.shape[1])
        return _csr(self.indptr, self.indices, values, (len(self.indptr) - 1, len(other))) @ other


def _conjugate_gradients(
    own: Tensor,
    M: Tensor,
    residual: Callable[[Tensor], tuple[Tensor, Tensor]],
    product: Callable[[Tensor], Tensor],
    limits: CGLimits,
) -> None:
    """Steps of preconditioned CG for every row of `own`, in place; a row that has gone far enough stays where it is.

    Args:
        own: start values.
        M: the diagonal of each row's dense part.
        residual: from w to Σ(target − excess·ŷ)ψ, and the diagonal Σ excess·ψ².
        product: from p to Σ excess·(ψᵀp)ψ.
        limits: how far to go.
    """
    w = own.clone()
    r, diagonal = residual(w)
    r = r - M * w
    P = torch.maximum(M + diagonal, _FLOOR * M)
    P = torch.where(FROZEN * P.amax(1, keepdim=True) < P, P, 0.0)
    z = _ratio(r, P)
    p, rz = z, (r * z).sum(1)
    start = rz
    for _ in range(limits.max_steps):
        moving = (rz > limits.tolerance**2 * start) & (rz > END**2 * (P * w * w).sum(1))
        if not moving.any():
            break
        Ap = product(p) + M * p
        length = torch.where(moving, _ratio(rz, (p * Ap).sum(1)), 0.0)[:, None]
        w += torch.where(length > 0, length * p, 0.0)
        r -= torch.where(length > 0, length * Ap, 0.0)
        z = _ratio(r, P)
        before, rz = rz, torch.where(length[:, 0] > 0, (r * z).sum(1), 0.0)
        p = z + _ratio(rz, before)[:, None] * p
    change = w - own
    near = (change * change).sum(1, keepdim=True) <= NEAR**2 * (w * w).sum(1, keepdim=True)
    own += torch.where(near, limits.relaxation, 1.0) * torch.where(w.isfinite().all(1, keepdim=True), change, 0.0)


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """The quotient, and zero where that is no number or `below` is not positive."""
    quotient = above / below
    return torch.where((below > 0) & quotient.isfinite(), quotient, 0.0)


def _gramian(embeddings: Tensor, omega: Tensor) -> Tensor:
    """Σωψψᵀ over all rows, in float64: blocks are multiplied in the precision they have and added in float64."""
    if len(omega) > 1:
        embeddings = embeddings * omega.sqrt()[:, None]
    n, d = embeddings.shape
    even = n - n % _GRAMIAN_BLOCK
    blocks = embeddings[:even].view(-1, _GRAMIAN_BLOCK, d)
    total = (embeddings[even:].T @ embeddings[even:]).double()
    for some in blocks.split(max(1, (1 << 26) // d**2)):  # the products of as many as take 256 MB
        total += torch.bmm(some.transpose(1, 2), some).sum(0, dtype=torch.float64)
    return total if len(omega) > 1 else total * omega.double()


def _squares(embeddings: Tensor) -> Tensor:
    """‖x‖² of each row, a block at a time."""
    return torch.cat([(block * block).sum(1) for block in embeddings.split(_ROTATE_BLOCK)]).double()


def _eigenbasis(G: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, largest first and none below zero, and the eigenvectors, each with a positive largest entry."""
    values, Q = torch.linalg.eigh(G)
    values, Q = values.flip(0).clamp(min=0), Q.flip(1)
    largest = Q.gather(0, Q.abs().argmax(0, keepdim=True))
    return values, torch.where(largest < 0, -Q, Q)


def _rotate(embeddings: Tensor, Q: Tensor) -> None:
    """Multiply every row by Q, in place and in Q's precision, a block at a time."""
    for block in embeddings.split(_ROTATE_BLOCK):
        block.copy_(block.to(Q.dtype) @ Q)


def _drop_noise(spectrum: Tensor, other: Tensor, own: Tensor) -> None:
    """`solvers.basis.drop_noise` on the device."""
    squares = sum((block * block).sum(0, dtype=torch.float64) for block in other.split(_ROTATE_BLOCK))
    lengths = squares.sqrt()
    noise = lengths <= NOISE * len(spectrum) ** 0.5 * lengths.max()
    for embeddings in (other, own):
        embeddings[:, noise] = 0
    spectrum[noise] = float(spectrum.max()) or 1.0


@contextmanager
def _computing(device: Any) -> Iterator[None]:
    """On that device, without gradients, and float32 products in float32, whatever the program around has chosen."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks are)")
        return torch.sparse_csr_tensor(indptr, indices, values, shape, check_invariants=False)


def _part(one: Tensor, start: int, stop: int) -> Tensor:
    """Entries of an array of `Terms`, where one element stands for all."""
    return one[start:stop] if len(one) > 1 else one


def _put(array: npt.NDArray[Any], device: Any) -> Tensor:
    """A copy of an array on the device."""
    return torch.tensor(array, device=device)


def _index_type(n_pairs: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if n_pairs < 2**31 else np.int64


def _device(name: str) -> Any:
    """The torch device of that name, if it is there."""
    if torch is None:
        raise SettingError(
            f'device is {name!r}, which needs PyTorch, and that is not installed: pip install "shortlist[torch]", or '
            'take device="cpu"'
        )
    device = torch.device("cpu" if name == "torch-cpu" else name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise SettingError(
                f"device is {name!r}, but PyTorch {torch.__version__} sees no GPU: install a build of PyTorch for CUDA "
                'and the driver of the GPU, or take device="cpu"'
            )
        n = torch.cuda.device_count()
        if device.index is not None and device.index >= n:
            raise SettingError(f"device is {name!r}, but there are {n} GPUs; expected 'cuda:0' to 'cuda:{n - 1}'")
    return device


def _free_bytes(device: Any) -> int | None:
    """What can still be allocated on a GPU; None for a CPU, which has other ways to say no."""
    if device.type != "cuda":
        return None
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + unused)


def needed_bytes(sides: tuple[tuple[SparseRows, Terms], ...], dim: int, fused: bool) -> int:
    """What a `DeviceSolver` allocates at most, a little generously."""
    total = 1 << 28  # kernels, eigenvectors, the products of a Gramian's blocks
    n_pairs = len(sides[0][0])
    work = 0
    for rows, terms in sides:
        arrays = terms.excess, terms.target, terms.ridge, terms.dense, terms.omega
        total += len(rows) * np.dtype(_index_type(len(rows))).itemsize + 8 * rows.n_rows + sum(a.nbytes for a in arrays)
        total += 4 * rows.n_rows * dim
        if fused:
            from shortlist.solvers.triton_kernels import working_bytes

            held, used = working_bytes(rows.lengths, dim)
            total += held
            work = max(work, used)
        else:
            work = max(work, 4 * (10 * rows.n_rows + rows.n_columns) * dim + 20 * n_pairs)
    most = max(rows.n_rows for rows, _ in sides)
    rotation = 4 * dim * min(_ROTATE_BLOCK, most)
    loss = 64 * min(_LOSS_PAIRS, n_pairs) + 8 * most * dim
    return total + max(work, rotation, loss)


def _refuse_what_does_not_fit(sides: tuple[tuple[SparseRows, Terms], ...], dim: int, device: Any, fused: bool) -> None:
    by_context = sides[0][0]
    n_pairs, free = len(by_context), _free_bytes(device)
    needed = needed_bytes(sides, dim, fused)
    if free is None or needed <= free:
        return
    low, high = 0, dim  # the largest dim that fits is in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed_bytes(sides, middle, fused) <= free else (low, middle)
    if low:
        fits = f"dim up to {low} would fit"
    else:
        share = free / needed_bytes(sides, 1, fused)
        fits = f"about {share * n_pairs:.2g} pairs would fit at dim 1"
    raise DataError(
        f"{n_pairs:,} pairs of {by_context.n_rows:,} contexts and {by_context.n_columns:,} items at dim {dim} need "
        f'{needed / 1e9:.2f} GB on {device}, which has {free / 1e9:.2f} GB free; {fits}, or take device="cpu"'
    )
