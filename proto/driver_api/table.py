"""Parses driver_api.table, whose header explains the format. Errors name the line."""

import collections
import re

TRANSPORTS = ("ring", "control", "local", "none")
SUPPORT = ("full", "partial", "none")
FLAGS = ("before_init", "in_host_function", "hidden")
DIRECTIONS = ("in", "out", "inout")
PLAIN = ("optional", "string", "image", "opaque", "host", "device")
HANDLE_USES = ("takes", "gives", "makes", "ends")
MAX_OP = 65535

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")
_SYMBOL = re.compile(r"(cu[A-Z]\w*?)(?:_v([2-9]))?(_ptsz|_ptds)?\Z")
_FAMILY = re.compile(r'family (\w+) (\d+)-(\d+) "([^"]+)"\Z')
_ROW = re.compile(r"(\d+) (\S+) \| (\S+) (\d+)(?: (\S+))? \| (\S+) (\S+)((?: \S+)*)\Z")
_SIZE = re.compile(r"(bytes|count|params|stream)\((\w+)\)\Z")

Family = collections.namedtuple("Family", "name first last title line")


class TableError(Exception):
    """A malformed table. The message begins with file:line."""


class Arg:
    """One argument of an entry point: its C type and name, and its annotations."""

    def __init__(self, declaration):
        self.declaration = declaration
        self.name = re.search(r"(\w+)(?:\[\])?\Z", declaration).group(1)
        array = "[]" if declaration.endswith("[]") else ""
        self.type = re.sub(r"(\w+)(\[\])?\Z", "", declaration).strip() + (" *" if array else "")
        self.is_pointer = "*" in declaration or bool(array)
        self.direction = None
        self.words = set()  # of PLAIN
        self.sizes = {}  # "bytes", "count", "params", "stream" -> what is in the parentheses
        self.handles = []  # (use, handle type)

    @property
    def is_stream(self):
        return self.type == "CUstream"

    @property
    def must_not_be_null(self):
        """Whether the generated entry point refuses null.

        The implementation checks lists, which may be empty, and host memory.
        """
        return self.is_pointer and not self.words & {"optional", "host", "opaque"} and "count" not in self.sizes


class Row:
    """One entry point."""

    def __init__(self, line, family, op, symbol, api, version, variant, transport, support):
        self.line, self.family, self.op, self.symbol, self.api = line, family, op, symbol, api
        self.version, self.variant, self.transport, self.support = version, variant, transport, support
        self.flags, self.via, self.args, self.note = set(), None, [], ""
        self.index = -1  # among all rows, in the table's order

    @property
    def hidden(self):
        return "hidden" in self.flags

    @property
    def before_init(self):
        return "before_init" in self.flags

    @property
    def in_host_function(self):
        return "in_host_function" in self.flags or self.before_init

    @property
    def crosses(self):
        return self.transport in ("ring", "control")

    @property
    def implemented(self):
        """Whether the shim has a handwritten function of this name."""
        return self.support != "none" and self.via is None

    def parameters(self):
        return ", ".join(a.declaration for a in self.args)


class Table:
    """The families and all rows, in the table's order."""

    def __init__(self, families, rows):
        self.families, self.rows = families, rows
        self.by_symbol = {r.symbol: r for r in rows}
        for index, row in enumerate(rows):
            row.index = index


class _Parser:

    def __init__(self, path, text):
        self.path, self.lines = path, text.split("\n")
        self.families, self.rows = [], []
        self.ops, self.symbols = {}, {}
        self.row = None

    def fail(self, line, message):
        raise TableError("%s:%d: %s" % (self.path, line, message))

    def parse(self):
        for number, text in enumerate(self.lines, 1):
            if text != text.rstrip():
                self.fail(number, "the line ends in white space")
            if not text:
                self.row = None
            elif text.startswith("#"):
                continue
            elif text.startswith("family "):
                self.parse_family(number, text)
            elif text.startswith("  "):
                self.parse_detail(number, text[2:])
            else:
                self.parse_row(number, text)
        if not self.rows:
            self.fail(len(self.lines), "the table has no rows")
        table = Table(self.families, self.rows)
        for row in self.rows:
            self.check_row(table, row)
        self.check_lookup()
        return table

    def parse_family(self, number, text):
        match = _FAMILY.match(text)
        if not match:
            self.fail(number, 'a family line reads: family NAME FIRST-LAST "Title"')
        family = Family(match[1], int(match[2]), int(match[3]), match[4], number)
        if not 0 < family.first <= family.last <= MAX_OP:
            self.fail(number, "op numbers lie between 1 and %d" % MAX_OP)
        for other in self.families:
            if other.name == family.name:
                self.fail(number, "family %s is there already, line %d" % (family.name, other.line))
            if family.first <= other.last and other.first <= family.last:
                self.fail(number, "its range overlaps that of %s, line %d" % (other.name, other.line))
        self.families.append(family)
        self.row = None

    def parse_row(self, number, text):
        if not self.families:
            self.fail(number, "a row before the first family")
        if self.row is not None:
            self.fail(number, "a blank line is missing before this row")
        match = _ROW.match(text)
        if not match:
            self.fail(number, "a row reads: OP SYMBOL | API VERSION [ptsz|ptds] | TRANSPORT SUPPORT [FLAG...] [via=SYMBOL]")
        op, symbol, api, version, variant, transport, support, rest = match.groups()
        family = self.families[-1]
        row = Row(number, family, int(op), symbol, api, int(version), variant or "", transport, support)
        if not family.first <= row.op <= family.last:
            self.fail(number, "op %d is outside the range %d-%d of family %s" %
                      (row.op, family.first, family.last, family.name))
        if row.op in self.ops:
            self.fail(number, "op %d belongs to %s, line %d" % (row.op, self.ops[row.op].symbol, self.ops[row.op].line))
        parts = _SYMBOL.match(symbol)
        if not parts:
            self.fail(number, "%s is no name of an entry point" % symbol)
        if symbol in self.symbols:
            self.fail(number, "%s has a row already, line %d" % (symbol, self.symbols[symbol].line))
        if api != parts[1]:
            self.fail(number, "cuGetProcAddress knows %s as %s, not as %s" % (symbol, parts[1], api))
        if (parts[3] or "")[1:] != row.variant:
            self.fail(number, "the variant must be that of the symbol, ptsz or ptds")
        if row.version < 2000 or row.version % 10:
            self.fail(number, "%d is no CUDA version (12.4 is 12040)" % row.version)
        if transport not in TRANSPORTS:
            self.fail(number, "transport %s is not one of %s" % (transport, ", ".join(TRANSPORTS)))
        if support not in SUPPORT:
            self.fail(number, "support %s is not one of %s" % (support, ", ".join(SUPPORT)))
        for word in rest.split():
            if word.startswith("via="):
                row.via = word[4:]
            elif word in FLAGS:
                row.flags.add(word)
            else:
                self.fail(number, "flag %s is not one of %s, via=SYMBOL" % (word, ", ".join(FLAGS)))
        self.ops[row.op] = self.symbols[symbol] = row
        self.rows.append(row)
        self.row = row

    def parse_detail(self, number, text):
        row = self.row
        if row is None:
            self.fail(number, "an argument or note outside a row")
        if text.startswith("note: "):
            if row.note:
                self.fail(number, "a row has at most one note")
            row.note = text[len("note: "):].strip()
            return
        if row.note:
            self.fail(number, "arguments come before the note")
        declaration, colon, annotations = text.partition(" : ")
        if not colon:
            self.fail(number, "an argument reads: C DECLARATION : ANNOTATION...")
        declaration = declaration.strip()
        if not re.match(r"[A-Za-z_][\w *]*[ *]\w+(\[\])?\Z", declaration):
            self.fail(number, "cannot read the C declaration '%s'" % declaration)
        arg = Arg(declaration)
        if arg.name in (a.name for a in row.args):
            self.fail(number, "two arguments are called %s" % arg.name)
        self.parse_annotations(number, arg, annotations.split())
        row.args.append(arg)

    def parse_annotations(self, number, arg, words):
        if not words or words[0] not in DIRECTIONS:
            self.fail(number, "the first annotation is one of %s" % ", ".join(DIRECTIONS))
        arg.direction = words[0]
        if arg.direction != "in" and not arg.is_pointer:
            self.fail(number, "an argument by value can only be in")
        if arg.direction != "in" and arg.declaration.startswith("const ") and arg.declaration.count("*") == 1:
            self.fail(number, "a pointer to const can only be in")
        position = 1
        while position < len(words):
            word = words[position]
            position += 1
            size = _SIZE.match(word)
            if word in HANDLE_USES:
                if position == len(words) or not _IDENTIFIER.match(words[position]):
                    self.fail(number, "%s is followed by a handle type" % word)
                if (word in ("gives", "makes")) != (arg.direction != "in"):
                    self.fail(number, "gives and makes belong to out, takes and ends to in")
                arg.handles.append((word, words[position]))
                position += 1
            elif size:
                if size[1] in arg.sizes:
                    self.fail(number, "%s() twice" % size[1])
                arg.sizes[size[1]] = size[2]
            elif word in PLAIN:
                arg.words.add(word)
            else:
                self.fail(number, "unknown annotation %s" % word)

    def check_row(self, table, row):
        if (row.transport == "none") != (row.support == "none"):
            self.fail(row.line, "transport none and support none go together")
        if row.support != "full" and not row.note:
            self.fail(row.line, "support %s needs a note with the reason" % row.support)
        if row.hidden and row.support != "none":
            self.fail(row.line, "a hidden row cannot be supported")
        names = {a.name for a in row.args}
        for arg in row.args:
            for kind, value in arg.sizes.items():
                if kind != "stream" and not value.isdigit() and value not in names:
                    self.fail(row.line, "%s: %s(%s) names no argument" % (arg.name, kind, value))
                if kind == "stream" and not arg.is_pointer:
                    self.fail(row.line, "%s: stream() belongs to a pointer to a structure" % arg.name)
        if row.via is not None:
            self.check_via(table, row)
        elif row.variant and row.support != "none":
            self.fail(row.line, "a %s row is reached by via= or not supported" % row.variant)

    def check_via(self, table, row):
        base = table.by_symbol.get(row.via)
        if base is None:
            self.fail(row.line, "via=%s: no such row" % row.via)
        if base.via is not None or base.support == "none":
            self.fail(row.line, "via=%s: that row has no implementation of its own" % row.via)
        if row.transport != "local":
            self.fail(row.line, "a row with via= is of transport local")
        if [a.type for a in row.args] != [a.type for a in base.args]:
            self.fail(row.line, "via=%s: the arguments' types differ" % row.via)
        for flag in ("before_init", "in_host_function"):
            if (flag in row.flags) != (flag in base.flags):
                self.fail(row.line, "via=%s: %s differs" % (row.via, flag))
        streams = any(a.is_stream or "stream" in a.sizes for a in row.args)
        if row.variant == "ptsz" and not streams:
            self.fail(row.line, "a ptsz row has a stream to map")
        if row.variant == "ptds" and streams:
            self.fail(row.line, "a ptds row takes no stream")

    def check_lookup(self):
        seen = {}
        for row in self.rows:
            key = (row.api, row.version, bool(row.variant))
            if key in seen:
                self.fail(row.line, "cuGetProcAddress cannot tell it from %s, line %d" %
                          (seen[key].symbol, seen[key].line))
            seen[key] = row


def parse(path, text):
    """Returns the Table of `text`. `path` is for messages. Raises TableError."""
    return _Parser(path, text).parse()


def load(path):
    with open(path, encoding="utf-8") as file:
        return parse(path, file.read())
