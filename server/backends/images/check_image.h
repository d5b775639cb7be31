// Checks the sizes in images before NVIDIA's driver gets them. The driver trusts these sizes, but a
// client may have made them up. Text needs no check, except that it ends with a 0 byte.
//
// Only what every toolkit writes is checked: that containers, their parts and the tables of ELF files
// lie inside of the image. What else is wrong in an image, the driver finds.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "server/backends/images/device_code.h"

namespace detshare::images {

// Checks an image that is loaded on compute capability `device_sm` (90 for 9.0): an ELF file of CUDA
// code, fatbins or text. Of fatbins it checks the codes that the device can run. Visits these as
// ForEachDeviceCode() does. Returns false and sets *error if the image must not be loaded; some codes
// may have been visited by then.
bool CheckLoadedImage(std::span<const std::byte> image, int device_sm,
                      const std::function<void(const DeviceCode&)>& visit, std::string* error);

// Checks an input of the linker: in addition to the above, an object file of the host or a library of
// objects (an archive), both with fatbins inside. Of fatbins it checks all codes, because the options
// of the link name the device. Returns false and sets *error if the input must not be linked.
bool CheckLinkInput(std::span<const std::byte> image, std::string* error);

}  // namespace detshare::images
