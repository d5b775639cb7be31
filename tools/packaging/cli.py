"""What a program's --help says of its options and subcommands, as data: manual pages and completions are made from it."""

import os
import re
import subprocess
from dataclasses import dataclass, field


@dataclass
class Option:
    names: list  # ["-h", "--help"], or ["file"] of a positional
    value: str  # "PATH"; "" for a flag
    choices: list  # ["auto", "cuda", "soft"]; [] when anything goes
    help: str
    group: str
    optional_value: bool = False  # a value comes after = only, or not at all

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


# CLI11 puts the explanation at this column, on the next line where the option is too long.
_COLUMN = 30


def _option(spec, text, group):
    spec = re.sub(r"\s*\(Env:[^)]*\)", "", spec)
    spec = re.sub(r"\s+(REQUIRED|\.\.\.|Needs:.*|Excludes:.*)(?=\s|$)", "", spec).strip()
    names, _, value = spec.partition(" ")
    # TEXT=/the/default, but NAME=PERCENT.
    value = re.sub(r"=[^A-Z].*", "", value.strip())
    choices = []
    braces = re.search(r"\{([^}]*)\}", value)
    if braces:
        choices = [choice for choice in braces.group(1).split(",") if choice]
        value = value[: braces.start()].rstrip(":")
        value = "" if value in ("TEXT", "INT", "UINT") else value
    # "UINT:INT in [1 - 8]"
    value = value.split(":")[0].split()[0] if value.split() else ""
    # --standalone{auto}: a value after = may be left out.
    optional = "{" in names
    names = re.sub(r"\{[^}]*\}", "", names)
    return Option(names.split(","), value, choices, text.strip(), group, optional)


def parse(name, text):
    """The Command that a --help describes; its subcommands have names and explanations only."""
    lines = text.splitlines()
    command = Command(name, "")
    group, spec, explanation, seen = None, None, "", []

    def finish():
        nonlocal spec, explanation
        if spec is None:
            return
        if group == "Subcommands":
            command.commands.append(Command(f"{name} {spec.strip()}", explanation.strip()))
        elif group is not None:
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
            # Too long for its column: all of it is the option.
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
    """Runs PROGRAM --help, and that of every subcommand."""
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
