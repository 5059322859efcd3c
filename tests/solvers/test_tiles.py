"""Each function on a tile against the line of NumPy in its docstring."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import TypingError

import shortlist
from shortlist._numba import kernel
from shortlist.solvers import tiles

W = tiles.WIDTH


@kernel
def add_product(C, i, j, A, B, count):
    tiles.add_product(C, i, j, A, B, count)


@kernel
def factor(U, i, inverse):
    tiles.factor(U, i, inverse)


@kernel
def eliminate(U, i, j, inverse):
    tiles.eliminate(U, i, j, inverse)


@kernel
def substitute(U, i, inverse, x):
    tiles.substitute(U, i, inverse, x)


@kernel
def substitute_back(U, i, size, inverse, x):
    tiles.substitute_back(U, i, size, inverse, x)


@kernel
def transpose(C, i, j, A):
    tiles.transpose(C, i, j, A)


def matrix(n_rows, n_columns, seed=0):
    return np.random.default_rng(seed).standard_normal((n_rows, n_columns)).astype(np.float32)


def positive(size):
    X = matrix(size, 2 * size)
    return X @ X.T


def changed(before, i, j, tile):
    after = before.copy()
    after[i : i + W, j : j + W] = tile
    return after


@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_add_product(count):
    C, A, B = matrix(3 * W, 3 * W), matrix(40, 3 * W, 1), matrix(40, 3 * W, 2)
    tile = C[W : 2 * W, :W] + A[:count, W : 2 * W].T @ B[:count, :W]
    expected = changed(C, W, 0, tile)
    add_product(C, W, 0, A, B, count)
    np.testing.assert_allclose(C, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("i", [0, W, 2 * W])
def test_factor_eliminate_and_substitute(i):
    """The rows of a Cholesky factor from those above them, and both triangular systems solved by them."""
    size = 3 * W
    A = positive(size)
    factor_ = np.ascontiguousarray(np.linalg.cholesky(A.astype(np.float64)).T)
    U, inverse = A.copy(), np.zeros(size, np.float32)
    U[:i] = factor_[:i]
    factor(U, i, inverse)
    np.testing.assert_allclose(np.triu(U[i : i + W, i : i + W]), factor_[i : i + W, i : i + W], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(inverse[i : i + W], 1 / np.diagonal(factor_)[i : i + W], rtol=1e-4)
    for j in range(i + W, size, W):
        eliminate(U, i, j, inverse)
        np.testing.assert_allclose(U[i : i + W, j : j + W], factor_[i : i + W, j : j + W], rtol=1e-4, atol=1e-3)
    b = matrix(1, size)[0]
    y, x = np.linalg.solve(factor_.T, b), np.linalg.solve(factor_, b)
    for function, more, done, solution in (
        (substitute, (), slice(0, i), y),
        (substitute_back, (size,), slice(i + W, size), x),
    ):
        got = b.copy()
        got[done] = solution[done]
        function(factor_.astype(np.float32), i, *more, (1 / np.diagonal(factor_)).astype(np.float32), got)
        np.testing.assert_allclose(got[i : i + W], solution[i : i + W], rtol=1e-3, atol=1e-4)


def test_a_pivot_that_is_not_positive_gives_nan():
    U = np.eye(W, dtype=np.float32)
    U[3, 3] = -1
    factor(U, 0, np.zeros(W, np.float32))
    assert np.isnan(U[3, 3])


def test_columns_side_by_side_are_refused():
    C, A = matrix(W, W), np.asfortranarray(matrix(W, W))
    with pytest.raises(TypingError, match="row-major"):
        add_product(C, 0, 0, A, A, W)


def test_transpose():
    C, A = matrix(2 * W, 3 * W), matrix(3 * W, 2 * W, 1)
    expected = changed(C, W, 2 * W, A[2 * W :, W:].T)
    transpose(C, W, 2 * W, A)
    np.testing.assert_array_equal(C, expected)


@pytest.mark.slow
def test_on_a_processor_with_shorter_vectors(tmp_path):
    """Everything above, and half-steps, in a process that believes AVX-512 is not there."""
    program = """
import sys
from llvmlite import binding
features = binding.get_host_cpu_features()
for name in features:
    features[name] = features[name] and not name.startswith("avx512")
binding.get_host_cpu_features = lambda: features
from shortlist.solvers import tiles
assert tiles.WIDTH == 8
import pytest
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""
    here = Path(__file__).parent
    chosen = "not processor and (test_tiles or shorter_and_longer or threads)"
    files = [str(here / "test_tiles.py"), str(here / "test_exact.py")]
    result = subprocess.run(
        [sys.executable, "-c", program, "-k", chosen, *files],
        env=os.environ | {"PYTHONPATH": str(Path(shortlist.__file__).parents[1]), "NUMBA_CACHE_DIR": str(tmp_path)},
        cwd=here.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
