"""What the tests of the face share."""

from collections.abc import Callable

import pytest

from texpr.cli import guarded, run_command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command of `texpr` in this process: exit code, output, messages."""

    def run(*args: object) -> tuple[int, str, str]:
        code = guarded(lambda: run_command([str(a) for a in args]))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run
