"""What the tests of the face share."""

from collections.abc import Callable

import pytest

from texpr.cli import app, guarded


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command of `texpr` in this process: exit code, output, messages."""

    def run(*args: object) -> tuple[int, str, str]:
        code = guarded(lambda: app([str(a) for a in args], prog_name="texpr"))
        said = capsys.readouterr()
        return code, said.out, said.err

    return run
