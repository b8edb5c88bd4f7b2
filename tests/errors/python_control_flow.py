from texpr.language import *


def main(A: f32["N"]):
    global G
    import math
    for i in seq("N"):
        if A[i] > 0:
            break
        continue
    return 1
