"""Emission of CUDA C++ from kernel graphs."""
