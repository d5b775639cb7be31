// The reply to one operation, and its way to the client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ring_abi.h"

namespace detshare {

class Session;

// A reply is sent once: the first Send() counts. A handler that cannot reply yet moves the reply
// into a coroutine, which replies later. The destruction of an unsent reply sends
// CUDA_ERROR_UNKNOWN. When the client does not wait for the operation, an error becomes the
// session's error, and success sends nothing.
//
// Threading: the session's worker. The session must outlive the reply.
class Reply {
 public:
  // `result` is a CUresult. Called once, on the worker's thread; it may pass the result to any
  // thread.
  using CallDone = std::function<void(int result, std::string body)>;

  Reply() = default;
  // An operation of the ring; `slot` may be kNoReply.
  Reply(Session* session, uint16_t op, uint32_t slot) : session_(session), slot_(slot), op_(op) {}
  // A control call over gRPC.
  Reply(Session* session, uint16_t op, CallDone done)
      : session_(session), call_(std::make_unique<CallDone>(std::move(done))), op_(op) {}
  Reply(Reply&& other) noexcept
      : session_(std::exchange(other.session_, nullptr)),
        call_(std::move(other.call_)),
        slot_(other.slot_),
        op_(other.op_) {}
  Reply& operator=(Reply&&) = delete;
  ~Reply() {
    if (session_ != nullptr) SendDropped();
  }

  // Whether the client waits for the reply.
  bool wanted() const { return session_ != nullptr && (slot_ != kNoReply || call_ != nullptr); }
  // Whether the reply is neither sent nor moved away.
  bool pending() const { return session_ != nullptr; }

  void Send(const absl::Status& status) {
    // The fast path of every launch: no client waits, so nothing is sent.
    if (status.ok() && slot_ == kNoReply && call_ == nullptr) {
      session_ = nullptr;
      return;
    }
    SendBytes(status, {});
  }
  // A reply struct of wire.h.
  template <typename Body, typename = std::enable_if_t<std::is_trivially_copyable_v<Body>>>
  void Send(const Body& body) {
    SendBytes(absl::OkStatus(), {reinterpret_cast<const uint8_t*>(&body), sizeof(body)});
  }
  template <typename Body>
  void Send(const absl::StatusOr<Body>& body) {
    if (body.ok()) {
      Send(*body);
    } else {
      Send(body.status());
    }
  }
  // Sends `data` with errors as well.
  void SendBytes(const absl::Status& status, std::span<const uint8_t> data);

 private:
  void SendDropped();

  Session* session_ = nullptr;  // null: sent or moved away
  std::unique_ptr<CallDone> call_;
  uint32_t slot_ = kNoReply;
  uint16_t op_ = 0;
};

}  // namespace detshare
