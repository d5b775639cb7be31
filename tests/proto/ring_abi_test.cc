#include "proto/ring_abi.h"

#include <catch2/catch.hpp>
#include <type_traits>

// If a number changes here, two processes of different builds disagree about the same memory. Then
// raise kAbiVersion, and the version below.

namespace detshare {
namespace {

TEST_CASE("The ABI version is the one that these offsets belong to") { REQUIRE(kAbiVersion == 8); }

TEST_CASE("The session header keeps its layout") {
  CHECK(std::is_standard_layout_v<SessionHeader>);
  CHECK(sizeof(SessionHeader) == 512);
  CHECK(offsetof(SessionHeader, magic) == 0);
  CHECK(offsetof(SessionHeader, abi_version) == 8);
  CHECK(offsetof(SessionHeader, header_bytes) == 12);
  CHECK(offsetof(SessionHeader, file_bytes) == 16);
  CHECK(offsetof(SessionHeader, ring_offset) == 24);
  CHECK(offsetof(SessionHeader, ring_bytes) == 32);
  CHECK(offsetof(SessionHeader, reply_offset) == 40);
  CHECK(offsetof(SessionHeader, output_offset) == 48);
  CHECK(offsetof(SessionHeader, output_bytes) == 56);
  CHECK(offsetof(SessionHeader, fence_offset) == 64);
  CHECK(offsetof(SessionHeader, staging_offset) == 72);
  CHECK(offsetof(SessionHeader, staging_bytes) == 80);
  CHECK(offsetof(SessionHeader, reply_count) == 88);
  CHECK(offsetof(SessionHeader, fence_count) == 92);
  CHECK(offsetof(SessionHeader, tail) == 128);
  CHECK(offsetof(SessionHeader, head) == 192);
  CHECK(offsetof(SessionHeader, reader_asleep) == 256);
  CHECK(offsetof(SessionHeader, sticky_error) == 320);
  CHECK(offsetof(SessionHeader, closed) == 324);
  CHECK(offsetof(SessionHeader, awaited) == 328);
  CHECK(offsetof(SessionHeader, client_cpu) == 332);
  CHECK(offsetof(SessionHeader, output_tail) == 384);
  CHECK(offsetof(SessionHeader, output_head) == 448);
  CHECK(offsetof(SessionHeader, output_pending) == 456);
}

TEST_CASE("The record header keeps its layout") {
  CHECK(std::is_standard_layout_v<RecordHeader>);
  CHECK(sizeof(RecordHeader) == 32);
  CHECK(offsetof(RecordHeader, state) == 0);
  CHECK(offsetof(RecordHeader, bytes) == 4);
  CHECK(offsetof(RecordHeader, op) == 8);
  CHECK(offsetof(RecordHeader, device) == 10);
  CHECK(offsetof(RecordHeader, context) == 12);
  CHECK(offsetof(RecordHeader, reply_slot) == 16);
  CHECK(offsetof(RecordHeader, args_bytes) == 20);
  CHECK(offsetof(RecordHeader, reserved) == 22);
  CHECK(offsetof(RecordHeader, payload_bytes) == 24);
  CHECK(offsetof(RecordHeader, reserved2) == 28);
}

TEST_CASE("A reply slot keeps its layout") {
  CHECK(std::is_standard_layout_v<ReplySlot>);
  CHECK(sizeof(ReplySlot) == 512);
  CHECK(alignof(ReplySlot) == 64);
  CHECK(offsetof(ReplySlot, state) == 0);
  CHECK(offsetof(ReplySlot, waiting) == 4);
  CHECK(offsetof(ReplySlot, result) == 8);
  CHECK(offsetof(ReplySlot, bytes) == 12);
  CHECK(offsetof(ReplySlot, data) == 64);
}

TEST_CASE("The constants of the ring keep their values") {
  CHECK(kSessionMagic == 0x3145524148535444);
  CHECK(kCommitted == 0x54494D43);
  CHECK(kOpPadding == 0);
  CHECK(kPageBytes == 4096);
  CHECK(kRingLine == 64);
  CHECK(kMaxRecordBytes == 65536);
  CHECK(kMaxPayloadBytes == 64512);
  CHECK(kReplyDataBytes == 448);
  CHECK(kNoReply == 0xFFFFFFFF);
  CHECK(kNoFence == 0xFFFFFFFF);
  CHECK(kInlineCopyBytes == 4096);
  CHECK(kReplyIdle == 0);
  CHECK(kReplyPending == 1);
  CHECK(kReplyDone == 2);
}

}  // namespace
}  // namespace detshare
