from texpr.language import *


def main(A: f32["N"]):
    if A[0] > 0:
        A[0] = 0.0
    elif A[0] > 1:
        A[0] = 1.0
    elif A[0] > 2:
        A[0] = 2.0
    elif A[0] > 3:
        A[0] = 3.0
    elif A[0] > 4:
        A[0] = 4.0
    elif A[0] > 5:
        A[0] = 5.0
    elif A[0] > 6:
        A[0] = 6.0
    elif A[0] > 7:
        A[0] = 7.0
    elif A[0] > 8:
        A[0] = 8.0
    elif A[0] > 9:
        A[0] = 9.0
    elif A[0] > 10:
        A[0] = 10.0
    elif A[0] > 11:
        A[0] = 11.0
    elif A[0] > 12:
        A[0] = 12.0
    elif A[0] > 13:
        A[0] = 13.0
    elif A[0] > 14:
        A[0] = 14.0
    elif A[0] > 15:
        A[0] = 15.0
    elif A[0] > 16:
        A[0] = 16.0
    elif A[0] > 17:
        A[0] = 17.0
    elif A[0] > 18:
        A[0] = 18.0
    elif A[0] > 19:
        A[0] = 19.0
    elif A[0] > 20:
        A[0] = 20.0
    elif A[0] > 21:
        A[0] = 21.0
    elif A[0] > 22:
        A[0] = 22.0
    elif A[0] > 23:
        A[0] = 23.0
    elif A[0] > 24:
        A[0] = 24.0
    elif A[0] > 25:
        A[0] = 25.0
    elif A[0] > 26:
        A[0] = 26.0
    elif A[0] > 27:
        A[0] = 27.0
    elif A[0] > 28:
        A[0] = 28.0
    elif A[0] > 29:
        A[0] = 29.0
    elif A[0] > 30:
        A[0] = 30.0
    elif A[0] > 31:
        A[0] = 31.0
    elif A[0] > 32:
        A[0] = 32.0
    elif A[0] > 33:
        A[0] = 33.0
    elif A[0] > 34:
        A[0] = 34.0
    elif A[0] > 35:
        A[0] = 35.0
    elif A[0] > 36:
        A[0] = 36.0
    elif A[0] > 37:
        A[0] = 37.0
    elif A[0] > 38:
        A[0] = 38.0
    elif A[0] > 39:
        A[0] = 39.0
    elif A[0] > 40:
        A[0] = 40.0
    elif A[0] > 41:
        A[0] = 41.0
    elif A[0] > 42:
        A[0] = 42.0
    elif A[0] > 43:
        A[0] = 43.0
    elif A[0] > 44:
        A[0] = 44.0
    elif A[0] > 45:
        A[0] = 45.0
    elif A[0] > 46:
        A[0] = 46.0
    elif A[0] > 47:
        A[0] = 47.0
    elif A[0] > 48:
        A[0] = 48.0
    elif A[0] > 49:
        A[0] = 49.0
    elif A[0] > 50:
        A[0] = 50.0
    elif A[0] > 51:
        A[0] = 51.0
    elif A[0] > 52:
        A[0] = 52.0
    elif A[0] > 53:
        A[0] = 53.0
    elif A[0] > 54:
        A[0] = 54.0
    elif A[0] > 55:
        A[0] = 55.0
    elif A[0] > 56:
        A[0] = 56.0
    elif A[0] > 57:
        A[0] = 57.0
    elif A[0] > 58:
        A[0] = 58.0
    elif A[0] > 59:
        A[0] = 59.0
    elif A[0] > 60:
        A[0] = 60.0
    elif A[0] > 61:
        A[0] = 61.0
    elif A[0] > 62:
        A[0] = 62.0
    elif A[0] > 63:
        A[0] = 63.0
    elif A[0] > 64:
        A[0] = 64.0
    elif A[0] > 65:
        A[0] = 65.0
    elif A[0] > 66:
        A[0] = 66.0
    elif A[0] > 67:
        A[0] = 67.0
    elif A[0] > 68:
        A[0] = 68.0
    elif A[0] > 69:
        A[0] = 69.0
