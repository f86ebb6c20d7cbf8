"""The arguments of a command, by a table of options. argparse would be a fifth of the helper's start-up.

Values stay text, as they were given: what one means, and whether it is a number, is the command's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

from .record import Record
from .units import printable

#: The values of a command's options, each an attribute.
Options = SimpleNamespace


class UsageError(ValueError):
    """What is wrong with the arguments, as one line."""


class Option(Record):
    """One argument of a command. ``--head-pct`` is given by name and read as ``head_pct``; ``path`` by its place.

    metavar: stands for the value; a named option without one is a flag, whose value is how often it was given.
    many: a list of values, by repeating the name, or of all places that are left.
    """

    name: str
    metavar: str = ""
    what: str = ""
    default: object = None
    many: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()
    short: str = ""

    @property
    def key(self) -> str:
        """Its attribute of the options."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def shown(self) -> str:
        """As the usage has it."""
        words = f"{self.name} {self.metavar}".rstrip() if self.name.startswith("-") else self.metavar
        return words + "..." if self.many else words


class Command(Record):
    """A command of one word or of two, ``peaks list``. load: what runs it and its options; None heads those of two words."""

    name: str
    what: str
    load: Callable[[], tuple[Callable[[Options], int], Sequence[Option]]] | None = None


def chosen(given: Sequence[str], commands: Sequence[Command]) -> tuple[Command | None, list[str]]:
    """The command that the first words name, and the rest of them; None where help is asked for instead."""
    by_name = {tuple(command.name.split()): command for command in commands}
    found = by_name.get(tuple(given[:2])) or by_name.get(tuple(given[:1]))
    rest = list(given[len(found.name.split()) if found else 0 :])
    if found is not None and found.load is not None:
        return found, rest
    if rest and rest[0] in ("-h", "--help"):
        return found, rest
    expected = ", ".join(command.name.split()[-1] for command in listed(found, commands))
    said = f"unknown command {printable(rest[0])!r}" if rest else "no command"
    raise UsageError(f"{found.name + ': ' if found else ''}{said}, expected one of {expected}")


def listed(head: Command | None, commands: Sequence[Command]) -> list[Command]:
    """The commands under ``head``; under None those of one word."""
    depth, prefix = (2, head.name + " ") if head else (1, "")
    return [one for one in commands if one.name.startswith(prefix) and len(one.name.split()) == depth]


def read(given: Sequence[str], options: Sequence[Option]) -> Options:
    """The values of ``options``.

    Raises:
        UsageError: for what is unknown, missing or out of place.
    """
    values = {option.key: option.default if option.metavar else 0 for option in options}
    bare: list[str] = []
    words = iter(given)
    for word in words:
        if word == "--":
            bare += words
        elif not _is_name(word):
            bare.append(word)
        else:
            _named(word, words, options, values)
    for option in options:
        if bare and not option.name.startswith("-"):
            values[option.key] = bare if option.many else bare[0]
            bare = [] if option.many else bare[1:]
    if bare:
        raise UsageError(f"unexpected argument {printable(bare[0])!r}")
    missing = [option.shown for option in options if option.required and values[option.key] is None]
    if missing:
        raise UsageError(f"missing {', '.join(missing)}")
    return Options(**values)


def _is_name(word: str) -> bool:
    """``-`` and ``-0.5`` are values."""
    return word.startswith("-") and word != "-" and word[1] not in ".0123456789"


def _named(word: str, words: Iterator[str], options: Sequence[Option], values: dict[str, object]) -> None:
    """Read the option that ``word`` names, and its value out of it or of ``words``."""
    name, equals, value = word.partition("=")
    found = _found(name, options)
    if len(found) != 1:
        raise UsageError(f"{'ambiguous' if found else 'unknown'} option {printable(name)}")
    option = found[0]
    if not option.metavar:
        if equals:
            raise UsageError(f"{option.name} takes no value")
        times = 1 if name.startswith("--") else len(name) - 1
        values[option.key] += times  # type: ignore[operator]  # a flag's is a number
        return
    if not equals:
        following = next(words, None)
        if following is None or _is_name(following):
            raise UsageError(f"{option.name}: expected {option.metavar}")
        value = following
    if option.choices and value not in option.choices:
        raise UsageError(f"{option.name} is {printable(value)!r}, expected one of {', '.join(option.choices)}")
    values[option.key] = [*(values[option.key] or ()), value] if option.many else value  # type: ignore[misc]


def _found(name: str, options: Sequence[Option]) -> list[Option]:
    """Of the whole name, else of names that start so; ``-vv`` is ``-v`` twice."""
    if not name.startswith("--"):
        times = len(name) - 1
        return [one for one in options if one.short and name == "-" + one.short * (1 if one.metavar else times)]
    whole = [option for option in options if option.name == name]
    return whole or [option for option in options if option.name.startswith(name)]


def usage(prog: str, command: Command | None, options: Sequence[Option], commands: Sequence[Command]) -> str:
    """One line: how a command is called, or which there are."""
    words = [prog, *([command.name] if command else [])]
    if command is None or command.load is None:
        words.append("|".join(one.name.split()[-1] for one in listed(command, commands)))
    elif any(option.name.startswith("-") for option in options):
        words.append("[OPTION]...")
    words += [option.shown if option.required else f"[{option.shown}]" for option in options if not option.name.startswith("-")]
    return "usage: " + " ".join(words)


def explained(prog: str, command: Command | None, options: Sequence[Option], commands: Sequence[Command], what: str) -> str:
    """The help: the usage, what it does, and a line for each option or command."""
    rows = [(f"-{option.short}, {option.shown}" if option.short else option.shown, option.what) for option in options]
    if command is None or command.load is None:
        rows = [(one.name, one.what) for one in listed(command, commands)]
    width = max((len(shown) for shown, _ in rows), default=0)
    lines = [f"  {shown:<{width}}  {said}".rstrip() for shown, said in rows]
    return "\n".join([usage(prog, command, options, commands), "", command.what if command else what, "", *lines])
