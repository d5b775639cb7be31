#!/usr/bin/python3
"""Checks that completions and manual pages have all commands and options of the real programs.

  help_test.py CLI.PY PROGRAM...
"""

import functools
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
FOLDER = os.path.dirname(os.path.abspath(sys.argv[1]))
sys.path.insert(0, FOLDER)

import cli  # noqa: E402
import completion  # noqa: E402
import man  # noqa: E402

failures = []
# A description runs the program once for each of its commands.
describe = functools.lru_cache(maxsize=None)(cli.describe)


def check(condition, what):
    if not condition:
        failures.append(what)


class Bash:
    """One bash that has read a completion script. A bash for each question would take most of the test's time."""

    END = "end-of-completions"

    def __init__(self, script):
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen(["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.process.stdin.write(script + "\n")

    def complete(self, words):
        """The completions that bash offers for the last word."""
        line = " ".join(f"'{word}'" for word in words)
        name = "_" + completion.identifier(words[0])
        self.process.stdin.write(f'COMPREPLY=() COMP_WORDS=({line}) COMP_CWORD={len(words) - 1}\n{name} </dev/null\n'
                                 f'printf "%s\\n" "${{COMPREPLY[@]}}" {self.END}\n')
        self.process.stdin.flush()
        offered = set()
        for text in self.process.stdout:
            if text.strip() == self.END:
                return offered
            offered.update(text.split())
        check(False, f"bash ends at the completion of {words}")
        return offered

    def end(self):
        self.process.communicate()
        self.errors.seek(0)
        errors = self.errors.read()
        check(self.process.returncode == 0 and not errors, f"bash completion: {errors}")


def complete(script, words):
    """The completions that a new bash offers for the last word."""
    bash = Bash(script)
    offered = bash.complete(words)
    bash.end()
    return offered


def check_bash(root):
    bash = Bash(completion.bash(root))
    for command in root.walk():
        words = command.name.split()
        offered = bash.complete([*words, ""])
        for sub in command.commands:
            check(sub.name.split()[-1] in offered, f"bash does not offer {sub.name}")
        offered = bash.complete([*words, "-"])
        for option in command.options:
            for name in option.names:
                if option.positional:
                    continue
                check(name in offered, f"bash does not offer {command.name} {name}")
                if option.choices and not option.optional_value:
                    check(bash.complete([*words, name, ""]) == set(option.choices), f"choices of {command.name} {name}")
                if option.choices:
                    check(bash.complete([*words, name, "=", option.choices[0][:1]]) >= {option.choices[0]},
                          f"choices of {command.name} {name}=")
                if not option.value and not option.choices:
                    # After a flag, the next word is a new option.
                    check(bash.complete([*words, name, "-"]) == offered, f"what follows {command.name} {name}")
        for wrong in offered - {name for one in completion.inherited(root, command) for name in one.names}:
            check(False, f"bash offers {command.name} {wrong}, which does not exist")
    bash.end()


# What detsharectl prints when a completion asks for names.
ASKED = {"tenants": "chat train", "policies": "fair whole", "sessions": "7 12", "endpoints": "web"}


def check_names():
    """Checks that completions ask the daemon, with a detsharectl that has replies."""
    programs = {os.path.basename(program): os.path.abspath(program) for program in sys.argv[2:]}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/detsharectl", "w", encoding="utf-8") as file:
            cases = " ".join(f"'{kind}') printf '%s\\n' {words} ;;" for kind, words in ASKED.items())
            file.write(f'#!/bin/sh\n[ "$1" = names ] || exit 1\ncase $2 in {cases} esac\n')
        os.chmod(f"{folder}/detsharectl", 0o755)
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{folder}:{path}"
        for words, kind in [(["detsharectl", "tenant", "set", ""], "tenants"), (["detsharectl", "tenant", "unset", ""], "tenants"),
                            (["detsharectl", "policy", "set", ""], "policies"), (["detsharectl", "policy", "show", ""], "policies"),
                            (["detsharectl", "endpoint", "close", ""], "endpoints"), (["detsharectl", "events", "--tenant", ""], "tenants"),
                            (["detsharectl", "events", "--session", ""], "sessions"), (["detsharectl", "sessions", "kill", ""], "sessions"),
                            (["detsharectl", "sessions", "kill", ""], "tenants"), (["detshare", "run", "--tenant", ""], "tenants")]:
            offered = complete(completion.bash(describe(programs[words[0]])), words)
            check(set(ASKED[kind].split()) <= offered, f"the completion of {words} offers {offered}")
        offered = complete(completion.bash(describe(programs["detsharectl"])), ["detsharectl", "tenant", "set", "tr"])
        check(offered == {"train"}, f"the completion of tenant set tr offers {offered}")
        os.environ["PATH"] = path


def check_zsh(root):
    script = completion.zsh(root)
    for command in root.walk():
        function = script[script.index(f"_{completion.identifier(command.name)}() {{"):]
        function = function[: function.index("\n}\n")]
        for option in command.options:
            for name in option.names:
                check(option.positional or re.search(rf"\*{re.escape(name)}[=\[]", function),
                      f"zsh does not offer {command.name} {name}")
        for sub in command.commands:
            check(f"'{sub.name.split()[-1]}:" in function, f"zsh does not offer {sub.name}")
    with tempfile.NamedTemporaryFile("w", suffix=".zsh") as file:
        file.write(script)
        file.flush()
        try:
            said = subprocess.run(["zsh", "-f", "-n", file.name], capture_output=True, text=True, check=False)
            check(said.returncode == 0, f"zsh does not understand the completion of {root.name}: {said.stderr}")
        except FileNotFoundError:
            print("NOT TESTED: this machine has no zsh")


def check_manual(root):
    (source,) = [name for name in os.listdir(f"{FOLDER}/man") if name.rsplit(".", 2)[0] == root.name]
    with open(f"{FOLDER}/man/{source}", encoding="utf-8") as file:
        page = man.page(root, file.read(), "1.2.3")
    for command in root.walk():
        for option in command.options:
            for name in option.names:
                if " " in command.name and name in ("-h", "--help"):
                    continue
                check(man.escape(name) in page, f"the manual page of {root.name} lacks {name}")
                check(option.help and man.escape(option.help) in page, f"the manual page lacks what {name} is")
        if command is not root:
            check(f".SS {man.escape(' '.join(command.name.split()[1:]))}" in page, f"the manual page lacks {command.name}")
    try:
        said = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-"], input=page, capture_output=True,
                              text=True, check=False)
        check(not said.stderr, f"the manual page of {root.name}: {said.stderr}")
    except FileNotFoundError:
        print("NOT TESTED: this machine has no man")


def check_shared_options(program, root):
    """Checks that every command has --version, and shows the options that all commands take."""
    shared = [name for option in root.options for name in option.names if root.name == "detsharectl" and name.startswith("--")]
    for command in root.walk():
        words = command.name.split()[1:]
        said = subprocess.run([program, *words, "--version"], capture_output=True, text=True, check=False)
        check(said.returncode == 0 and said.stdout.startswith(root.name + " "), f"{command.name} --version: {said.stderr}")
        shown = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=False).stdout
        for name in shared:
            # The program's own.
            if name != "--version":
                check(name in shown, f"{command.name} --help does not show {name}")


def check_parser():
    """Checks the parser itself with a known text."""
    command = cli.parse("p", """What p does.
Usage: p [OPTIONS] [SUBCOMMAND]

Positionals:
  file FILE                   A file

Options:
  -h,--help                   Print this help message and exit
  --socket PATH               Where,
                              in two lines
  --mode[={auto,soft}]        With a default
  --kind {a,b}                One of two
  --when on|off REQUIRED      Of two as well
  --size N                    A number (1 to 8) [2]
  --tenant NAME=PERCENT ...   Many

Subcommands:
  run                         Runs
""")
    options = {option.names[-1]: option for option in command.options}
    check(command.help == "What p does.", f"help is {command.help!r}")
    check(options["file"].positional and options["file"].value == "FILE", f"{options['file']}")
    check(options["--help"].names == ["-h", "--help"] and not options["--help"].value, f"{options['--help']}")
    check(options["--socket"].value == "PATH" and options["--socket"].help == "Where, in two lines", f"{options['--socket']}")
    check(options["--mode"].choices == ["auto", "soft"] and options["--mode"].optional_value, f"{options['--mode']}")
    check(options["--kind"].choices == ["a", "b"] and not options["--kind"].optional_value, f"{options['--kind']}")
    check(options["--when"].choices == ["on", "off"], f"{options['--when']}")
    check(options["--size"].value == "N" and options["--size"].help == "A number (1 to 8) [2]", f"{options['--size']}")
    check(options["--tenant"].value == "NAME=PERCENT", f"{options['--tenant']}")
    check([sub.name for sub in command.commands] == ["p run"], f"{command.commands}")


def main():
    check_parser()
    check_names()
    for program in sys.argv[2:]:
        root = describe(os.path.abspath(program))
        check(any("--help" in option.names for option in root.options), f"{program} has no options")
        check_shared_options(os.path.abspath(program), root)
        check_bash(root)
        check_zsh(root)
        check_manual(root)
    for failure in failures:
        print("FAILED:", failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
