"""Makes C++ of files: embed.py FILE... > dashboard_files.cc"""

import os
import sys

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

print('#include "server/web/dashboard_files.h"\n\nnamespace detshare {\nnamespace {\n')
files = sorted(sys.argv[1:])
for number, path in enumerate(files):
    with open(path, "rb") as file:
        content = file.read()
    print(f"constexpr unsigned char kContent{number}[] = {{")
    for i in range(0, len(content), 32):
        print("    " + "".join(f"{byte}," for byte in content[i : i + 32]))
    print("};\n")
print("std::string_view View(const unsigned char* bytes, size_t size) {\n"
      "  return {reinterpret_cast<const char*>(bytes), size};\n}\n\n}  // namespace\n")
print("std::span<const DashboardFile> DashboardFiles() {\n  static const DashboardFile files[] = {")
for number, path in enumerate(files):
    name = os.path.basename(path)
    url = "/" if name == "index.html" else "/" + name
    print(f'      {{"{url}", "{TYPES[os.path.splitext(name)[1]]}", View(kContent{number}, sizeof(kContent{number}))}},')
print("  };\n  return files;\n}\n\n}  // namespace detshare")
