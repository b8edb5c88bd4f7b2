from texpr.language import *


def main(A: f32["N"]):
    A[0] = new(f32)
    new(f32[2])
    x = reg(f32[2], 1.0, 2.0)
    t = new(f32[2], "cache")
    u = new(f32[2], "shared", x)
    A[0] = par("N")
    asm("bar.sync", inputs=(x,))
    asm(x)
    exp(A[0])
    A[0] + 1.0
    "a string"
