// What was learned about operations, on disk: so that a daemon that was started anew knows how long
// the kernels of yesterday take.
//
//     header | records, 48 bytes each        everything little-endian
//
//     header:  magic "DSprof\0\0", version, count of records, hash of the device, hash of the rest
//     record:  key (16), blocks (4), age (4), five times (20, float), 4 zero bytes
//
// The device is named by what durations depend on: another model's profile counts as none.
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

// Of a model of device, not of one card.
uint64_t DurationsDevice(const DeviceProperties& properties);

// The file's bytes. Of more than kMaxOperations records the ones that were used last.
std::string EncodeProfile(uint64_t device, std::vector<OperationDurations::Record> records);
// InvalidArgument with the reason when the bytes are not a whole profile of this version and
// device.
absl::StatusOr<std::vector<OperationDurations::Record>> DecodeProfile(
    uint64_t device, absl::Span<const std::byte> bytes);

// Replaces the file as a whole: whoever reads it finds the old or the new one.
absl::Status WriteProfile(const std::string& path, uint64_t device, const DurationTable& table);
// Into a table that nobody has asked yet. NotFound without a file; InvalidArgument as above, the
// table is empty then. How many records were taken.
absl::StatusOr<size_t> ReadProfile(const std::string& path, uint64_t device, DurationTable& table);

}  // namespace detshare
