#include "tools/detsharectl/digest_log.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/content_hash.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

using Sequence = std::vector<const DigestRead*>;
using Sequences = std::map<std::string, Sequence>;

Sequences SequencesOf(const DigestProcess& process) {
  Sequences sequences;
  for (const DigestRead& read : process.reads) sequences[read.place].push_back(&read);
  return sequences;
}

// The contents of a process's sequences, sorted, without the sequences' names.
std::vector<std::string> ContentsOf(const DigestProcess& process) {
  std::vector<std::string> contents;
  for (const auto& [place, sequence] : SequencesOf(process)) {
    std::string content;
    for (const DigestRead* read : sequence)
      absl::StrAppend(&content, read->bytes, ":", read->digest, "\n");
    contents.push_back(std::move(content));
  }
  std::sort(contents.begin(), contents.end());
  return contents;
}

std::vector<std::pair<std::string, std::vector<std::string>>> ContentsOf(const DigestLog& log) {
  std::vector<std::pair<std::string, std::vector<std::string>>> contents;
  for (const DigestProcess& process : log)
    contents.emplace_back(process.program, ContentsOf(process));
  std::sort(contents.begin(), contents.end());
  return contents;
}

std::optional<Difference> FirstDifference(const DigestProcess& expected,
                                          const DigestProcess& seen) {
  if (ContentsOf(expected) == ContentsOf(seen)) return std::nullopt;
  const Sequences before = SequencesOf(expected), after = SequencesOf(seen);
  Difference difference;
  difference.program = expected.program;
  for (const DigestRead& read : expected.reads) {
    difference.read = read;
    const auto found = after.find(read.place);
    if (found == after.end() || found->second.size() <= read.number) {
      difference.kind = Difference::Kind::kMissing;
      return difference;
    }
    const DigestRead& other = *found->second[read.number];
    if (other.digest == read.digest && other.bytes == read.bytes) continue;
    difference.kind = Difference::Kind::kBytes;
    difference.seen = other;
    return difference;
  }
  for (const DigestRead& read : seen.reads) {
    const auto found = before.find(read.place);
    if (found != before.end() && read.number < found->second.size()) continue;
    difference.kind = Difference::Kind::kMore;
    difference.read = read;
    return difference;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<DigestLog> ParseDigestLog(std::string_view text) {
  DigestLog log;
  std::map<std::string, size_t, std::less<>> processes;  // by id: the latest process with this id
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    ++number;
    const std::vector<std::string> fields = absl::StrSplit(std::string(line), '\t');
    const auto wrong = [&] {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " is not a line of a digest log"));
    };
    if (fields[0] == "#process") {
      if (fields.size() != 3) return wrong();
      processes[fields[1]] = log.size();
      log.push_back({fields[2], {}});
      continue;
    }
    const auto process = processes.find(fields[0]);
    DigestRead read;
    if (fields.size() != 6 || process == processes.end() ||
        !absl::SimpleAtoi(fields[2], &read.number) || !absl::SimpleAtoi(fields[3], &read.bytes)) {
      return wrong();
    }
    read.place = fields[1];
    read.digest = fields[4];
    read.kernel = fields[5];
    log[process->second].reads.push_back(std::move(read));
  }
  // The shim writes sequences complete and in order.
  for (const DigestProcess& process : log) {
    for (const auto& [place, sequence] : SequencesOf(process)) {
      for (size_t i = 0; i < sequence.size(); ++i) {
        if (sequence[i]->number != i)
          return absl::InvalidArgumentError(absl::StrCat("a read of ", place, " is missing"));
      }
    }
  }
  return log;
}

uint64_t ReadsOf(const DigestLog& log) {
  uint64_t reads = 0;
  for (const DigestProcess& process : log) reads += process.reads.size();
  return reads;
}

uint64_t BytesOf(const DigestLog& log) {
  uint64_t bytes = 0;
  for (const DigestProcess& process : log) {
    for (const DigestRead& read : process.reads) bytes += read.bytes;
  }
  return bytes;
}

std::string DigestOf(const DigestLog& log) {
  std::string text;
  for (const auto& [program, contents] : ContentsOf(log)) {
    absl::StrAppend(&text, program, "\n");
    for (const std::string& content : contents)
      absl::StrAppend(&text, content.size(), "\n", content);
  }
  return ToHex(HashOf(std::as_bytes(std::span(text))));
}

std::optional<Difference> FirstDifference(const DigestLog& expected, const DigestLog& seen) {
  if (ContentsOf(expected) == ContentsOf(seen)) return std::nullopt;
  // Compares the nth process of a program with the nth process of the same program.
  std::map<std::string, std::vector<const DigestProcess*>> others;
  for (const DigestProcess& process : seen) others[process.program].push_back(&process);
  std::map<std::string, size_t> next;
  for (const DigestProcess& process : expected) {
    const std::vector<const DigestProcess*>& same = others[process.program];
    const size_t index = next[process.program]++;
    if (index >= same.size())
      return Difference{Difference::Kind::kProcesses, process.program, {}, {}};
    if (auto difference = FirstDifference(process, *same[index])) return difference;
  }
  return Difference{Difference::Kind::kProcesses, "", {}, {}};
}

std::string Demangle(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

std::string Describe(const Difference& difference) {
  if (difference.kind == Difference::Kind::kProcesses) {
    return "the number of processes that use a GPU differs" +
           (difference.program.empty() ? "" : " (" + difference.program + ")");
  }
  const DigestRead& read = difference.read;
  const bool graph = !read.place.empty() && read.place[0] == 'g';
  std::string text =
      absl::StrCat("read ", read.number + 1, " of ", graph ? "graph node " : "stream ",
                   read.place.empty() ? "" : read.place.substr(1), ", ",
                   text::Counted(read.bytes, "byte"), ", ");
  absl::StrAppend(&text, read.kernel.empty() ? "before any kernel"
                                             : "after the kernel " + Demangle(read.kernel));
  switch (difference.kind) {
    case Difference::Kind::kMissing:
      return text + ": did not happen";
    case Difference::Kind::kMore:
      return text + ": happened only beside neighbours";
    default:
      break;
  }
  if (difference.seen.bytes != read.bytes)
    absl::StrAppend(&text, ": read ", text::Counted(difference.seen.bytes, "byte"));
  if (difference.seen.kernel != read.kernel)
    absl::StrAppend(&text, "; the kernel before it was ", Demangle(difference.seen.kernel));
  return text;
}

}  // namespace detshare::ctl
