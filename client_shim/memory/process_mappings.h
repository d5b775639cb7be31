// What the kernel says about the mappings of this process (proc_pid_maps(5)).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace detshare::shim {

struct ProcessMapping {
  uint64_t begin = 0, end = 0;
  int protection = 0;   // PROT_READ and so on
  bool shared = false;  // with other processes, or with later children
  uint64_t offset = 0;  // of `begin` in the file
  uint64_t device = 0, inode = 0;
  std::string path;  // of a shared mapping; " (deleted)" follows if it is gone
};

// Threading: one thread.
class ProcessMappings {
 public:
  // kText: reads /proc/self/maps also if the kernel finds single mappings, which it does since Linux
  // 6.11. The text has a line for each mapping, so a search takes long in a process with many.
  enum class Way { kFastest, kText };
  explicit ProcessMappings(Way way = Way::kFastest);

  // Whether the kernel can be asked.
  bool ok() const { return maps_ != nullptr; }
  // Finds the first mapping that ends after `address`. Addresses must not become smaller from call to
  // call. Returns false if there is none.
  bool Find(uint64_t address, ProcessMapping* found);

 private:
  bool FindByQuery(uint64_t address, ProcessMapping* found);
  bool FindInText(uint64_t address, ProcessMapping* found);

  const std::unique_ptr<FILE, int (*)(FILE*)> maps_;
  bool query_ = false;
  ProcessMapping last_;  // of the text
};

}  // namespace detshare::shim
