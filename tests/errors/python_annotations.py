from __future__ import annotations

from texpr.language import *


def main(A: float, B: f32[()], C: f32["N"]["M"], D: [1], E: "f32['N'] # comment", F: inp(out(f32)), G: "f32["):
    for i in par("N"):
        A[i] = 1.0


