"""The commands of `texpr` as data, and how the arguments of a process are read.

    COMMANDS = (Command(name="fmt", run=fmt, options=(option("files", nargs="+"), ONLY_CHECK)), ...)
    called(COMMANDS, ABOUT, ["fmt", "a.tex"])          runs fmt(files=["a.tex"], only_check=False)

Only the command that is called makes a parser, and nothing beside the standard library is loaded for it. `--help`, a
missing command and wrong use end the process, as argparse does it: by SystemExit, with 2 for wrong use.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from texpr.grammar.diagnostics import did_you_mean
from texpr.grammar.records import dataclass

PROGRAM = "texpr"
USAGE = 2  # the exit code of wrong use


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An argument or option: its names, and what argparse shall do with it."""

    names: tuple[str, ...]
    how: Mapping[str, Any]

    @property
    def positional(self) -> bool:
        return not self.names[0].startswith("-")


def option(*names: str, **how: Any) -> Option:
    """An option, or an argument where its name begins with no dash."""
    return Option(names=names, how=how)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command by its name, of one word or two; `run` takes each option by keyword, has the help as its docstring and
    returns the exit code, None for 0. `spelled`: arguments that stand for others."""

    name: str
    run: Callable[..., int | None]
    options: tuple[Option, ...] = ()
    spelled: Mapping[str, str] = field(default_factory=dict)

    @property
    def help(self) -> str:
        return (self.run.__doc__ or "").strip()


def say(text: str) -> None:
    """Print a result, at once: what cannot be printed is an error where it is said."""
    print(text, flush=True)


def complain(text: str) -> None:
    """Print what is not a result."""
    print(text, file=sys.stderr, flush=True)


def called(commands: Sequence[Command], about: str, version: str, arguments: Sequence[str]) -> int | None:
    """The exit code of the command that the arguments name."""
    words = list(arguments)
    if words[:1] == ["--version"]:
        say(version)
        return None
    for command in commands:
        name = command.name.split()
        if words[: len(name)] == name:
            return _run(command, words[len(name) :])
    group = [command for command in commands if words and command.name.startswith(f"{words[0]} ")]
    shown, rest = (group, words[1:]) if group else (commands, words)
    if rest[:1] in (["--help"], ["-h"]):
        say(_listed(shown, about))
        return None
    if not rest:
        complain(_listed(shown, about))
        raise SystemExit(USAGE)
    names = [command.name.split()[-1 if group else 0] for command in shown]
    help = did_you_mean(rest[0][:40], names, f"commands are {', '.join(dict.fromkeys(names))}")
    complain(f"usage: there is no command {rest[0][:40]!r}; {help}")
    raise SystemExit(USAGE)


def _listed(commands: Iterable[Command], about: str) -> str:
    """The commands, each with what it does."""
    rows = [(command.name, command.help) for command in commands]
    width = max(len(name) for name, _ in rows)
    lines = (f"  {name:<{width}}  {help}" for name, help in rows)
    return "\n".join(
        [f"usage: {PROGRAM} COMMAND ...", "", about, "", *lines, "", f"{PROGRAM} COMMAND --help says more."]
    )


def parser(command: Command) -> ArgumentParser:
    """What reads the arguments of a command."""
    arguments = (str(o.how.get("metavar", o.names[0].upper())) for o in command.options if o.positional)
    usage = " ".join([PROGRAM, command.name, "[options]", *arguments])
    made = ArgumentParser(f"{PROGRAM} {command.name}", usage=usage, description=command.help, allow_abbrev=False)
    for each in command.options:
        made.add_argument(*each.names, **each.how)
    return made


def _run(command: Command, arguments: Sequence[str]) -> int | None:
    reader = parser(command)
    given, foreign = reader.parse_known_intermixed_args([command.spelled.get(word, word) for word in arguments])
    if foreign:
        known = [name for each in command.options for name in each.names if name.startswith("--")]
        word = next((word for word in foreign if word.startswith("-")), foreign[0]).partition("=")[0][:40]
        help = did_you_mean(word, known, f"`{PROGRAM} {command.name} --help` lists what there is")
        reader.error(f"there is no argument {word!r}; {help}")
    return command.run(**vars(given))
