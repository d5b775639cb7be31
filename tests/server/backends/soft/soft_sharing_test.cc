// Several sessions share a software GPU. Each has its own thread.
#include <array>
#include <catch2/catch.hpp>
#include <random>
#include <thread>
#include <utility>

#include "tests/server/backends/soft/soft_device_harness.h"

namespace detshare::soft {
namespace {

constexpr int kCount = 1024;

// The result of a session, and its virtual time on the session's own queue.
struct Outcome {
  std::vector<float> values;
  bool ok = false;
};

// Does random work on two queues, one of each partition (null: the whole device), that sometimes
// wait for each other. The seed determines the work.
Outcome Compute(TestDevice& device, uint64_t index, unsigned seed, Partition* partition,
                Partition* second) {
  std::mt19937 random(seed);
  TestSession session(device, index, partition);
  const auto other = Require((second ? *second : device->whole()).CreateQueue(0));
  const std::array<Queue*, 2> queues = {&session.queue(), other.get()};
  const auto marker = Require(device->CreateMarker(false));
  std::array<float*, 4> arrays;
  for (float*& array : arrays) {
    array = session.Allocate<float>(kCount);
    for (int i = 0; i < kCount; ++i) array[i] = static_cast<float>(random() % 100);
  }
  const auto address = [](float* array) { return reinterpret_cast<uint64_t>(array); };
  for (int step = 0; step < 120; ++step) {
    Queue& queue = *queues[step / 7 % 2];
    if (step % 7 == 0) {
      // The work moves to the other queue.
      Require(queues[1 - step / 7 % 2]->Record(*marker));
      Require(queue.Wait(*marker));
    }
    float* a = arrays[random() % 4];
    float* b = arrays[random() % 4];
    float* c = arrays[random() % 4];
    LaunchShape shape;
    switch (random() % 4) {
      case 0:
        shape.grid = {kCount / 64};
        shape.block = {64};
        Require(queue.Launch(session.space(), session.kernel("Add"), shape,
                             Parameters(a, b, c, kCount)));
        break;
      case 1:
        shape.block = {kCount};
        Require(
            queue.Launch(session.space(), session.kernel("Scale"), shape, Parameters(a, kCount)));
        break;
      case 2: {
        CopyRequest copy;
        copy.source = address(a);
        copy.destination = address(a) + kCount * 2;
        copy.width = kCount * 2;
        Require(queue.Copy(session.space(), copy));
        break;
      }
      default: {
        FillRequest fill;
        fill.address = address(a) + 4 * (random() % 512);
        fill.element_bytes = 4;
        fill.width = random() % 512;
        fill.value = 0x40400000;  // 3.0f
        Require(queue.Fill(session.space(), fill));
      }
    }
  }
  Require(other->Record(*marker));
  Require(session.queue().Wait(*marker));
  Require(session.Finish());
  Outcome outcome;
  for (float* array : arrays) outcome.values.insert(outcome.values.end(), array, array + kCount);
  outcome.ok = session.space().fault().ok();
  return outcome;
}

bool SameBits(const Outcome& a, const Outcome& b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE(
    "sessions compute the same bits together as alone, in every group, also beside faulty "
    "sessions") {
  SoftDeviceOptions options;
  options.quantum = 500;
  TestDevice device(options);
  const auto partition = Require(device->CreatePartition(8, 8));
  std::array<Outcome, 3> alone, together;
  for (unsigned i = 0; i < 3; ++i) alone[i] = Compute(device, i, i, nullptr, nullptr);

  // The other sessions fault, print, run for ever and end. They are prepared here, because Catch
  // works on one thread.
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread neighbour([&] {
    while (!stop) {
      TestSession session(device, 7);
      int* memory = session.Allocate<int>(4);
      switch (rounds++ % 3) {
        case 0:
          (void)session.Launch("WaitForFlag", {40}, {64}, Parameters(memory));
          break;
        case 1:
          (void)session.Launch("Store", {1}, {1}, Parameters(memory + 1'000'000, 1));
          (void)session.Finish();
          break;
        default:
          (void)session.Launch("Print", {8}, {8});
          (void)session.Finish();
      }
    }
  });
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      Partition* const urgent = device->urgent();
      const std::pair<Partition*, Partition*> places[] = {
          {partition.get(), partition.get()}, {urgent, urgent}, {partition.get(), urgent}};
      for (const auto& [first, second] : places) {
        together[i] = Compute(device, i, i, first, second);
        if (!SameBits(alone[i], together[i])) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  neighbour.join();
  for (unsigned i = 0; i < 3; ++i) {
    CHECK(alone[i].ok);
    CHECK(together[i].ok);
    CHECK(SameBits(alone[i], together[i]));
  }
  CHECK(rounds > 0);
  CHECK(device->memory().free == device->memory().total);
}

TEST_CASE("measured times depend on the submitted work, not on the load of the host") {
  std::array<float, 2> measured;
  for (const int round : {0, 1}) {
    TestDevice device;
    std::atomic<bool> stop{false};
    // In the second run the host has other work, too.
    std::thread load([&] {
      while (round == 1 && !stop) {
      }
    });
    TestSession first(device, 0), second(device, 1);
    float* a = first.Allocate<float>(1 << 18);
    float* b = second.Allocate<float>(1 << 18);
    const auto begin = Require(device->CreateMarker(true)),
               end = Require(device->CreateMarker(true));
    Require(first.queue().Record(*begin));
    for (uint32_t i = 1; i <= 20; ++i) {
      Require(first.Launch("Work", {i * 10}, {128}, Parameters(a, 20)));
      Require(second.Launch("Work", {i * 7}, {256}, Parameters(b, 10)));
    }
    Require(first.queue().Record(*end));
    Require(first.Finish());
    Require(second.Finish());
    stop = true;
    load.join();
    measured[round] = Require(device->ElapsedMilliseconds(*begin, *end));
  }
  CHECK(measured[0] > 0);
  CHECK(measured[0] == measured[1]);
}

}  // namespace detshare::soft
