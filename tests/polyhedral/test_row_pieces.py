"""Aligned rows of words beside vectors: in registers, whose loads last in the L2, or in slots."""

import pytest
from stages import mapped
from test_row_clusters import beside_vectors, one


@pytest.mark.parametrize(
    ("columns", "loops", "blocks"),
    [
        (4096, 3, (1, 352, 4)),
        (6144, 2, (1, 512, 3)),
        (8192, 2, (1, 704, 2)),
        (12288, 2, (4, 192, 8)),
        (16384, 2, (4, 256, 6)),
        (30000, 2, (4, 480, 3)),  # whose threads would not be filled with eight runs
    ],
)
def test_aligned_words_beside_vectors_lie_in_registers_in_pieces(columns, loops, blocks) -> None:
    found = one(mapped(beside_vectors(columns, "f32", loops)).candidate)[1]
    assert not found.rows[0].slots and (found.cluster, found.threads, found.resident) == blocks


def test_rows_of_two_arrays_lie_in_slots() -> None:
    text = (
        beside_vectors(8192, "f32", 2)
        .replace("f32(X[i, k])", "(X[i, k] + R[i, k])")
        .replace("(f32(X[i, j])", "((X[i, j] + R[i, j])")
    )
    found = one(mapped(text.replace("G: f32", "R: f32[1000, 8192], G: f32")).candidate)[1]
    assert found.rows[0].slots


def test_rows_of_f64_lie_in_slots() -> None:
    found = one(mapped(beside_vectors(4096, "f64", 2)).candidate)[1]
    assert found.rows[0].slots
