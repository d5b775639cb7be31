// Calls the driver with random arguments and prints every result.
//
//   random_calls SEED [FAMILY...]
//   random_calls --families
//
// A line is FAMILY ROUND.STEP, the call with its arguments, its result and its outputs. The lines
// of a seed are the same in every run on a machine. compare_calls compares two runs.
#include "tests/gpu/sweep/sweep.h"

namespace sweep {

void BeginFamily(const char* name, std::uint64_t seed);

namespace {

struct Family {
  const char* name;
  void (*run)();
};

const Family kFamilies[] = {
    {"devices", Devices},
    {"contexts", Contexts},
    {"without_context", WithoutContext},
    {"memory", Memory},
    {"managed", Managed},
    {"pointers", Pointers},
    {"copies", Copies},
    {"copies_2d", Copies2D},
    {"copies_3d", Copies3D},
    {"copy_batches", CopyBatches},
    {"memsets", Memsets},
    {"arrays", Arrays},
    {"textures", Textures},
    {"streams", Streams},
    {"stream_memory", StreamMemory},
    {"events", Events},
    {"captures", Captures},
    {"functions", Functions},
    {"launches", Launches},
    {"launch_attributes", LaunchAttributes},
    {"old_launches", OldLaunches},
    {"occupancy", Occupancy},
    {"libraries", Libraries},
    {"linking", Linking},
    {"entries", Entries},
    {"errors", Errors},
    {"graphs", Graphs},
    {"graph_nodes", GraphNodes},
    {"graph_updates", GraphUpdates},
    {"graph_memory", GraphMemory},
    {"user_objects", UserObjects},
    {"pools", Pools},
    {"virtual_memory", VirtualMemory},
    {"sharing", Sharing},
    {"tensor_maps", TensorMaps},
    {"resources", Resources},
};

int Main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: random_calls SEED [FAMILY...], or random_calls --families\n");
    return 2;
  }
  if (std::strcmp(arguments[1], "--families") == 0) {
    for (const Family& family : kFamilies) std::printf("%s\n", family.name);
    return 0;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  const std::uint64_t seed = std::strtoull(arguments[1], nullptr, 10);
  BeginFamily("fixtures", seed);
  MakeFixtures();
  int run = 0;
  for (const Family& family : kFamilies) {
    bool wanted = count == 2;
    for (int i = 2; i < count; ++i) wanted |= std::strcmp(arguments[i], family.name) == 0;
    if (!wanted) continue;
    ++run;
    BeginFamily(family.name, seed);
    family.run();
    // Work that a family leaves behind must not fail in the next one.
    Note("end: " + ErrorName(cuCtxSynchronize()));
  }
  if (run < count - 2) std::fprintf(stderr, "random_calls: there is no such family\n");
  return run < count - 2 || run == 0 ? 2 : 0;
}

}  // namespace
}  // namespace sweep

int main(int count, char** arguments) { return sweep::Main(count, arguments); }
