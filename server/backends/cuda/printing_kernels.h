// Finds the kernels of an image that can print. Launches of these are costly (print_capture.h), so
// the result should be exact. If an image cannot be understood, all of its kernels count as
// printing.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "server/backends/images/device_code.h"

namespace detshare::cuda {

class PrintingKernels {
 public:
  static PrintingKernels None() { return PrintingKernels(false, {}); }
  static PrintingKernels All() { return PrintingKernels(true, {}); }
  static PrintingKernels These(std::set<std::string, std::less<>> names) {
    return PrintingKernels(false, std::move(names));
  }

  bool Contains(std::string_view kernel) const { return all_ || names_.contains(kernel); }
  bool empty() const { return !all_ && names_.empty(); }

 private:
  PrintingKernels(bool all, std::set<std::string, std::less<>> names)
      : all_(all), names_(std::move(names)) {}

  bool all_;
  std::set<std::string, std::less<>> names_;
};

// Collects the printing kernels from the codes of one image.
class PrintingScan {
 public:
  void Add(const images::DeviceCode& code);
  PrintingKernels kernels() const { return found_.value_or(PrintingKernels::None()); }

 private:
  std::optional<PrintingKernels> found_;
};

// `image` is as in Device::LoadLibrary, for a GPU of compute capability `device_sm` (90 for 9.0).
// The image may be hostile.
PrintingKernels FindPrintingKernels(std::span<const std::byte> image, int device_sm);

// Do the same for one machine-code image and for one PTX text.
PrintingKernels FindPrintingKernelsInElf(std::string_view elf);
PrintingKernels FindPrintingKernelsInPtx(std::string_view ptx);

}  // namespace detshare::cuda
