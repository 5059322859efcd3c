"""Half steps of iALS in PyTorch, on GPU or CPU: conjugate gradients for all rows at once.

This is the method of `shortlist.solvers.eigen` (Algorithm 4 of the article). Inputs and results are NumPy arrays;
everything else stays on the device. The module needs only NumPy and PyTorch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shortlist.errors import DataError, SettingError
from shortlist.solvers.cg_limits import CLEAR, END, FROZEN, NEAR, NOISE, ON_THE_WAY, TO_THE_END, CGLimits, least_ridge
from shortlist.solvers.optional_torch import Tensor, torch

if TYPE_CHECKING:
    from shortlist.data.sparse_rows import SparseRows
    from shortlist.objectives.pointwise_square import Terms

_GRAMIAN_BLOCK = 2048  # rows that are multiplied in float32 before they are added in float64
_ROTATE_BLOCK = 1 << 17  # rows that are rotated or squared at once
_LOSS_PAIRS = 1 << 22  # pairs that are scored at once
_FLOOR = 1e-6  # smallest entry of the preconditioner, as a fraction of the dense part; excess < 0 may cancel it


class DeviceSolver:
    """Alternating least squares in which all rows of a half step take a few steps of conjugate gradients at once.

    Each half step rotates both sides into the eigenbasis of the other side's Gramian, G = QΛQᵀ. The system of a row is

        (dense·G + Σ excess·ψψᵀ + ridge·I) w = Σ target·ψ,

    and its dense part becomes the diagonal M = dense·Λ + ridge. Conjugate gradients start from the current row. The
    preconditioner is the diagonal of the whole system, M + Σ excess·ψ². With the observed pairs S, a pass over all
    rows P is two sparse products: q = P Ψᵀ at S, and AP = (S with values excess·q) Ψ + M∘P.

    On a GPU with Triton, one kernel computes both products and gathers every ψ once
    (`shortlist.solvers.triton_kernels`). Its sums have a fixed order, so results are reproducible on the same GPU.

    All numbers are float32, except Gramians, which are summed over blocks and diagonalised in float64, and sums over
    all pairs. TF32 is off.

    Args:
        by_context: the observed pairs, with a row for each context.
        by_item: the same pairs, with a row for each item.
        context_terms: `PointwiseSquare.terms` of the contexts.
        item_terms: `PointwiseSquare.terms` of the items.
        items: start values of the items, |I| × d; they are copied.
        contexts: start values of the contexts, to resume from an earlier state; zeros by default.
        device: a torch device, `"cuda"`, `"cuda:1"` or `"cpu"`; `"torch-cpu"` is the same as `"cpu"`.
        limits: when the rows of a half step stop.
        fused: whether to use Triton kernels; by default on a GPU if Triton is installed.
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
        self._by_context, self._by_item = (DeviceSide(rows, terms, dim, self.device, fused) for rows, terms in sides)
        self._items = _put(items.astype(np.float32), self.device)
        start = np.zeros((by_context.n_rows, dim), np.float32) if contexts is None else contexts.astype(np.float32)
        self._contexts = _put(start, self.device)

    def epoch(self) -> None:
        """Run one pass: contexts given items, then items given contexts."""
        self._half_step(self._by_context, self._items, self._contexts, self._limits)
        self._half_step(self._by_item, self._contexts, self._items, self._limits)
        self._wait()

    def finish(self) -> None:
        """Solve for the contexts to convergence, so that each equals the fold-in of its history."""
        self._half_step(self._by_context, self._items, self._contexts, TO_THE_END)
        self._wait()

    def loss(self, *, total: bool = False) -> tuple[float, float, float]:
        """Return the parts of the loss of `PointwiseSquare`: observed, unobserved, regularizer.

        Args:
            total: whether the terms use the `"total"` convention: excess is α − α₀ω_cω_i, and the unobserved sum omits
                the observed pairs.
        """
        with _computing(self.device):
            side, W, H = self._by_context, self._contexts, self._items
            observed = squares = torch.zeros((), dtype=torch.float64, device=self.device)
            for first, last, start, stop in side.parts(_LOSS_PAIRS):
                scores = side.scores(W, H, first, last, start, stop)
                weight, target = (_part(array, start, stop) for array in (side.excess, side.target))
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
            sides = (side, W), (self._by_item, H)
            regularizer = sum((each.ridge.double() * _squares(x)).sum() for each, x in sides)
            return float(observed), float(everywhere - squares), float(regularizer)

    def embeddings(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return the current contexts and items. A solver that starts from them continues like this one."""
        contexts, items = (tensor.to("cpu", copy=True).numpy() for tensor in (self._contexts, self._items))
        return contexts, items

    def items(self) -> npt.NDArray[np.float32]:
        """Return a copy of the current items."""
        items: npt.NDArray[np.float32] = self._items.to("cpu", copy=True).numpy()
        return items

    def restore(self, items: npt.NDArray[np.float32], contexts: npt.NDArray[np.float32] | None = None) -> None:
        """Set the items to these embeddings, and the contexts to these or to zero."""
        self._items.copy_(torch.tensor(items))
        if contexts is None:
            self._contexts.zero_()
        else:
            self._contexts.copy_(torch.tensor(contexts))

    def _half_step(self, side: DeviceSide, other: Tensor, embeddings: Tensor, limits: CGLimits) -> None:
        with _computing(self.device):
            spectrum, Q = _eigenbasis(_gramian(other, side.omega))
            clear = side.is_clear(spectrum)
            if not clear:  # see `solvers.eigenbasis`
                spectrum, Q = _eigenbasis(_gramian(other.double(), side.omega))
            for tensor in (other, embeddings):
                _rotate(tensor, Q.float() if clear else Q)
            if not clear:
                _drop_noise(spectrum, other, embeddings)
            embeddings[side.empty] = 0
            side.solve(other, embeddings, spectrum, limits)

    def _wait(self) -> None:
        """Wait until the device has finished, so that the time of an epoch includes its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class DeviceSide:
    """One side's observed pairs and terms on the device."""

    def __init__(self, rows: SparseRows, terms: Terms, dim: int, device: Any, fused: bool) -> None:
        kind = _index_type(len(rows))
        self.indptr, self.indices = (
            _put(array.astype(kind, copy=False), device) for array in (rows.indptr, rows.indices)
        )
        arrays = terms.excess, terms.target, terms.ridge, terms.dense, terms.omega
        self.excess, self.target, self.ridge, self.dense, self.omega = (_put(array, device) for array in arrays)
        self.empty = _put(np.flatnonzero(rows.lengths == 0), device)
        self._least_ridge = least_ridge(terms.ridge)
        self._largest_dense = float(terms.dense.max(initial=0.0))
        self._fused = None
        if fused:
            from shortlist.solvers.triton_kernels import FusedRows

            self._fused = FusedRows(rows.indptr, rows.indices, dim, device)

    def is_clear(self, spectrum: Tensor) -> bool:
        """Return whether the eigenvalues of a float32 Gramian are precise enough for these rows."""
        largest, smallest = float(spectrum[0]), float(spectrum[-1])
        return smallest > CLEAR * largest or self._least_ridge > CLEAR * largest * self._largest_dense

    def solve(self, other: Tensor, embeddings: Tensor, spectrum: Tensor, limits: CGLimits) -> None:
        """Improve every row by CG, in place; `other` must be in the eigenbasis of its Gramian (see `spectrum`)."""
        spectrum = spectrum.float()
        if self._fused is not None:
            self._fused.solve(self, other, embeddings, spectrum, limits)
            return
        n = len(embeddings)
        excess, target = (array.expand(len(self.indices)) for array in (self.excess, self.target))

        def residual(w: Tensor) -> tuple[Tensor, Tensor]:
            values = target - excess * self.scores(w, other, 0, n, 0, len(excess))
            return self._sums(values, other), self._sums(excess.contiguous(), other * other)

        def product(p: Tensor) -> Tensor:
            return self._sums(excess * self.scores(p, other, 0, n, 0, len(excess)), other)

        M = self.dense[:, None] * spectrum + self.ridge[:, None]
        _conjugate_gradients(embeddings, M.expand(n, -1), residual, product, limits)

    def parts(self, pairs: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield runs of rows with about `pairs` pairs: the bounds of their rows and of their pairs."""
        marks = torch.tensor(range(pairs, len(self.indices), pairs), device=self.indptr.device)
        cuts = [0, *torch.searchsorted(self.indptr.long(), marks).unique().tolist(), len(self.indptr) - 1]
        bounds = self.indptr[torch.tensor(cuts, device=self.indptr.device)].tolist()
        for k in range(len(cuts) - 1):
            if bounds[k] < bounds[k + 1]:
                yield cuts[k], cuts[k + 1], bounds[k], bounds[k + 1]

    def scores(self, embeddings: Tensor, other: Tensor, first: int, last: int, start: int, stop: int) -> Tensor:
        """Return the scores ŷ of the observed pairs `start` to `stop`, which belong to the rows `first` to `last`."""
        if start == stop:
            return embeddings.new_zeros(0)
        indptr = self.indptr[first : last + 1] - self.indptr[first]
        pattern = _csr(indptr, self.indices[start:stop], embeddings.new_zeros(stop - start), (last - first, len(other)))
        return torch.sparse.sampled_addmm(pattern, embeddings[first:last], other.T, beta=0).values()

    def _sums(self, values: Tensor, other: Tensor) -> Tensor:
        """Return the sum of value·ψ over the pairs of each row."""
        if len(values) == 0:
            return other.new_zeros(len(self.indptr) - 1, other.shape[1])
        return _csr(self.indptr, self.indices, values, (len(self.indptr) - 1, len(other))) @ other


def _conjugate_gradients(
    embeddings: Tensor,
    M: Tensor,
    residual: Callable[[Tensor], tuple[Tensor, Tensor]],
    product: Callable[[Tensor], Tensor],
    limits: CGLimits,
) -> None:
    """Take steps of preconditioned CG for every row, in place; a row that has converged does not move.

    Args:
        embeddings: start values.
        M: the diagonal of each row's dense part.
        residual: maps w to Σ(target − excess·ŷ)ψ and the diagonal Σ excess·ψ².
        product: maps p to Σ excess·(ψᵀp)ψ.
        limits: when to stop.
    """
    w = embeddings.clone()
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
    change = w - embeddings
    near = (change * change).sum(1, keepdim=True) <= NEAR**2 * (w * w).sum(1, keepdim=True)
    change = torch.where(w.isfinite().all(1, keepdim=True), change, 0.0)
    embeddings += torch.where(near, limits.relaxation, 1.0) * change


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """Return the quotient, or zero if it is not finite or `below` is not positive."""
    quotient = above / below
    return torch.where((below > 0) & quotient.isfinite(), quotient, 0.0)


def _gramian(embeddings: Tensor, omega: Tensor) -> Tensor:
    """Return Σωψψᵀ over all rows; blocks are multiplied in the precision of the input and added in float64."""
    if len(omega) > 1:
        embeddings = embeddings * omega.sqrt()[:, None]
    n, d = embeddings.shape
    even = n - n % _GRAMIAN_BLOCK
    blocks = embeddings[:even].view(-1, _GRAMIAN_BLOCK, d)
    total = (embeddings[even:].T @ embeddings[even:]).double()
    for batch in blocks.split(max(1, (1 << 26) // d**2)):  # the products of a batch take at most 256 MB
        total += torch.bmm(batch.transpose(1, 2), batch).sum(0, dtype=torch.float64)
    return total if len(omega) > 1 else total * omega.double()


def _squares(embeddings: Tensor) -> Tensor:
    """Return ‖x‖² of each row, a block at a time."""
    return torch.cat([(block * block).sum(1) for block in embeddings.split(_ROTATE_BLOCK)]).double()


def _eigenbasis(G: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, largest first and none below zero, and eigenvectors whose largest entry is positive."""
    values, Q = torch.linalg.eigh(G)
    values, Q = values.flip(0).clamp(min=0), Q.flip(1)
    largest = Q.gather(0, Q.abs().argmax(0, keepdim=True))
    return values, torch.where(largest < 0, -Q, Q)


def _rotate(embeddings: Tensor, Q: Tensor) -> None:
    """Multiply every row by Q, in place and in Q's precision, a block at a time."""
    for block in embeddings.split(_ROTATE_BLOCK):
        block.copy_(block.to(Q.dtype) @ Q)


def _drop_noise(spectrum: Tensor, other: Tensor, embeddings: Tensor) -> None:
    """Apply `solvers.eigenbasis.drop_noise` on the device."""
    squares = sum((block * block).sum(0, dtype=torch.float64) for block in other.split(_ROTATE_BLOCK))
    lengths = squares.sqrt()
    noise = lengths <= NOISE * len(spectrum) ** 0.5 * lengths.max()
    for tensor in (other, embeddings):
        tensor[:, noise] = 0
    spectrum[noise] = float(spectrum.max()) or 1.0


@contextmanager
def _computing(device: Any) -> Iterator[None]:
    """Compute on the device without gradients, with float32 products in float32 whatever the caller has chosen."""
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


def _part(array: Tensor, start: int, stop: int) -> Tensor:
    """Return entries of an array of `Terms`, in which a single element applies to all."""
    return array[start:stop] if len(array) > 1 else array


def _put(array: npt.NDArray[Any], device: Any) -> Tensor:
    """Copy an array to the device."""
    return torch.tensor(array, device=device)


def _index_type(n_pairs: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if n_pairs < 2**31 else np.int64


def _device(name: str) -> Any:
    """Return the torch device of this name; raise if it is not available."""
    if torch is None:
        raise SettingError(
            f"device is {name!r}, but PyTorch is not installed",
            field="device",
            hint='run pip install "shortlist[torch]", or use device="cpu"',
            code="package-missing",
        )
    device = torch.device("cpu" if name == "torch-cpu" else name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise SettingError(
                f"device is {name!r}, but PyTorch {torch.__version__} sees no GPU",
                field="device",
                hint='install the GPU driver and a CUDA build of PyTorch, or use device="cpu"',
            )
        n = torch.cuda.device_count()
        if device.index is not None and device.index >= n:
            raise SettingError(
                f"device is {name!r}, but there are {n} GPUs; expected 'cuda:0' to 'cuda:{n - 1}'", field="device"
            )
    return device


def _free_bytes(device: Any) -> int | None:
    """Return the bytes that can still be allocated on a GPU; None for a CPU, which is not checked."""
    if device.type != "cuda":
        return None
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + unused)


def needed_bytes(sides: tuple[tuple[SparseRows, Terms], ...], dim: int, fused: bool) -> int:
    """Return an upper bound of the bytes that a `DeviceSolver` allocates."""
    total = 1 << 28  # kernels, eigenvectors, the products of a Gramian's blocks
    n_pairs = len(sides[0][0])
    work = 0
    for rows, terms in sides:
        arrays = terms.excess, terms.target, terms.ridge, terms.dense, terms.omega
        total += len(rows) * np.dtype(_index_type(len(rows))).itemsize + 8 * rows.n_rows + sum(a.nbytes for a in arrays)
        total += 4 * rows.n_rows * dim
        if fused:
            from shortlist.solvers.triton_kernels import working_bytes

            permanent, temporary = working_bytes(rows.lengths, dim)
            total += permanent
            work = max(work, temporary)
        else:
            work = max(work, 4 * (10 * rows.n_rows + rows.n_columns) * dim + 20 * n_pairs)
    n_rows = max(rows.n_rows for rows, _ in sides)
    rotation = 4 * dim * min(_ROTATE_BLOCK, n_rows)
    loss = 64 * min(_LOSS_PAIRS, n_pairs) + 8 * n_rows * dim
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
        fraction = free / needed_bytes(sides, 1, fused)
        fits = f"about {fraction * n_pairs:.2g} pairs would fit at dim 1"
    raise DataError(
        f"{n_pairs:,} pairs of {by_context.n_rows:,} contexts and {by_context.n_columns:,} items at dim {dim} need "
        f"{needed / 1e9:.2f} GB on {device}, which has {free / 1e9:.2f} GB free",
        code="too-large",
        field="device",
        hint=f'{fits}, or use device="cpu"',
    )
