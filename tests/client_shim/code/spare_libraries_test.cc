#include "client_shim/code/spare_libraries.h"

#include <catch2/catch.hpp>
#include <string>

namespace detshare::shim {
namespace {

SpareLibrary Spare(LibraryId id, const std::string& image, ContextId context = 1,
                   uint16_t device = 0, std::vector<wire::JitOption> options = {}) {
  SpareLibrary library;
  library.id = id;
  library.image = image;
  library.context = context;
  library.device = device;
  library.options = std::move(options);
  return library;
}

TEST_CASE("A spare library is taken once, and only for the same image, options and place") {
  SpareLibraries spares;
  REQUIRE_FALSE(spares.Keep(Spare(5, "code", 1, 2, {{3, 4}})).has_value());
  CHECK_FALSE(spares.Take(2, 1, {{3, 4}}, "other").has_value());
  CHECK_FALSE(spares.Take(0, 1, {{3, 4}}, "code").has_value());
  CHECK_FALSE(spares.Take(2, 9, {{3, 4}}, "code").has_value());
  CHECK_FALSE(spares.Take(2, 1, {}, "code").has_value());
  CHECK_FALSE(spares.Take(2, 1, {{3, 5}}, "code").has_value());
  const std::optional<SpareLibrary> taken = spares.Take(2, 1, {{3, 4}}, "code");
  REQUIRE(taken.has_value());
  CHECK(taken->id == 5);
  CHECK_FALSE(spares.Take(2, 1, {{3, 4}}, "code").has_value());
}

TEST_CASE("Two spare libraries of one image are two libraries") {
  SpareLibraries spares;
  spares.Keep(Spare(1, "code"));
  spares.Keep(Spare(2, "code"));
  const std::optional<SpareLibrary> first = spares.Take(0, 1, {}, "code");
  const std::optional<SpareLibrary> second = spares.Take(0, 1, {}, "code");
  REQUIRE((first.has_value() && second.has_value()));
  CHECK(first->id != second->id);
}

TEST_CASE("A full table gives up the library that was not used for the longest time") {
  SpareLibraries spares;
  const auto image = [](size_t i) { return "code " + std::to_string(i); };
  for (size_t i = 0; i < SpareLibraries::kMaxLibraries; ++i)
    REQUIRE_FALSE(spares.Keep(Spare(static_cast<LibraryId>(i + 1), image(i))).has_value());
  REQUIRE_FALSE(spares.Keep(*spares.Take(0, 1, {}, image(0))).has_value());
  const std::optional<SpareLibrary> oldest = spares.Keep(Spare(1000, "new"));
  REQUIRE(oldest.has_value());
  CHECK(oldest->image == image(1));
}

TEST_CASE("The libraries of a context that ends leave the table") {
  SpareLibraries spares;
  spares.Keep(Spare(1, "a", 7));
  spares.Keep(Spare(2, "b", 8));
  spares.Keep(Spare(3, "c", 7));
  const auto over = [](const SpareLibrary& spare) { return spare.context == 7; };
  CHECK(spares.TakeAll(over).size() == 2);
  CHECK(spares.TakeAll(over).empty());
  CHECK(spares.Take(0, 8, {}, "b").has_value());
}

}  // namespace
}  // namespace detshare::shim
