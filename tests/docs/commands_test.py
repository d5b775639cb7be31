#!/usr/bin/python3
"""Checks that the commands and options of DetShare's programs that the pages name exist.

  commands_test.py CLI.PY DETSHARED DETSHARE DETSHARECTL PAGE...
"""

import os
import re
import shlex
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))

import cli  # noqa: E402

PROGRAMS = {os.path.basename(path): cli.describe(os.path.abspath(path)) for path in sys.argv[2:5]}
# Help does not show it, because only completions call it.
HIDDEN = {"detsharectl names"}


def lines_of(page):
    """Lines of blocks without a language, and inline code."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if not language:
            yield from block.replace("\\\n", " ").splitlines()
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`]+)`", outside):
        yield " ".join(code.split())


def commands_of(line):
    """The command lines of our programs in a line, as lists of words."""
    line = re.sub(r"\s#.*$", "", line)
    for part in re.split(r"\||&&|;|\$\(", line):
        try:
            words = shlex.split(part.rstrip(" &)"))
        except ValueError:
            words = part.split()
        while words and (words[0] in ("sudo", "$") or re.fullmatch(r"[A-Z_]+=\S*", words[0])):
            words = words[1:]
        if words and os.path.basename(words[0]) in PROGRAMS:
            yield [os.path.basename(words[0]), *words[1:]]


def options_of(root, command):
    above = [one for one in root.walk() if (command.name + " ").startswith(one.name + " ")]
    return {name: option for one in above for option in one.options for name in option.names}


def problem(words):
    """What is wrong with a command line; None: nothing."""
    root = command = PROGRAMS[words[0]]
    rest = words[1:]
    if "--" in rest:
        rest = rest[: rest.index("--")]
    skip = False
    positional = False
    for word in rest:
        if skip:
            skip = False
            continue
        if word.startswith("-"):
            name = word.strip("[]").split("=")[0].rstrip(",.")
            option = options_of(root, command).get(name)
            if option is None and name not in ("--help", "--version", "-h", "--..."):
                return f"{command.name} has no {name}"
            skip = option is not None and "=" not in word and bool(option.value or option.choices) and not option.optional_value
            continue
        if positional or word.startswith("["):
            continue
        found = [sub for sub in command.commands if sub.name == f"{command.name} {word}"]
        if found:
            command = found[0]
        elif command.commands and not any(option.positional for option in command.options):
            if re.fullmatch(r"[a-z][a-z-]*", word) and f"{command.name} {word}" not in HIDDEN:
                return f"{command.name} has no command {word}"
            positional = True
        else:
            positional = True
    return None


def main():
    seen, failures = 0, []
    for page in sys.argv[5:]:
        for line in lines_of(page):
            for words in commands_of(line):
                seen += 1
                if wrong := problem(words):
                    failures.append(f"{page}: {' '.join(words)}: {wrong}")
    if seen < 150:
        failures.append(f"only {seen} commands were found")
    print("\n".join(failures) or f"{seen} commands, all of which exist")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
