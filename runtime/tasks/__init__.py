"""Tasks on blocks of tiled tensors: dependences from permissions, buffers from accesses. Needs NumPy, no compiler."""
