"""Parses a program's --help into options and subcommands. man.py and completion.py use it."""

import os
import re
import subprocess
from dataclasses import dataclass, field


@dataclass
class Option:
    names: list  # ["-h", "--help"], or ["file"] for a positional argument
    value: str  # "PATH"; "" for a flag
    choices: list  # ["auto", "cuda", "soft"]; [] when any value is allowed
    help: str
    group: str
    optional_value: bool = False  # the value may be left out; it is given after = only

    @property
    def positional(self):
        return not self.names[0].startswith("-")


@dataclass
class Command:
    name: str  # "detsharectl config check"
    help: str
    options: list = field(default_factory=list)
    commands: list = field(default_factory=list)
    footer: str = ""

    def walk(self):
        yield self
        for command in self.commands:
            yield from command.walk()


# The heading of the options that a command takes because all commands take them. They are the
# options of the program.
SHARED = "Options of all commands"

# CLI11 prints an option's explanation at this column, on the next line when the option is too long.
_COLUMN = 30


def _option(spec, text, group):
    spec = re.sub(r"\s+(REQUIRED|\.\.\.)(?=\s|$)", "", spec).strip()
    # --standalone[={auto,soft}]: the value after = may be left out.
    optional = re.fullmatch(r"(\S*)\[=(.*)\]", spec)
    names, value = optional.groups() if optional else spec.partition(" ")[::2]
    choices = []
    if value.startswith("{"):
        choices, value = value.strip("{}").split(","), ""
    elif "|" in value:
        choices, value = value.split("|"), ""
    return Option(names.split(","), value.strip(), choices, text.strip(), group, bool(optional))


def parse(name, text):
    """Returns the Command that a --help describes. Its subcommands have a name and a help only."""
    lines = text.splitlines()
    command = Command(name, "")
    group, spec, explanation, seen = None, None, "", []

    def finish():
        nonlocal spec, explanation
        if spec is None:
            return
        if group == "Subcommands":
            command.commands.append(Command(f"{name} {spec.strip()}", explanation.strip()))
        elif group not in (None, SHARED):
            command.options.append(_option(spec, explanation, group))
        spec, explanation = None, ""

    for line in lines:
        heading = re.match(r"^([A-Z][A-Za-z ]*):$", line)
        if heading or not line.strip():
            finish()
            if heading:
                group = heading.group(1)
        elif line.startswith("  ") and not line.startswith("   ") and group is not None:
            finish()
            spec, explanation = line[:_COLUMN], line[_COLUMN:]
            # The option is too long for its column, so the whole line is the option.
            if len(line) > _COLUMN and line[_COLUMN - 1] != " ":
                spec, explanation = line, ""
        elif line.startswith(" " * _COLUMN) and spec is not None:
            explanation += " " + line.strip()
        elif not line.startswith(" ") and not line.startswith("Usage:"):
            finish()
            if group is None:
                command.help = (command.help + " " + line.strip()).strip()
            else:
                seen.append(line.strip())
    finish()
    command.footer = " ".join(seen)
    return command


def describe(program, name=None, _words=()):
    """Returns the Command of a program, from --help of the program and of each subcommand."""
    name = name or os.path.basename(program)
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    text = subprocess.run([program, *_words, "--help"], check=True, capture_output=True, text=True, env=environment).stdout
    command = parse(" ".join([name, *_words]), text)
    for i, sub in enumerate(command.commands):
        words = (*_words, sub.name.split()[-1])
        described = describe(program, name, words)
        described.help = sub.help or described.help
        command.commands[i] = described
    return command
