#include "server/session/image_store.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

namespace detshare {
namespace {

constexpr uint64_t kSize = 100'000;

StoredImage ImageOf(const std::string& text, uint64_t bytes = kSize) {
  std::string memory = text;
  memory.resize(bytes, '.');
  memory += "what follows the image";
  return {std::make_shared<const std::string>(memory), bytes};
}

ContentHash Hash(const StoredImage& image) { return HashOf(image.span()); }
ContentHash Sketch(const StoredImage& image) {
  const auto span = image.span();
  return SketchOf({&span, 1});
}

TEST_CASE("The hash of bytes is their SHA-256, however they are cut") {
  const std::string text = "abc";
  CHECK(ToHex(HashOf(std::as_bytes(std::span(text)))) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  CHECK(ContentHasher().Add(bytes.first(1)).Add({}).Add(bytes.subspan(1)).Finish() ==
        HashOf(bytes));
}

TEST_CASE("The sketch of bytes does not depend on how they are cut") {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text.push_back(static_cast<char>(i * 7 + i / 256));
  const std::span<const std::byte> whole = std::as_bytes(std::span(text));
  const ContentHash expected = SketchOf({&whole, 1});
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, size_t{10'000},
                           size_t{15'904}, size_t{19'999}}) {
    const std::vector<std::span<const std::byte>> pieces = {whole.first(cut), whole.subspan(cut)};
    CHECK(SketchOf(pieces) == expected);
  }
  const auto shorter = whole.first(whole.size() - 1), later = whole.subspan(1);
  CHECK(SketchOf({&shorter, 1}) != expected);
  CHECK(SketchOf({&later, 1}) != expected);
  const auto small = whole.first(100);
  CHECK(SketchOf({&small, 1}) != expected);
}

TEST_CASE("Only the user that sent an image finds it") {
  ImageStore store(1 << 20);
  const StoredImage image = ImageOf("code");
  CHECK_FALSE(store.Find(1000, Hash(image)).has_value());
  store.AddSoon(1000, image);
  store.Settle();
  const auto found = store.Find(1000, Hash(image));
  REQUIRE(found.has_value());
  CHECK(found->memory == image.memory);
  CHECK(found->bytes == kSize);
  CHECK(store.MayHave(1000, Sketch(image)));
  CHECK_FALSE(store.Find(1001, Hash(image)).has_value());
  CHECK_FALSE(store.MayHave(1001, Sketch(image)));
  ContentHash other = Hash(image);
  other[31] ^= 1;
  CHECK_FALSE(store.Find(1000, other).has_value());
}

TEST_CASE("Equal images are kept once for each user") {
  ImageStore store(1 << 20);
  for (int i = 0; i < 3; ++i) store.AddSoon(1, ImageOf("code"));
  store.AddSoon(2, ImageOf("code"));
  store.Settle();
  CHECK(store.bytes() == 2 * kSize);
}

TEST_CASE("A full store drops the least recently used image of the user with the most bytes") {
  ImageStore store(5 * kSize);
  store.AddSoon(7, ImageOf("of another user"));
  for (const char* text : {"first", "second", "third", "fourth"}) store.AddSoon(1, ImageOf(text));
  store.Settle();
  CHECK(store.Find(1, Hash(ImageOf("first"))).has_value());
  const auto in_use = store.Find(1, Hash(ImageOf("second")));
  CHECK(store.Find(1, Hash(ImageOf("first"))).has_value());
  store.AddSoon(1, ImageOf("fifth"));
  store.AddSoon(1, ImageOf("sixth"));
  store.Settle();
  CHECK(store.bytes() == 5 * kSize);
  CHECK(store.Find(7, Hash(ImageOf("of another user"))).has_value());
  CHECK_FALSE(store.Find(1, Hash(ImageOf("third"))).has_value());
  CHECK_FALSE(store.MayHave(1, Sketch(ImageOf("third"))));
  CHECK_FALSE(store.Find(1, Hash(ImageOf("fourth"))).has_value());
  for (const char* text : {"first", "second", "fifth", "sixth"})
    CHECK(store.Find(1, Hash(ImageOf(text))).has_value());
  // A found image stays as long as it is used.
  for (int i = 0; i < 10; ++i) store.AddSoon(1, ImageOf("more " + std::to_string(i)));
  store.Settle();
  CHECK_FALSE(store.Find(1, Hash(ImageOf("second"))).has_value());
  REQUIRE(in_use.has_value());
  CHECK(Hash(*in_use) == Hash(ImageOf("second")));
}

TEST_CASE("Images that look alike are dropped one by one") {
  ImageStore store(4 * kSize);
  const auto alike = [](char middle) {
    std::string memory(kSize, '.');
    memory[kSize / 2] = middle;
    return StoredImage{std::make_shared<const std::string>(memory), kSize};
  };
  REQUIRE(Sketch(alike('a')) == Sketch(alike('b')));
  for (const char middle : {'a', 'b'}) store.AddSoon(1, alike(middle));
  for (const char* text : {"third", "fourth", "fifth"}) store.AddSoon(1, ImageOf(text));
  store.Settle();
  CHECK_FALSE(store.Find(1, Hash(alike('a'))).has_value());
  CHECK(store.MayHave(1, Sketch(alike('b'))));
  store.AddSoon(1, ImageOf("sixth"));
  store.Settle();
  CHECK_FALSE(store.MayHave(1, Sketch(alike('b'))));
  CHECK(store.bytes() == 4 * kSize);
}

TEST_CASE("Small images, and those that would fill the store, are not kept") {
  ImageStore store(4 * kSize);
  store.AddSoon(1, ImageOf("small", ImageStore::kSmallestBytes - 1));
  store.AddSoon(1, ImageOf("large", 3 * kSize));
  store.Settle();
  CHECK(store.bytes() == 0);
  store.AddSoon(1, ImageOf("small enough", ImageStore::kSmallestBytes));
  store.Settle();
  CHECK(store.bytes() == ImageStore::kSmallestBytes);
  ImageStore none(0);
  none.AddSoon(1, ImageOf("code"));
  none.Settle();
  CHECK(none.bytes() == 0);
}

TEST_CASE("Threads may add and find at the same time, and a store may end with images waiting") {
  ImageStore store(10 * kSize);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const StoredImage image = ImageOf(std::to_string(i % 15));
        store.AddSoon(t % 2, image);
        const auto found = store.Find(t % 2, Hash(image));
        if (found.has_value() && Hash(*found) != Hash(image)) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) CHECK(count == 0);
  store.Settle();
  CHECK(store.bytes() <= 10 * kSize);
  for (int i = 0; i < 20; ++i) store.AddSoon(3, ImageOf("at the end " + std::to_string(i)));
}

}  // namespace
}  // namespace detshare
