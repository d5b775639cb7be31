// The learned durations of operations on disk, so that a restarted daemon knows how long kernels of
// earlier runs take.
//
//     header | records, 48 bytes each        everything little-endian
//
//     header:  magic "DSprof\0\0", version, count of records, hash of the device, hash of the rest
//     record:  key (16), blocks (4), age (4), five times (20, float), 4 zero bytes
//
// The header identifies the device by the properties on which durations depend. A profile of
// another model is rejected.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/durations.h"

namespace detshare {

// A hash that identifies a model of device, not one card.
uint64_t DurationsDevice(const DeviceProperties& properties);

// Returns the file's bytes. Of more than kMaxOperations records, keeps those that were used last.
std::string EncodeProfile(uint64_t device, std::vector<OperationDurations::Record> records);
// Returns InvalidArgument with the reason if the bytes are not a whole profile of this version and
// device.
absl::StatusOr<std::vector<OperationDurations::Record>> DecodeProfile(
    uint64_t device, absl::Span<const std::byte> bytes);

// Replaces the file atomically: a reader finds the old file or the new one.
absl::Status WriteProfile(const std::string& path, uint64_t device,
                          std::vector<OperationDurations::Record> records);
// Returns the file's records. NotFound without a file; InvalidArgument as above.
absl::StatusOr<std::vector<OperationDurations::Record>> ReadProfile(const std::string& path,
                                                                    uint64_t device);

}  // namespace detshare
