"""A sample of `strides.py`: random reads in short loops, in runs of threads."""

from strides import outcome


def test_runs_of_random_reads_compute_what_the_interpreter_computes() -> None:
    found = [outcome(seed) for seed in range(50)]
    assert not [said for said in found if said.startswith("wrong")]
    assert found.count("right") >= 5  # some are in no runs
