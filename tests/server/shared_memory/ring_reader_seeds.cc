#include <cstring>
#include <string>

#include "proto/driver_api/driver_api_ops.h"
#include "proto/ring_abi.h"
#include "tests/fuzzing/write_seeds.h"
#include "tests/server/shared_memory/ring_memory.h"

namespace detshare {
namespace {

std::string Churn(uint32_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A record as a client lays it into the ring, with `room` bytes behind its payload.
std::string Record(uint16_t op, const std::string& args, const std::string& payload,
                   uint32_t reply_slot = kNoReply, uint32_t room = 0) {
  std::string body = args;
  body.resize((args.size() + 7) / 8 * 8);
  body += payload;
  const auto bytes = static_cast<uint32_t>(
      (sizeof(RecordHeader) + body.size() + room + kRingLine - 1) / kRingLine * kRingLine);
  RawHeader header;
  header.bytes = bytes;
  header.op = op;
  header.reply_slot = reply_slot;
  header.args_bytes = static_cast<uint16_t>(args.size());
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  std::string record(bytes, '\0');
  std::memcpy(record.data(), &kCommitted, sizeof(kCommitted));
  std::memcpy(record.data() + sizeof(kCommitted), &header, sizeof(header));
  std::memcpy(record.data() + sizeof(RecordHeader), body.data(), body.size());
  return record;
}

std::string Padding(uint32_t lines) {
  std::string record = Record(kOpPadding, "", "");
  record.resize(lines * kRingLine);
  const uint32_t bytes = lines * kRingLine;
  std::memcpy(record.data() + sizeof(kCommitted), &bytes, sizeof(bytes));
  return record;
}

std::string Mixed() {
  const auto op = static_cast<uint16_t>(Op::cuMemcpyAsync);
  return Record(op, std::string(40, 'a'), std::string(100, 'p'), 3) + Record(op, "", "") +
         Padding(2) + Record(op, std::string(7, 'b'), std::string(300, 'q'), kNoReply, 500) +
         Record(op, std::string(200, 'c'), "", RingMemory::kReplies - 1);
}

// As many as the ring takes, the last one as large as a record can be.
std::string Full() {
  std::string ring;
  while (ring.size() + kRingLine <= kMaxRecordBytes)
    ring += Record(1, std::string(16, 'x'), std::string(8, 'y'));
  return ring + Record(2, std::string(900, 'z'), std::string(kMaxPayloadBytes, 'w'));
}

}  // namespace
}  // namespace detshare

int main(int argc, char** argv) {
  using namespace detshare;  // NOLINT
  return fuzzing::WriteSeeds(argc, argv,
                             {{"changing", Churn(12345) + Mixed()},
                              {"full", Churn(0) + Full()},
                              {"mixed", Churn(0) + Mixed()},
                              {"one", Churn(0) + Record(7, "arguments", "payload", 0)}});
}
