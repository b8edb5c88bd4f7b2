"""Emission of CUDA C++ from planned programs."""
