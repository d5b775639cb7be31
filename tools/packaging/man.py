#!/usr/bin/python3
"""Writes a manual page from prose and from the options and subcommands of the program's --help.

  man.py PROGRAM PROSE VERSION [NAME]

PROSE is a roff file. Its first line is "NAME(SECTION): a short description". Its line @OPTIONS@ is
replaced by the options and subcommands.
"""

import re
import sys

sys.dont_write_bytecode = True

import cli  # noqa: E402 (beside this file)


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text.startswith(".") else text


def options_of(command):
    out, group = [], "Options"
    for option in command.options:
        if option.names == ["-h", "--help"] and " " in command.name:
            continue
        if option.group != group:
            group = option.group
            if group not in ("Options", "Positionals"):
                out.append(f".PP\n{escape(group)}:")
        head = ", ".join(f"\\fB{escape(name)}\\fR" for name in option.names)
        value = escape("|".join(option.choices) or option.value)
        value = value.replace("|", "|\\:")  # a long list may be broken here
        if value and not option.positional:
            head += f"[=\\fI{value}\\fR]" if option.optional_value else f" \\fI{value}\\fR"
        out.append(f".TP\n{head}\n{escape(option.help)}")
    return out


def commands_of(root):
    out = []
    for command in root.walk():
        if command is root:
            continue
        words = escape(" ".join(command.name.split()[1:]))
        out.append(f".SS {words}\n{escape(command.help)}.")
        out += options_of(command)
        if command.footer:
            out.append(f".PP\n{escape(command.footer)}")
    return out


def page(root, prose, version):
    head, body = prose.split("\n", 1)
    name, section, what = re.match(r"(\S+)\((\d)\): (.*)", head).groups()
    out = ["\n".join(options_of(root))]
    if root.commands:
        out = [".SH COMMANDS", *commands_of(root), ".SH OPTIONS OF ALL COMMANDS", *out]
    else:
        out = [".SH OPTIONS", *out]
    title = f'.TH {name.upper()} {section} "" "DetShare {version}" "DetShare"\n.ad l\n.SH NAME\n{name} \\- {what}\n'
    return title + body.replace("@OPTIONS@", "\n".join(out))


def main():
    program, prose, version = sys.argv[1:4]
    with open(prose, encoding="utf-8") as file:
        sys.stdout.write(page(cli.describe(program, *sys.argv[4:5]), file.read(), version))


if __name__ == "__main__":
    main()
