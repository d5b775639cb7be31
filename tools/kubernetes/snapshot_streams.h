// The streams of a gRPC call that sends a whole list at once and again after every change, until the
// caller ends it. They need no thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <set>
#include <utility>

#include "proto/mutex.h"

namespace detshare::kubernetes {

// `List` is the message of the stream. Before the first Send() it is empty. Any thread may call it. It
// outlives the server.
template <typename List>
class SnapshotStreams {
 public:
  // A new call, which gets the current list.
  grpc::ServerWriteReactor<List>* Open() { return new Stream(*this); }

  void Send(List list) {
    const MutexLock lock(&mutex_);
    list_ = std::move(list);
    for (Stream* stream : streams_) stream->Notify();
  }

 private:
  // It deletes itself when gRPC has finished the call.
  class Stream final : public grpc::ServerWriteReactor<List> {
   public:
    explicit Stream(SnapshotStreams& all) : all_(all) {
      const MutexLock lock(&all_.mutex_);
      all_.streams_.insert(this);
      Notify();
    }

    // Sends the current list, after the write in progress. The caller holds the mutex, but clang
    // cannot see that the mutex is that of the stream's owner.
    void Notify() {
      all_.mutex_.AssertHeld();
      if (finished_) return;
      news_ = writing_;
      if (writing_) return;
      sent_ = all_.list_;
      writing_ = true;
      this->StartWrite(&sent_);
    }

    void OnWriteDone(bool ok) override {
      const MutexLock lock(&all_.mutex_);
      writing_ = false;
      if (!ok) {
        End();
      } else if (news_) {
        Notify();
      }
    }
    void OnCancel() override {
      const MutexLock lock(&all_.mutex_);
      End();
    }
    void OnDone() override {
      {
        const MutexLock lock(&all_.mutex_);
        all_.streams_.erase(this);
      }
      delete this;
    }

   private:
    void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(all_.mutex_) {
      if (finished_) return;
      finished_ = true;
      this->Finish(grpc::Status::OK);
    }

    SnapshotStreams& all_;
    bool writing_ ABSL_GUARDED_BY(all_.mutex_) = false;
    bool finished_ ABSL_GUARDED_BY(all_.mutex_) = false;
    // The list has changed since the write in progress began.
    bool news_ ABSL_GUARDED_BY(all_.mutex_) = false;
    List sent_ ABSL_GUARDED_BY(all_.mutex_);
  };

  Mutex mutex_;
  List list_ ABSL_GUARDED_BY(mutex_);
  std::set<Stream*> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::kubernetes
