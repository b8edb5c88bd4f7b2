"""A sample of random programs under forced moves; `forced_moves.py` runs any number of seeds."""

from collections import Counter

from forced_moves import force


def test_legal_moves_on_random_programs_change_no_result() -> None:
    counts: Counter[str] = Counter()
    for seed in range(14):
        assert force(seed, 8, counts) == []
    assert sum(number for kind, number in counts.items() if kind.endswith(" legal")) > 12, counts
