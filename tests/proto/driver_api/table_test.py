#!/usr/bin/python3
"""Holds driver_api.table against the toolkit, what is pinned and the implementations, and the reader of tables against
malformed ones.

usage: table_test.py DRIVER_API_TABLE STUB_LIBRARY CUDA_TYPEDEFS_H WIRE_ALL_H OP_NUMBERS DOCS_PAGE GENERATED_DOCS_PAGE
       SOURCE...

SOURCE are the sources of the shim's functions and of the daemon's handlers.
"""

import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
PATHS = sys.argv[1:8]
TABLE, STUB, TYPEDEFS, WIRE_ALL, OP_NUMBERS, DOCS, GENERATED_DOCS = PATHS
SOURCES = sys.argv[8:]
sys.path.insert(0, os.path.dirname(TABLE))
import generate  # noqa: E402
import table as table_module  # noqa: E402


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class AgainstTheToolkit(unittest.TestCase):

    def setUp(self):
        self.table = table_module.load(TABLE)

    def test_the_exported_rows_are_the_symbols_of_the_stub_library_and_no_other(self):
        listing = subprocess.run(["nm", "-D", "--defined-only", STUB], check=True, stdout=subprocess.PIPE,
                                 universal_newlines=True).stdout
        symbols = {line.split()[2] for line in listing.splitlines()}
        rows = {r.symbol for r in self.table.rows if not r.hidden}
        self.assertEqual(len(symbols), 637)
        self.assertEqual(rows - symbols, set())
        self.assertEqual(symbols - rows, set())

    def test_every_function_type_of_cuda_typedefs_has_its_row(self):
        rows = {(r.api, r.version, r.variant) for r in self.table.rows}
        types = re.findall(r"\*PFN_(cu\w+?)_v(\d+)(?:_(ptsz|ptds))?\)\(", read(TYPEDEFS))
        self.assertGreater(len(types), 600)
        for api, version, variant in types:
            self.assertIn((api, int(version), variant), rows)


class AgainstWhatIsPinned(unittest.TestCase):

    def setUp(self):
        self.table = table_module.load(TABLE)

    def test_op_numbers_never_change(self):
        pinned = {}
        for line in read(OP_NUMBERS).splitlines():
            if line and not line.startswith("#"):
                op, symbol = line.split()
                self.assertNotIn(symbol, pinned)
                pinned[symbol] = int(op)
        self.assertEqual(len(set(pinned.values())), len(pinned))
        for symbol, op in pinned.items():
            self.assertIn(symbol, self.table.by_symbol, "a row was removed: its number would be free for reuse")
            self.assertEqual(self.table.by_symbol[symbol].op, op, "the number of %s changed" % symbol)
        for row in self.table.rows:
            self.assertIn(row.symbol, pinned, "append to op_numbers.txt: %d %s" % (row.op, row.symbol))

    def test_the_rows_that_cross_are_those_with_a_struct_in_the_wire_headers(self):
        folder = os.path.dirname(WIRE_ALL)
        headers = {name for name in os.listdir(folder) if name.endswith(".h") and name != "all.h"}
        included = {"common.h"} | set(re.findall(r'^#include "proto/wire/(\w+\.h)"', read(WIRE_ALL), re.MULTILINE))
        self.assertEqual(included, headers)
        text = "".join(read(os.path.join(folder, name)) for name in headers)
        structs = set(re.findall(r"^struct (cu[A-Z]\w*)\b", text, re.MULTILINE))
        arguments = {s for s in structs if not s.endswith("_Reply")}
        self.assertEqual({r.symbol for r in self.table.rows if r.crosses}, arguments)
        for reply in structs - arguments:
            self.assertIn(reply[:-len("_Reply")], arguments)

    def test_the_docs_page_is_up_to_date(self):
        self.assertTrue(read(DOCS) == read(GENERATED_DOCS), "run: bazel run //proto/driver_api:update_docs")


class AgainstTheImplementations(unittest.TestCase):

    def setUp(self):
        self.table = table_module.load(TABLE)

    def defined(self, folder, result):
        """The functions with this type of result that the sources of the folder define."""
        text = "\n".join(read(path) for path in SOURCES if folder in path)
        return set(re.findall(r"^%s (cu[A-Z]\w*)\([^;{]*\)\s*{" % result, text, re.MULTILINE))

    def compare(self, rows, functions, folder):
        self.assertEqual(rows - functions, set(), "the table says that they are supported, and %s lacks them" % folder)
        self.assertEqual(functions - rows, set(), "%s has them, and the table says that they are not" % folder)

    def test_every_supported_row_has_its_function_in_the_shim(self):
        rows = {r.symbol for r in self.table.rows if r.support != "none" and r.via is None}
        self.compare(rows, self.defined("client_shim/api/", "CUresult"), "client_shim/api")

    def test_every_row_that_crosses_has_its_handler_in_the_daemon(self):
        rows = {r.symbol for r in self.table.rows if r.crosses}
        self.compare(rows, self.defined("server/session/handlers/", "void"), "server/session/handlers")


GOOD = """\
family one 1-9 "One"

1 cuOne | cuOne 2000 | local full
  int *value : out
  CUstream hStream : in takes CUstream

2 cuOne_ptsz | cuOne 7000 ptsz | local full via=cuOne
  int *value : out
  CUstream hStream : in takes CUstream

family two 10-19 "Two"

10 cuTwo_v2 | cuTwo 3020 | none none
  size_t size : in
  void *data : out bytes(size)
  note: Not yet.
"""


class MalformedTables(unittest.TestCase):

    def refused(self, old, new, line, message):
        """GOOD with `old` replaced is refused at `line` with a message that has `message` in it."""
        self.assertIn(old, GOOD)
        with self.assertRaises(table_module.TableError) as caught:
            table_module.parse("t", GOOD.replace(old, new, 1))
        self.assertTrue(str(caught.exception).startswith("t:%d: " % line), str(caught.exception))
        self.assertIn(message, str(caught.exception))

    def test_the_example_is_well_formed(self):
        table = table_module.parse("t", GOOD)
        self.assertEqual([r.op for r in table.rows], [1, 2, 10])
        self.assertEqual(table.by_symbol["cuOne"].args[1].handles, [("takes", "CUstream")])

    def test_an_empty_table_is_refused(self):
        with self.assertRaises(table_module.TableError):
            table_module.parse("t", "")

    def test_families(self):
        self.refused("family one 1-9", "family one 1..9", 1, "a family line reads")
        self.refused("family one 1-9", "family one 0-9", 1, "op numbers lie between")
        self.refused("family one 1-9", "family one 1-70000", 1, "op numbers lie between")
        self.refused("family two 10-19", "family one 10-19", 11, "family one is there already, line 1")
        self.refused("family two 10-19", "family two 9-19", 11, "overlaps that of one, line 1")
        self.refused('family one 1-9 "One"\n', "\n", 3, "a row before the first family")

    def test_op_numbers(self):
        self.refused("2 cuOne_ptsz", "1 cuOne_ptsz", 7, "op 1 belongs to cuOne, line 3")
        self.refused("2 cuOne_ptsz", "10 cuOne_ptsz", 7, "op 10 is outside the range 1-9 of family one")

    def test_rows(self):
        self.refused("1 cuOne | cuOne 2000 |", "1 cuOne | cuOne |", 3, "a row reads")
        self.refused("2 cuOne_ptsz | cuOne 7000 ptsz", "2 cuOne | cuOne 7000", 7, "cuOne has a row already, line 3")
        self.refused("1 cuOne |", "1 one |", 3, "no name of an entry point")
        self.refused("| cuTwo 3020", "| cuToo 3020", 13, "knows cuTwo_v2 as cuTwo, not as cuToo")
        self.refused("7000 ptsz", "7000 ptds", 7, "the variant must be that of the symbol")
        self.refused("7000 ptsz", "7000", 7, "the variant must be that of the symbol")
        self.refused("cuTwo 3020", "cuTwo 3021", 13, "3021 is no CUDA version")
        self.refused("local full\n", "fast full\n", 3, "transport fast is not one of")
        self.refused("local full\n", "local most\n", 3, "support most is not one of")
        self.refused("local full\n", "local full quick\n", 3, "flag quick is not one of")
        self.refused("\n\n2 cuOne", "\n2 cuOne", 6, "a blank line is missing")

    def test_lookups_that_are_ambiguous(self):
        extra = "\n11 cuTwo | cuTwo 3020 | none none\n  note: Old.\n"
        with self.assertRaises(table_module.TableError) as caught:
            table_module.parse("t", GOOD + extra)
        self.assertIn("t:18: cuGetProcAddress cannot tell it from cuTwo_v2, line 13", str(caught.exception))

    def test_support(self):
        self.refused("none none", "local none", 13, "go together")
        self.refused("none none", "none full", 13, "go together")
        self.refused("  note: Not yet.\n", "", 13, "needs a note")
        self.refused("local full\n", "local partial\n", 3, "needs a note")
        self.refused("local full\n", "local full hidden\n", 3, "a hidden row cannot be supported")

    def test_via(self):
        self.refused("via=cuOne", "via=cuNone", 7, "no such row")
        self.refused("via=cuOne", "via=cuTwo_v2", 7, "has no implementation of its own")
        self.refused("via=cuOne", "via=cuOne_ptsz", 7, "has no implementation of its own")
        self.refused("local full via", "ring full via", 7, "a row with via= is of transport local")
        self.refused("local full via", "local full before_init via", 7, "before_init differs")
        self.refused("local full via", "local full in_host_function via", 7, "in_host_function differs")
        self.refused(" via=cuOne", "", 7, "a ptsz row is reached by via=")
        self.refused("  int *value : out\n", "  long *value : out\n", 7, "the arguments' types differ")

    def test_arguments(self):
        self.refused("  int *value : out", "  int *value", 4, "an argument reads")
        self.refused("  int *value : out", "  int (*value)(int) : out", 4, "cannot read the C declaration")
        self.refused("  int *value : out", "  int *hStream : out", 5, "two arguments are called hStream")
        self.refused("  int *value : out", "  int *value : back", 4, "the first annotation is one of")
        self.refused("  int *value : out", "  int value : out", 4, "by value can only be in")
        self.refused("  int *value : out", "  const int *value : out", 4, "a pointer to const can only be in")
        self.refused("  int *value : out", "  int *value : out maybe", 4, "unknown annotation maybe")
        self.refused("  int *value : out", "  int *value : out makes", 4, "makes is followed by a handle type")
        self.refused("in takes CUstream", "in makes CUstream", 5, "gives and makes belong to out")
        self.refused("bytes(size)", "bytes(length)", 13, "data: bytes(length) names no argument")
        self.refused("bytes(size)", "bytes(size) bytes(8)", 15, "bytes() twice")
        self.refused("  size_t size : in", "  size_t size : in stream(hStream)", 13, "belongs to a pointer")

    def test_notes_and_layout(self):
        self.refused("  note: Not yet.\n", "  note: Not yet.\n  note: Never.\n", 17, "at most one note")
        self.refused("  void *data : out bytes(size)\n  note: Not yet.\n",
                     "  note: Not yet.\n  void *data : out bytes(size)\n", 16, "arguments come before the note")
        self.refused("\n\n2 cuOne_ptsz", "\n\n  int x : in\n\n2 cuOne_ptsz", 7, "outside a row")
        self.refused("  int *value : out\n", "  int *value : out \n", 4, "white space")


class TheGenerator(unittest.TestCase):

    def run_generator(self, *args):
        return subprocess.run([sys.executable, "-B", os.path.join(os.path.dirname(TABLE), "generate.py")] + list(args),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    def test_it_exits_with_the_line_of_a_malformed_table_and_writes_nothing(self):
        folder = os.environ.get("TEST_TMPDIR", "/tmp")
        bad, output = os.path.join(folder, "bad.table"), os.path.join(folder, "ops.h")
        with open(bad, "w", encoding="utf-8") as file:
            file.write(GOOD.replace("2 cuOne_ptsz", "1 cuOne_ptsz"))
        done = self.run_generator(bad, "ops.h", output)
        self.assertEqual(done.returncode, 1)
        self.assertIn("bad.table:7: op 1 belongs to cuOne, line 3", done.stderr)
        self.assertFalse(os.path.exists(output))

    def test_it_names_the_kinds_of_output_that_it_knows(self):
        done = self.run_generator(TABLE, "poem", "/dev/null")
        self.assertEqual(done.returncode, 2)
        self.assertIn("shim_exports.cc", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
