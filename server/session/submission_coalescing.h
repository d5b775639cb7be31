// Submits many operations of a request together, so that others have the device until then.
//
// A program that launches hundreds of short kernels one by one takes longer to submit them than the
// device takes to run them. A session of the urgent time-slice group keeps the device all that time
// (gap_hold.h). Coalesced, the same operations need the device only for as long as they run:
//
//     client      r  r  r  r  r  r  r  r  r  r  wait
//     one by one  k  k  k  k  k  k  k  k  k  k         the device is kept from the first k to the last
//     coalesced               kkkkk          kkkkk     collects, submits, collects, submits
//
// The client waits only while the device runs the last collection. This delay is at most an eighth of the
// length of the usual request. If the tenant was promised a latency, the delay may also last until half
// of that latency is over. A collection ends early when somebody may wait for one of its records. It also
// ends when the client submits nothing for kSilence, which counts as delay.
//
// A request is learned as a *stretch*: the records up to one that is awaited, or until a silence. A
// stretch is not collected if that would give the others too little: it is short, or needs the device
// for most of its length.
//
// Threading: the session's worker. No call allocates, or calls the device.
#pragma once

#include <cstdint>

#include "policy/policy.h"

namespace detshare {

class SubmissionCoalescing {
 public:
  struct Look {
    policy::Nanoseconds now = 0;
    uint64_t seen = 0;     // the position in the ring behind the last committed record
    bool ready = false;    // there is a record to read
    bool awaited = false;  // somebody may wait for a record that is not read yet, or for room
    // Of all operations that the worker has submitted.
    uint64_t operations = 0;
    policy::Nanoseconds device_time = 0;
    policy::Nanoseconds promised = 0;  // the latency that the tenant was promised; 0: none
  };
  enum class Next {
    kRead,
    kCollect,  // leave the records in the ring for the moment
    kRelease,  // there is no record, and a collection has just been submitted: the device need not be kept
  };

  // Called before the worker reads records, while collections would be of use.
  Next NextStep(const Look& look);
  // Whether there is a stretch, so NoteAwaited() has an effect.
  bool in_stretch() const { return begin_ != 0; }
  // Since when the worker leaves records in the ring; 0: it does not.
  policy::Nanoseconds collects_since() const { return collects_since_; }
  // The worker has read a record for which somebody may wait.
  void NoteAwaited() { awaited_ = true; }
  // Collections are of no use at present. Forgets the present stretch only.
  void Stop() {
    if (begin_ != 0) [[unlikely]]
      EndStretch();
  }

  // Gaps between the launches of a program are shorter than this.
  static constexpr policy::Nanoseconds kSilence = 200 * policy::kMicrosecond;
  static constexpr policy::Nanoseconds kLongestCollection = 10 * policy::kMillisecond;
  // A collection gives the others at least this much time on the device. The switches of the hardware for it
  // cost them half of that.
  static constexpr policy::Nanoseconds kLeastGain = policy::kMillisecond / 2;
  // Shorter stretches that end with an awaited record are not learned. They are not delayed, because
  // that record ends their collection.
  static constexpr policy::Nanoseconds kTinyStretch = policy::kMillisecond / 2;
  // The time in which a worker submits one operation.
  static constexpr policy::Nanoseconds kSubmission = 4 * policy::kMicrosecond;

 private:
  void Learn(const Look& look);
  void EndStretch();
  // How long a collection may last; 0: no collections.
  policy::Nanoseconds Limit(policy::Nanoseconds promised) const;

  // ---- the present stretch
  policy::Nanoseconds begin_ = 0;        // when its first record was seen; 0: there is no stretch
  policy::Nanoseconds last_ = 0;         // when its last record was seen
  uint64_t seen_ = 0;                    // Look::seen at that time
  uint64_t operations_ = 0;              // Look::operations at its begin
  policy::Nanoseconds device_time_ = 0;  // likewise
  policy::Nanoseconds limit_ = 0;
  policy::Nanoseconds collects_since_ = 0;
  bool submits_ = false;  // a collection, until the ring is empty
  bool awaited_ = false;  // NoteAwaited()

  // ---- the usual stretch: moving averages
  bool learned_ = false;
  policy::Nanoseconds length_ = 0;
  policy::Nanoseconds needed_ = 0;   // how long it needs the device
  policy::Nanoseconds silence_ = 0;  // the silence that ends it; 0: a wait does
};

}  // namespace detshare
