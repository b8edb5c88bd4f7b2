from texpr.language import *


def main(A: f32["N"]):
    for i in par("N"):
        match i:
            case 0:
                A[i] = 1.0
