"""From a proved program to launches of threads: every choice of the mapping."""
