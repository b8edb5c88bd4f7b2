from texpr.language import *


def main(A: f32["N"], B, *rest, scale: f32 = 1.0, **options):
    for i in par("N"):
        A[i] = scale
