"""The process `texpr`: what holds before, around and after a command.

Signals. SIGINT, SIGTERM and SIGHUP end the process from their handler, with 130, 143 and 129: an exception could be
caught, or shown, by whatever is being imported. What must not stay behind is in `grammar/endings.py`; compilers end
with this process. A signal that was ignored at the start (`nohup`) stays ignored. SIGPIPE ends the process as it ends
every Unix program (141 in a shell): `texpr map FILE | head -1` is quiet.

Streams. What cannot be printed, because the disk is full or the output is closed, is an error of the environment (3).

Nothing but these modules, which Python has loaded by now, is imported before the handlers are set.
"""

try:
    import io
    import os
    import signal
    import sys
except KeyboardInterrupt:  # Python's own handler, before ours are set
    raise SystemExit(130) from None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

ENVIRONMENT = 3


def main() -> None:
    """The entry point `texpr`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _open_streams()
    sys.exit(_run())


def _end(number: int, frame: "FrameType | None") -> None:
    """End the process now: nothing is printed, nothing of ours stays behind."""
    endings = sys.modules.get("texpr.grammar.endings")
    if endings is not None and hasattr(endings, "end_all"):  # else it is being imported, and there is nothing yet
        endings.end_all()
    os._exit(128 + number)


def _open_streams() -> None:
    """Take the places of closed streams, so that no file gets them; what is printed to a closed output is an error."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # such as half a character of a file's name


def _run() -> int:
    """The exit code of the command, once all that it prints is written."""
    try:
        from texpr.cli import guarded, run_command

        code = guarded(lambda: run_command(sys.argv[1:]))
    except OSError:  # the error output is full
        code = ENVIRONMENT
    try:
        sys.stdout.flush()
    except OSError as why:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where Python's own attempt, at its end, may go
        if code != ENVIRONMENT:  # not said yet
            code = _unprinted(why)
    return code


def _unprinted(why: OSError) -> int:
    try:
        print(f"error: the output cannot be written: {why.strerror or why}", file=sys.stderr)
    except OSError:
        os.dup2(1, 2)
    return ENVIRONMENT
