// `detshare run --digest` with a program on the software GPU.
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/detshare-digest-XXXXXX";
    REQUIRE(mkdtemp(path) != nullptr);
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string At(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream text(line);
  for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
  return fields;
}

// Runs the program with these options of the launcher. Returns what it printed on stderr.
std::string Run(const std::string& options, const std::string& arguments) {
  const Folder folder;
  setenv("DETSHARE_DAEMON", std::filesystem::absolute(getenv("DAEMON")).c_str(), 1);
  setenv("DETSHARE_LIB_DIR", std::filesystem::absolute(getenv("SHIM")).parent_path().c_str(), 1);
  const std::string command = std::string(getenv("LAUNCHER")) + " run --standalone=soft " +
                              options + " -- " + getenv("PROGRAM") + " " + arguments + " >" +
                              folder.At("out") + " 2>" + folder.At("err");
  INFO(command);
  const int code = std::system(command.c_str());
  std::string err;
  for (const std::string& line : Lines(folder.At("err"))) err += line + "\n";
  INFO(err);
  REQUIRE(code == 0);
  return err;
}

std::string DigestOf(const std::string& arguments) {
  const Folder folder;
  Run("--digest=" + folder.At("digest"), arguments);
  const std::vector<std::string> lines = Lines(folder.At("digest"));
  REQUIRE(lines.size() == 1);
  return lines[0];
}

TEST_CASE("Runs of one program have the same digest, at whatever speed its calls come") {
  const std::string digest = DigestOf("0");
  const std::vector<std::string> fields = Fields(digest);
  REQUIRE(fields.size() == 5);
  CHECK(fields[0].size() == 64);
  CHECK(std::stoi(fields[1]) == 4 + 2 * 2 + 1 + 1 + 3 * 2 + 1);
  CHECK(fields[4] == "digest_program");
  CHECK(DigestOf("0") == digest);
  CHECK(DigestOf("0 pause") == digest);
}

TEST_CASE("A single value that differs shows, however it is read") {
  const std::string digest = DigestOf("0");
  for (int way = 1; way <= 9; ++way) {
    INFO("way " << way);
    CHECK(DigestOf(std::to_string(way)) != digest);
  }
}

TEST_CASE("The log names the read that differs and the kernel before it") {
  const Folder folder;
  Run("--digest-log " + folder.At("a"), "0");
  Run("--digest-log " + folder.At("b"), "3");
  const std::vector<std::string> a = Lines(folder.At("a")), b = Lines(folder.At("b"));
  REQUIRE(a.size() == b.size());
  int different = 0;
  for (size_t i = 1; i < a.size(); ++i) {
    const std::vector<std::string> before = Fields(a[i]), after = Fields(b[i]);
    REQUIRE(before.size() == 6);
    REQUIRE(after.size() == 6);
    if (before[4] == after[4]) continue;
    ++different;
    CHECK(before[5].find("Fill") != std::string::npos);
    CHECK(after[5].find("Differ") != std::string::npos);
  }
  CHECK(different == 1);
}

TEST_CASE("Without a file the digest is on stderr, and without the option there is none") {
  CHECK(Run("--digest", "0").find("detshare: digest ") != std::string::npos);
  CHECK(Run("", "0").find("digest") == std::string::npos);
}

}  // namespace
