// Writes to systemd's journal by its native protocol: one datagram of fields for each entry. Needs
// no library.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace detshare {

inline constexpr char kJournalSocket[] = "/run/systemd/journal/socket";

// Returns whether `fd` is the stream to the journal that $JOURNAL_STREAM ("device:inode") names. A
// program may have redirected the descriptor since systemd set the variable.
bool IsJournalStream(int fd, const char* journal_stream);

// A connectionless sender of entries. Any thread may call it.
class Journal {
 public:
  // Returns null if the socket cannot be made.
  static std::unique_ptr<Journal> At(const std::string& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  using Fields = std::vector<std::pair<std::string_view, std::string_view>>;
  // Sends one entry. Names consist of capital letters, digits and underscores; values are arbitrary
  // bytes. Returns false if the journal does not take the entry: it is gone, behind, or the entry
  // is too large.
  bool Send(const Fields& fields) const;

 private:
  Journal(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  const int fd_;
  const std::string path_;
};

}  // namespace detshare
