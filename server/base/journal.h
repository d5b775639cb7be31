// systemd's journal, by its native protocol: a datagram of fields an entry. Needs no library.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace detshare {

inline constexpr char kJournalSocket[] = "/run/systemd/journal/socket";

// Whether `fd` is the stream to the journal that $JOURNAL_STREAM ("device:inode") names. Nobody may
// have redirected it since.
bool IsJournalStream(int fd, const char* journal_stream);

// Any thread.
class Journal {
 public:
  // Null when the socket cannot be made.
  static std::unique_ptr<Journal> At(const std::string& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  using Fields = std::vector<std::pair<std::string_view, std::string_view>>;
  // One entry. Names are capital letters, digits and underscores; values may be anything. False
  // when the journal does not take it: it is gone, or will not take as much.
  bool Send(const Fields& fields) const;

 private:
  Journal(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  const int fd_;
  const std::string path_;
};

}  // namespace detshare
