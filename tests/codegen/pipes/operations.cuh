// The operations of the texts beside this, each of which can be broken to see that this is found. `broken` is 0 in the
// right text; 3 * op + 1 leaves an operation out, + 2 runs it twice, + 3 moves it to where MOVED(op) stands.
#pragma once
#include "texpr/kernel.cuh"

enum Operation {
  INIT,
  FENCE,
  FIRST,
  ACQUIRE,
  COMMIT,
  BYTES,
  WAIT,
  RELEASE,
  FREE,
  SHOW,
  READ,
  CLOSE,
  AFTER,
  ARRIVE,
  LEAVE,
  DRAIN,
  STORE,
  TURN,
  AWAIT,
  PUBLISH,
  RESET,
  LAST,
  GRID,
  STEP,
  SETTLED,
  END
};

TX_FN int times(int broken, int op) {
  return broken == 3 * op + 1 || broken == 3 * op + 3 ? 0 : broken == 3 * op + 2 ? 2 : 1;
}
TX_FN bool moved(int broken, int op) { return broken == 3 * op + 3; }
#define OP(op) for (int left = times(broken, op); left > 0; --left)
#define MOVED(op) if (moved(broken, op))
