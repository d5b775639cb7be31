// Shell scripts in place of detsharectl and of Slurm's commands, in a directory of their own.
#pragma once

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tools/slurm/arguments.h"

namespace detshare::slurm {

class Scripts {
 public:
  Scripts() {
    char name[] = "/tmp/detshare-slurm.XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    directory_ = name;
  }
  ~Scripts() { std::filesystem::remove_all(directory_); }
  Scripts(const Scripts&) = delete;
  Scripts& operator=(const Scripts&) = delete;

  // Writes a program that runs the lines in the directory.
  void Write(const std::string& name, const std::string& lines) {
    Put(name, "#!/bin/sh\ncd " + directory_ + "\n" + lines + "\n");
    REQUIRE(chmod(Path(name).c_str(), 0755) == 0);
  }
  void Put(const std::string& name, const std::string& text) { std::ofstream(Path(name)) << text; }
  // Returns "" if there is no such file.
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  // Arguments of the plugin that lead to these scripts.
  Arguments arguments() const {
    return {Path("d.sock"), Path("lib"), Path("detsharectl"), Path("state"), directory_};
  }

 private:
  std::string directory_;
};

}  // namespace detshare::slurm
