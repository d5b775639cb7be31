#include "server/engines/peer_news.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/engines/engine_channel.h"
#include "server/engines/engine_pages.h"

namespace detshare {
namespace {

// An engine's side of its channel, and its page.
struct TestEngine {
  EngineChannel channel = *MakeEngineChannel();
  std::unique_ptr<EnginePages> pages = *EnginePages::Create();

  ~TestEngine() {
    close(channel.supervisor);
    close(channel.engine);
  }
  int page() const { return fcntl(pages->fd(), F_DUPFD_CLOEXEC, 0); }

  // What it has been told since the last call, one word for each message.
  std::vector<std::string> Told() {
    std::vector<std::string> told;
    for (;;) {
      const Received message = TakeMessage(channel.engine);
      if (message.peer.has_value()) {
        told.push_back("page of " + std::to_string(message.peer->pid));
        close(message.peer->page);
      } else if (message.peers.has_value()) {
        std::string list = "list";
        for (const pid_t pid : message.peers->pids) list += " " + std::to_string(pid);
        for (const pid_t pid : message.peers->spares) list += " spare:" + std::to_string(pid);
        told.push_back(list);
      } else if (message.shared_tenant.has_value()) {
        told.push_back(message.shared_tenant->tenant + " with " +
                       std::to_string(message.shared_tenant->peer));
      } else {
        return told;
      }
    }
  }
};

using Messages = std::vector<std::string>;

// Engines 1 and 2, whose pids are 101 and 102.
struct TwoEngines {
  PeerNews news;
  TestEngine one, two;

  TwoEngines() {
    news.Add(1, 101, /*spare=*/false);
    news.Add(2, 102, /*spare=*/false);
  }
  void TakePages() {
    REQUIRE(news.TakePage(1, one.page()));
    REQUIRE(news.TakePage(2, two.page()));
  }
  void SendToBoth() {
    news.Send(1, one.channel.supervisor);
    news.Send(2, two.channel.supervisor);
  }
};

TEST_CASE_METHOD(TwoEngines,
                 "An engine learns the pages of others before the list that names them") {
  CHECK_FALSE(news.Introduced(1));
  REQUIRE(news.TakePage(1, one.page()));
  news.Send(1, one.channel.supervisor);
  CHECK(one.Told() == Messages{"list 101"});
  CHECK(news.Introduced(1));

  REQUIRE(news.TakePage(2, two.page()));
  CHECK(news.has_news(1));
  SendToBoth();
  CHECK(one.Told() == Messages{"page of 102"});
  CHECK(two.Told() == Messages{"page of 101", "list 101 102"});
  CHECK(news.Introduced(1));
  CHECK(news.Introduced(2));
}

TEST_CASE_METHOD(TwoEngines, "Engines learn that one of them is gone") {
  TakePages();
  news.Send(1, one.channel.supervisor);
  one.Told();
  news.Remove(2);
  news.Send(1, one.channel.supervisor);
  CHECK(one.Told() == Messages{"list 101"});
}

TEST_CASE_METHOD(TwoEngines, "A page that was announced and is gone since is not sent") {
  REQUIRE(news.TakePage(2, two.page()));
  REQUIRE(news.TakePage(1, one.page()));
  news.Remove(2);
  news.Send(1, one.channel.supervisor);
  CHECK(one.Told() == Messages{"list 101"});
}

TEST_CASE("The list says which engines are spare ones, until they serve a group") {
  PeerNews news;
  TestEngine one, spare;
  news.Add(1, 101, /*spare=*/false);
  news.Add(2, 102, /*spare=*/true);
  REQUIRE(news.TakePage(1, one.page()));
  CHECK(news.ReadySpares().empty());
  REQUIRE(news.TakePage(2, spare.page()));
  CHECK(news.ReadySpares() == std::vector<pid_t>{102});
  news.Send(1, one.channel.supervisor);
  CHECK(one.Told() == Messages{"page of 102", "list 101 102 spare:102"});
  news.Assign(2);
  CHECK(news.ReadySpares().empty());
  news.Send(1, one.channel.supervisor);
  CHECK(one.Told() == Messages{"list 101 102"});
}

TEST_CASE_METHOD(TwoEngines, "A second page, and one that others could change, count for nothing") {
  REQUIRE(news.TakePage(1, one.page()));
  CHECK_FALSE(news.TakePage(1, one.page()));
  const int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(ftruncate(unsealed, sizeof(EnginePage)) == 0);
  CHECK_FALSE(news.TakePage(2, unsealed));
  CHECK(fcntl(unsealed, F_GETFD) == -1);
  CHECK(news.has_sent_page(2));
  CHECK_FALSE(news.TakePage(3, -1));
  news.Send(1, one.channel.supervisor);
  CHECK(one.Told() == Messages{"list 101"});
  // Its programs are served: it shares devices with nobody.
  news.Send(2, two.channel.supervisor);
  CHECK(two.Told() == Messages{"page of 101"});
  CHECK(news.Introduced(2));
}

TEST_CASE_METHOD(TwoEngines,
                 "Engines that serve one tenant learn of each other, each tenant once") {
  TakePages();
  news.NoteTenant(1, "alice");
  news.NoteTenant(1, "bob");
  news.NoteTenant(2, "alice");
  news.NoteTenant(2, "alice");
  SendToBoth();
  CHECK(one.Told() == Messages{"page of 102", "list 101 102", "alice with 102"});
  CHECK(two.Told() == Messages{"page of 101", "list 101 102", "alice with 101"});
}

TEST_CASE_METHOD(TwoEngines, "What an engine does not read is sent later, in its order") {
  TakePages();
  size_t filled = 0;
  while (PassClosedEndpoint(one.channel.supervisor, filled).ok()) ++filled;
  news.NoteTenant(1, "alice");
  news.NoteTenant(2, "alice");
  news.Send(1, one.channel.supervisor);
  CHECK_FALSE(news.Introduced(1));
  for (size_t i = 0; i < filled; ++i) REQUIRE(TakeMessage(one.channel.engine).any);
  news.Send(1, one.channel.supervisor);
  CHECK(one.Told() == Messages{"page of 102", "list 101 102", "alice with 102"});
  CHECK(news.Introduced(1));
}

}  // namespace
}  // namespace detshare
