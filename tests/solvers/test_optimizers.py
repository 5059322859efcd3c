"""Steps of a row against the optimizers of torch, and what they leave alone."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist._numba import static
from shortlist._state import load_state
from shortlist.errors import StorageError
from shortlist.solvers.optimizers import (
    ADAGRAD,
    ADAM,
    CODES,
    SGD,
    OptimizerState,
    apply_part,
    apply_row,
    state_arrays,
)

WIDTH, STEPS = 5, 7
RATE, RIDGE = 0.05, 0.3


def start(n: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, WIDTH)).astype(np.float32)


def gradients(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(STEPS, WIDTH)).astype(np.float32)


def full(value: float) -> np.ndarray:
    return np.full(WIDTH, value, np.float32)


def by_torch(name: str, row: np.ndarray, given: np.ndarray, scale: float) -> np.ndarray:
    """Weight decay there is what a ridge is here: its gradient is added before anything else happens."""
    torch = pytest.importorskip("torch")
    theta = torch.tensor(row.astype(np.float64), requires_grad=True)
    kinds = {
        "sgd": lambda: torch.optim.SGD([theta], lr=RATE, weight_decay=scale * RIDGE),
        "adagrad": lambda: torch.optim.Adagrad([theta], lr=RATE, weight_decay=scale * RIDGE, eps=1e-8),
        "adam": lambda: torch.optim.Adam([theta], lr=RATE, weight_decay=scale * RIDGE, eps=1e-8),
    }
    optimizer = kinds[name]()
    for gradient in given:
        theta.grad = torch.tensor(gradient.astype(np.float64))
        optimizer.step()
    return theta.detach().numpy()


@pytest.mark.parametrize("scale", [1.0, 0.0, 2.5])
@pytest.mark.parametrize("name", CODES)
def test_a_row_moves_as_in_torch(name, scale):
    kind, theta = CODES[name], start()
    state = OptimizerState.of(kind, theta.shape)
    for gradient in gradients():
        apply_row(kind, theta, 1, gradient, state, full(RATE), full(RIDGE), scale)
    np.testing.assert_allclose(theta[1], by_torch(name, start()[1], gradients(), scale), rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(theta[[0, 2]], start()[[0, 2]])
    for array in state[:2]:
        assert len(array) == 1 or not array[[0, 2]].any()


@pytest.mark.parametrize("name", CODES)
def test_rows_are_counted_by_themselves(name):
    """A row that comes in later moves as if it were alone: Adam corrects its means by the row's own count."""
    kind, theta = CODES[name], start()
    state = OptimizerState.of(kind, theta.shape)
    given = {0: gradients(2), 2: gradients(3)[:2]}
    for step in range(STEPS):
        apply_row(kind, theta, 0, given[0][step], state, full(RATE), full(RIDGE), 1.0)
        if step in (3, 5):
            apply_row(kind, theta, 2, given[2][step // 4], state, full(RATE), full(RIDGE), 1.0)
    for row in (0, 2):
        np.testing.assert_allclose(theta[row], by_torch(name, start()[row], given[row], 1.0), rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(theta[1], start()[1])
    if kind == ADAM:
        assert state.counts.tolist() == [STEPS, 0, 2]


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("fixed", [3, 4])
def test_the_last_two_coordinates_may_have_their_own_rates(name, fixed):
    """Those of biases, of which one is fixed; the other has a regularization of its own."""
    kind, theta, rate, ridge = CODES[name], start(), full(RATE), full(RIDGE)
    bias = 7 - fixed
    rate[fixed] = ridge[fixed] = ridge[bias] = 0
    state = OptimizerState.of(kind, theta.shape)
    for gradient in gradients():
        apply_row(kind, theta, 0, gradient, state, rate, ridge, 1.0)
    assert theta[0, fixed] == start()[0, fixed]
    shrunk, plain = (by_torch(name, start()[0], gradients(), scale) for scale in (1.0, 0.0))
    np.testing.assert_allclose(theta[0, :3], shrunk[:3], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(theta[0, bias], plain[bias], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", CODES)
def test_no_gradient_is_no_movement(name):
    kind, theta = CODES[name], start()
    state = OptimizerState.of(kind, theta.shape)
    for _ in range(3):
        apply_row(kind, theta, 0, full(0), state, full(RATE), full(0), 1.0)
    np.testing.assert_array_equal(theta, start())


@pytest.mark.parametrize("name", CODES)
def test_a_whole_step_in_one_part(name):
    kind, theta, whole = CODES[name], start(), start()
    states = [OptimizerState.of(kind, theta.shape) for _ in range(2)]
    for gradient in gradients():
        apply_part(static(kind), theta, 1, gradient, states[0], full(RATE), full(RIDGE), 2.0, 1.0)
        apply_row(kind, whole, 1, gradient, states[1], full(RATE), full(RIDGE), 2.0)
    np.testing.assert_allclose(theta, whole, rtol=1e-4)
    for one, other in zip(*states):
        np.testing.assert_allclose(one, other, rtol=1e-4)


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("share", [1e-7, 1e-20, 1e-44])
def test_next_to_nothing_of_a_step_is_none(name, share):
    """Wherever among others it comes, first too, where what an optimizer remembers would else be of it alone."""
    kind, theta, without = CODES[name], start(), start()
    states = [OptimizerState.of(kind, theta.shape) for _ in range(2)]
    for k, gradient in enumerate(gradients()):
        for other in gradients(5 + k):
            apply_part(static(kind), theta, 1, other, states[0], full(RATE), full(RIDGE), 1.0, np.float32(share))
        apply_row(kind, theta, 1, gradient, states[0], full(RATE), full(RIDGE), 1.0)
        apply_row(kind, without, 1, gradient, states[1], full(RATE), full(RIDGE), 1.0)
    np.testing.assert_allclose(theta, without, atol=2e-4)
    assert np.isfinite(theta).all()


@pytest.mark.parametrize("name", CODES)
def test_many_parts_of_a_step_move_in_the_same_way(name):
    """A hundred hundredths under one gradient go about as far as a whole step does."""
    kind, theta, whole, gradient = CODES[name], start(), start(), gradients()[0]
    states = [OptimizerState.of(kind, theta.shape) for _ in range(2)]
    for _ in range(100):
        apply_part(static(kind), theta, 1, gradient, states[0], full(RATE), full(0), 1.0, 0.01)
    apply_row(kind, whole, 1, gradient, states[1], full(RATE), full(0), 1.0)
    for one, other in zip(*states):
        np.testing.assert_allclose(one, other, rtol=1e-4)
    far = 1.0 if name != "adagrad" else 1.85  # Σ 1/√k of a hundred
    np.testing.assert_allclose(theta - start(), far * (whole - start()), rtol=0.02, atol=1e-6)


def test_nothing_is_kept_that_is_not_needed():
    sizes = {kind: [len(array) for array in OptimizerState.of(kind, (9, 4))] for kind in (SGD, ADAGRAD, ADAM)}
    assert sizes == {SGD: [1, 1, 1], ADAGRAD: [9, 1, 1], ADAM: [9, 9, 9]}


@pytest.mark.parametrize("name", CODES)
def test_saved_state_is_loaded(name):
    kind = CODES[name]
    states = OptimizerState.of(kind, (3, WIDTH)), OptimizerState.of(kind, (2, WIDTH))
    for side in states:
        theta = start(len(side.first))
        apply_row(kind, theta, 0, gradients()[0], side, full(RATE), full(RIDGE), 1.0)
    saved = {key: array.copy() for key, array in state_arrays(states).items()}
    fresh = OptimizerState.of(kind, (3, WIDTH)), OptimizerState.of(kind, (2, WIDTH))
    load_state(state_arrays(fresh), saved)
    for one, other in zip(states, fresh):
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a, b)


def test_what_does_not_fit_is_refused():
    own = state_arrays((OptimizerState.of(ADAM, (3, WIDTH)), OptimizerState.of(ADAM, (2, WIDTH))))
    with pytest.raises(StorageError, match=r"there is no array context_first; expected float32 \(3, 5\)"):
        load_state(own, {})
    other = state_arrays((OptimizerState.of(ADAM, (4, WIDTH)), OptimizerState.of(ADAM, (2, WIDTH))))
    with pytest.raises(StorageError, match=r"the array context_first is float32 \(4, 5\); expected float32 \(3, 5\)"):
        load_state(own, other)
    with pytest.raises(StorageError, match=r"the array item_counts is int32"):
        load_state(own, {**own, "item_counts": np.zeros(2, np.int32)})
