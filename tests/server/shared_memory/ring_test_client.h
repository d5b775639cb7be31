// A client's end of a session for tests, without the shim. It writes records from one thread, and
// may break the protocol as a test likes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "proto/driver_api/driver_api_ops.h"
#include "proto/ring_abi.h"
#include "server/base/futex.h"

namespace detshare {

// Waits for `done`, at most 20 s. So tests do not depend on the machine's speed, and they always
// end.
inline bool Eventually(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// A RecordHeader without its state, so that it can be copied.
struct RawHeader {
  uint32_t bytes = 0;
  uint16_t op = 0;
  uint16_t device = 0;
  ContextId context = 0;
  uint32_t reply_slot = kNoReply;
  uint16_t args_bytes = 0;
  uint16_t reserved = 0;
  uint32_t payload_bytes = 0;
  uint32_t reserved2 = 0;
};

class RingTestClient {
 public:
  explicit RingTestClient(SessionHeader* header)
      : header_(header), base_(reinterpret_cast<uint8_t*>(header)) {}

  SessionHeader& header() { return *header_; }
  ReplySlot& slot(uint32_t index) {
    return reinterpret_cast<ReplySlot*>(base_ + header_->reply_offset)[index];
  }
  Fence& fence(uint32_t index) {
    return reinterpret_cast<Fence*>(base_ + header_->fence_offset)[index];
  }
  uint8_t* staging() { return base_ + header_->staging_offset; }
  uint8_t* ring() { return base_ + header_->ring_offset; }
  uint8_t* line(uint64_t position) { return ring() + (position & (header_->ring_bytes - 1)); }
  uint64_t tail() const { return tail_; }

  // Tests change these before they submit.
  uint16_t device = 0;
  ContextId context = 1;

  // Submits raw bytes: any header, and the bytes behind it. Advances by `advance` bytes.
  void SubmitRaw(const RawHeader& record, std::span<const uint8_t> body, uint32_t advance) {
    uint8_t* const at = line(tail_);
    if (!body.empty()) std::memcpy(at + sizeof(RecordHeader), body.data(), body.size());
    auto* header = reinterpret_cast<RecordHeader*>(at);
    header->bytes = record.bytes;
    header->op = record.op;
    header->device = record.device;
    header->context = record.context;
    header->reply_slot = record.reply_slot;
    header->args_bytes = record.args_bytes;
    header->reserved = record.reserved;
    header->payload_bytes = record.payload_bytes;
    header->reserved2 = record.reserved2;
    tail_ += advance;
    header_->tail.store(tail_, std::memory_order_relaxed);
    header->state.store(kCommitted, std::memory_order_release);
    Wake();
  }

  void Submit(uint16_t op, const void* args, uint32_t args_bytes, std::span<const uint8_t> payload,
              uint32_t reply_slot) {
    const uint32_t room = (args_bytes + 7) / 8 * 8;
    const uint32_t bytes =
        (sizeof(RecordHeader) + room + static_cast<uint32_t>(payload.size()) + kRingLine - 1) /
        kRingLine * kRingLine;
    const uint64_t left = header_->ring_bytes - (tail_ & (header_->ring_bytes - 1));
    if (left < bytes) {
      RawHeader padding;
      padding.bytes = static_cast<uint32_t>(left);
      padding.op = kOpPadding;
      WaitForRoom(left);
      SubmitRaw(padding, {}, static_cast<uint32_t>(left));
    }
    WaitForRoom(bytes);
    std::vector<uint8_t> body(room + payload.size());
    if (args_bytes != 0) std::memcpy(body.data(), args, args_bytes);
    if (!payload.empty()) std::memcpy(body.data() + room, payload.data(), payload.size());
    RawHeader record;
    record.bytes = bytes;
    record.op = op;
    record.device = device;
    record.context = context;
    record.reply_slot = reply_slot;
    record.args_bytes = static_cast<uint16_t>(args_bytes);
    record.payload_bytes = static_cast<uint32_t>(payload.size());
    SubmitRaw(record, body, bytes);
  }

  template <typename Args>
  void Send(Op op, const Args& args, std::span<const uint8_t> payload = {}) {
    Submit(static_cast<uint16_t>(op), &args, sizeof(args), payload, kNoReply);
  }

  // Submits with reply slot `index` and waits for the reply. Returns -1 if none comes.
  template <typename Args>
  int Call(Op op, const Args& args, std::span<const uint8_t> payload = {}, uint32_t index = 0) {
    slot(index).state.store(kReplyPending, std::memory_order_relaxed);
    Submit(static_cast<uint16_t>(op), &args, sizeof(args), payload, index);
    return Await(index);
  }
  template <typename Reply, typename Args>
  int Call(Op op, const Args& args, Reply* reply) {
    const int result = Call(op, args);
    std::memcpy(reply, slot(0).data, sizeof(*reply));
    return result;
  }
  int Await(uint32_t index) {
    if (!Eventually(
            [&] { return slot(index).state.load(std::memory_order_acquire) == kReplyDone; }))
      return -1;
    return slot(index).result;
  }

  void Wake() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (header_->reader_asleep.exchange(0) == 1) FutexWake(&header_->reader_asleep);
  }

 private:
  void WaitForRoom(uint64_t bytes) {
    Eventually([&] {
      return tail_ + bytes - header_->head.load(std::memory_order_acquire) <= header_->ring_bytes;
    });
  }

  SessionHeader* const header_;
  uint8_t* const base_;
  uint64_t tail_ = 0;
};

}  // namespace detshare
