// Marks the functions that libnvidia-ml.so.1 exports.
#pragma once

#define DETSHARE_EXPORT extern "C" __attribute__((visibility("default")))
