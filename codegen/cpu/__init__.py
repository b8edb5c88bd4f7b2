"""Emission of Numba text from kernel graphs, and its compilation to a callable."""
