// Calls the driver with random arguments and prints every result.
//
//   random_calls SEED [--in-host-functions] [--rounds FIRST LAST] [FAMILY...]
//   random_calls --families
//
// With --in-host-functions, half of the calls are made in host functions, and their lines say so.
// Exits with 3 if the context is lost, after the lines of the round that lost it.
//
// A line is FAMILY ROUND.STEP, the call with its arguments, its result and its outputs. The lines
// of a seed are the same in every run on a machine. compare_calls compares two runs.
#include "tests/gpu/sweep/sweep.h"

namespace sweep {

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
    std::fprintf(stderr,
                 "usage: random_calls SEED [--in-host-functions] [--rounds FIRST LAST] "
                 "[FAMILY...], or random_calls --families\n");
    return 2;
  }
  if (std::strcmp(arguments[1], "--families") == 0) {
    for (const Family& family : kFamilies) std::printf("%s\n", family.name);
    return 0;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  const std::uint64_t seed = std::strtoull(arguments[1], nullptr, 10);
  RoundRange rounds;
  int first_name = 2;
  const bool in_host_functions =
      count > first_name && std::strcmp(arguments[first_name], "--in-host-functions") == 0;
  if (in_host_functions) ++first_name;
  if (count > first_name + 2 && std::strcmp(arguments[first_name], "--rounds") == 0) {
    rounds = {std::atoi(arguments[first_name + 1]), std::atoi(arguments[first_name + 2])};
    first_name += 3;
  }
  BeginFamily("fixtures", seed, {});
  MakeFixtures();
  if (in_host_functions) UseHostFunctions();
  int run = 0;
  for (const Family& family : kFamilies) {
    bool wanted = count == first_name;
    for (int i = first_name; i < count; ++i) wanted |= std::strcmp(arguments[i], family.name) == 0;
    if (!wanted) continue;
    ++run;
    BeginFamily(family.name, seed, rounds);
    family.run();
  }
  const bool all = run > 0 && run >= count - first_name;
  if (!all) std::fprintf(stderr, "random_calls: there is no such family\n");
  return all ? 0 : 2;
}

}  // namespace
}  // namespace sweep

int main(int count, char** arguments) { return sweep::Main(count, arguments); }
