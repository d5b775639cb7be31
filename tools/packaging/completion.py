#!/usr/bin/python3
"""Writes a shell's completion of a program, made from the program's --help.

  completion.py bash|zsh PROGRAM [NAME]
"""

import re
import sys

sys.dont_write_bytecode = True

import cli  # noqa: E402 (beside this file)

FILES = {"PATH", "FILE", "DIR"}
# What the daemon knows: the value or positional argument, and the kinds of `detsharectl names`.
NAMES = {"TENANT": ["tenants"], "POLICY": ["policies"], "SESSION": ["sessions"], "ENDPOINT": ["endpoints"],
         "WHO": ["sessions", "tenants"]}


def names(value):
    """The shell's command that prints the names that may stand for this value."""
    return "; ".join(f"detsharectl names {kind} 2>/dev/null" for kind in NAMES[value])


def positionals(command):
    return [option for option in command.options if option.positional]


def identifier(name):
    return re.sub(r"[^A-Za-z0-9]", "_", name)


def inherited(root, command):
    """Returns a command's options and those of the commands above it; CLI11 accepts both."""
    words = command.name.split()
    options, names = [], set()
    for one in root.walk():
        above = one.name.split()
        if words[: len(above)] != above:
            continue
        for option in one.options:
            if not option.positional and not names & set(option.names):
                options.append(option)
                names |= set(option.names)
    return options


def bash(root):
    function = "_" + identifier(root.name)
    out = [f"# bash completion for {root.name}", "", f"{function}() {{",
           "  local current=${COMP_WORDS[COMP_CWORD]} command=" + root.name + " i word value=",
           "  # bash splits --option=value into three words.",
           "  if [[ $current == = ]]; then",
           "    value=${COMP_WORDS[COMP_CWORD-1]}= current=",
           "  elif ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then",
           "    value=${COMP_WORDS[COMP_CWORD-2]}=",
           "  elif ((COMP_CWORD > 0)) && [[ ${COMP_WORDS[COMP_CWORD-1]} == -* ]]; then",
           "    value=${COMP_WORDS[COMP_CWORD-1]}",
           "  fi",
           "  for ((i = 1; i < COMP_CWORD; i++)); do",
           "    word=${COMP_WORDS[i]}"]
    if any(c.name == "detshare run" for c in root.walk()):
        out += ["    # The program's own command line follows.",
                "    if [[ $word == -- ]]; then",
                "      COMP_WORDS=(\"${COMP_WORDS[@]:i+1}\") COMP_CWORD=$((COMP_CWORD - i - 1))",
                "      if ((COMP_CWORD == 0)); then",
                "        COMPREPLY=($(compgen -c -- \"$current\"))",
                "      else",
                "        COMPREPLY=($(compgen -f -- \"$current\"))",
                "      fi",
                "      return",
                "    fi"]
    out += ["    case \"$command $word\" in"]
    for command in root.walk():
        if command is not root:
            out.append(f"      '{command.name}') command='{command.name}' ;;")
    out += ["    esac", "  done", "  case \"$command $value\" in"]
    for command in root.walk():
        for option in inherited(root, command):
            if not option.value and not option.choices:
                continue
            ways = ("=",) if option.optional_value else ("", "=")
            patterns = "|".join(f"'{command.name} {name}{way}'" for name in option.names for way in ways)
            if option.choices:
                reply = f"compgen -W '{' '.join(option.choices)}' -- \"$current\""
            elif option.value == "DIR":
                reply = 'compgen -d -- "$current"'
            elif option.value in FILES:
                reply = 'compgen -f -- "$current"'
            elif option.value in NAMES:
                reply = f'compgen -W "$({names(option.value)})" -- "$current"'
            else:
                out.append(f"    {patterns}) return ;;")
                continue
            out.append(f"    {patterns}) COMPREPLY=($({reply})); return ;;")
    out += ["  esac", "  case $command in"]
    for command in root.walk():
        words = [name for option in inherited(root, command) for name in option.names]
        words += [sub.name.split()[-1] for sub in command.commands]
        line = f"COMPREPLY=($(compgen -W '{' '.join(words)}' -- \"$current\"))"
        for option in positionals(command):
            known, files = option.names[0] in NAMES, option.value in FILES or option.names[0] == "POLICY"
            if known:
                line += f"; [[ $current == -* ]] || COMPREPLY+=($(compgen -W \"$({names(option.names[0])})\" -- \"$current\"))"
            # A policy may be the path of a shared object.
            if files:
                line += "; [[ $current == -* ]] || COMPREPLY+=($(compgen -f -- \"$current\"))"
        out.append(f"    '{command.name}') {line} ;;")
    out += ["  esac", "}", f"complete -o filenames -F {function} {root.name}", ""]
    return "\n".join(out)


def zsh_quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh_options(root, command):
    specs = []
    for option in inherited(root, command):
        text = option.help.replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
        value = ""
        if option.choices:
            value = f":value:({' '.join(option.choices)})"
        elif option.value == "DIR":
            value = ":directory:_directories"
        elif option.value in FILES:
            value = ":file:_files"
        elif option.value in NAMES:
            value = f":{option.value.lower()}:_{identifier(root.name)}_names_{option.value}"
        elif option.value:
            value = f":{option.value.replace(':', ' ')}: "
        for name in option.names:
            mark = "=" if value and name.startswith("--") else ""
            if option.optional_value:
                mark, value = "=-", ":" + value
            specs.append(zsh_quote(f"*{name}{mark}[{text}]{value}"))
    return specs


def zsh_function(root, command):
    name = "_" + identifier(command.name)
    out = [f"{name}() {{", "  local line state"]
    specs = zsh_options(root, command)
    if command.commands:
        specs += ["'1: :->command'", "'*:: :->arguments'"]
    elif command.name == "detshare run":
        specs += ["'(-):program: _command_names -e'", "'*::arguments: _normal'"]
    for option in positionals(command):
        if option.names[0] in NAMES:
            specs.append(f"'*:{option.names[0].lower()}:_{identifier(root.name)}_names_{option.names[0]}'")
        elif option.value in FILES:
            specs.append("'*:file:_files'")
    out.append("  _arguments -C \\\n    " + " \\\n    ".join(specs))
    if command.commands:
        out += ["  case $state in", "    command)", "      local -a commands=("]
        for sub in command.commands:
            out.append("        " + zsh_quote(sub.name.split()[-1] + ":" + sub.help.replace(":", "\\:")))
        out += ["      )", "      _describe command commands ;;", "    arguments)", "      case $line[1] in"]
        for sub in command.commands:
            out.append(f"        {sub.name.split()[-1]}) _{identifier(sub.name)} ;;")
        out += ["      esac ;;", "  esac"]
    out += ["}", ""]
    return "\n".join(out)


def zsh(root):
    functions = [zsh_function(root, command) for command in root.walk()]
    for value in NAMES:
        files = " || _files" if value == "POLICY" else ""
        functions.append(f'_{identifier(root.name)}_names_{value}() {{\n  compadd -- ${{(f)"$({names(value)})"}}{files}\n}}\n')
    return "\n".join([f"#compdef {root.name}", "", *functions, f'_{identifier(root.name)} "$@"', ""])


def main():
    shell, program = sys.argv[1:3]
    root = cli.describe(program, *sys.argv[3:4])
    sys.stdout.write({"bash": bash, "zsh": zsh}[shell](root))


if __name__ == "__main__":
    main()
