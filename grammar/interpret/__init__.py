"""What a kernel means, run on NumPy arrays: fast, exact, and in float64 with error bounds."""
