"""What a case's outputs hold before its kernel runs, and what is wrong with them afterwards. NumPy only: it runs where
the GPU is.
"""

import numpy as np


def outputs(case):
    """The output arrays as the kernel finds them."""
    if case.before:
        return [a.copy() for a in case.before]
    found = []
    for want in case.want:
        array = np.empty_like(want)
        array.view(np.uint8)[...] = 0x5A
        found.append(array)
    return found


def wrong(case, got):
    """What differs from `want`, in words; empty where nothing does."""
    limits = case.within or (0.0,) * len(case.want)
    for number, (g, w, limit) in enumerate(zip(got, case.want, limits, strict=True)):
        if w.dtype.kind != "f" and w.dtype.name != "bfloat16":
            bad = g.view(f"u{g.itemsize}") != w.view(f"u{w.itemsize}")
        else:
            with np.errstate(all="ignore"):
                wide = g.astype(np.float64), w.astype(np.float64)
                near = np.abs(wide[0] - wide[1]) <= limit
                same_nan = np.isnan(wide[0]) & np.isnan(wide[1])
                bad = ~((wide[0] == wide[1]) | same_nan | (near & np.isfinite(wide[1])))
        if bad.any():
            at = tuple(int(x) for x in np.argwhere(bad)[0])
            count = int(bad.sum())
            return f"{case.name}: output {number} differs at {count} elements, first {at}: {g[at]!r} not {w[at]!r}"
    return ""
