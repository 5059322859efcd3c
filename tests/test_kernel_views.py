from __future__ import annotations

import numpy as np

from shortlist._kernel_views import for_kernels, on_cache_line


def test_a_read_only_array_gets_a_writable_view() -> None:
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    read_only = array.view()
    array.flags.writeable = True
    view = for_kernels(read_only)
    assert view.flags.carray
    assert np.shares_memory(view, array)
    assert not read_only.flags.writeable


def test_columns_are_copied() -> None:
    array = np.arange(6.0).reshape(2, 3)[:, :2]
    assert for_kernels(array).flags.carray
    np.testing.assert_array_equal(for_kernels(array), array)


def test_cache_lines() -> None:
    bytes_ = np.zeros(256, np.uint8)
    start = -bytes_.ctypes.data % 64
    assert on_cache_line(bytes_[start:])
    assert not on_cache_line(bytes_[start + 4 :])


def test_a_view_for_kernels_of_memory_that_nobody_may_write_to_is_a_copy() -> None:
    array = np.frombuffer(bytes(8), np.float32)
    assert for_kernels(array).flags.carray
    assert not np.shares_memory(for_kernels(array), array)
    writable = np.zeros(3)
    assert for_kernels(writable) is writable
