"""A mapped program run in NumPy, thread by thread: the oracle between mapping and emission."""
