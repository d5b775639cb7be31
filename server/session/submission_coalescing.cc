#include "server/session/submission_coalescing.h"

#include <algorithm>
#include <utility>

namespace detshare {
namespace {

using policy::Nanoseconds;

// The averages move by this part of the way towards a new value.
constexpr Nanoseconds kPart = 8;

}  // namespace

SubmissionCoalescing::Next SubmissionCoalescing::NextStep(const Look& look) {
  bool released = false;
  if (!look.ready) {
    released = std::exchange(submits_, false);
    collects_since_ = 0;
  }
  const bool unread = collects_since_ != 0 || submits_;
  const bool silent = look.now - last_ >= kSilence;
  if (begin_ != 0 && !unread && (silent || (awaited_ && !look.ready))) {
    Learn(look);
    EndStretch();
  }
  const bool news = seen_ != look.seen;
  seen_ = look.seen;
  if (news || begin_ == 0) last_ = look.now;
  if (!look.ready) return released ? Next::kRelease : Next::kRead;
  if (begin_ == 0) {
    begin_ = look.now;
    awaited_ = false;
    operations_ = look.operations;
    device_time_ = look.device_time;
    limit_ = Limit(look.promised);
  }
  if (limit_ == 0 || submits_) return Next::kRead;
  if (collects_since_ == 0) collects_since_ = look.now;
  const bool full = look.now - collects_since_ >= limit_;
  if (!look.awaited && !full && look.now - last_ < kSilence) return Next::kCollect;
  collects_since_ = 0;
  submits_ = true;
  return Next::kRead;
}

void SubmissionCoalescing::Learn(const Look& look) {
  const Nanoseconds length = last_ - begin_;
  if (awaited_ && length < kTinyStretch) return;
  const auto operations = static_cast<Nanoseconds>(look.operations - operations_);
  const Nanoseconds part = std::exchange(learned_, true) ? kPart : 1;
  const auto follow = [part](Nanoseconds& average, Nanoseconds value) {
    average += (value - average) / part;
  };
  follow(length_, length);
  follow(needed_, std::max(look.device_time - device_time_, operations * kSubmission));
  follow(silence_, awaited_ ? 0 : kSilence);
}

void SubmissionCoalescing::EndStretch() {
  begin_ = 0;
  collects_since_ = 0;
  submits_ = false;
  awaited_ = false;
}

Nanoseconds SubmissionCoalescing::Limit(Nanoseconds promised) const {
  if (!learned_ || length_ <= needed_) return 0;
  const Nanoseconds delay = std::max(length_ / 8, promised / 2 - length_) - silence_;
  if (delay <= 0) return 0;
  const double density = static_cast<double>(needed_) / static_cast<double>(length_);
  const Nanoseconds longest = std::min(length_, kLongestCollection);
  const Nanoseconds limit =
      delay >= needed_
          ? longest
          : std::min(longest, static_cast<Nanoseconds>(static_cast<double>(delay) / density));
  return static_cast<double>(limit) * (1 - density) >= kLeastGain ? limit : 0;
}

}  // namespace detshare
