"""Emission of Numba text from planned programs, and its compilation to a callable."""
