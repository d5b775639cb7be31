# Compiles a source, and lists the headers that it did not read, so that Bazel does not compile it again when they change.
#
#   bash quick_compile.sh LIST HEADERS OBJECT COMPILER ARGUMENT...
#
# LIST is the file for this list. The file HEADERS has all headers, one in a line.
set -e
unread=$1 headers=$2 object=$3
shift 3
"$@" -MD -MF "$object.d" -o "$object"
tr -s ' \\' '\n' <"$object.d" | sed 's,^[.]/,,' | sort -u >"$object.read"
sort -u "$headers" | comm -23 - "$object.read" >"$unread"
