#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
// OpenSSL keeps some state for each thread that a thread of gRPC does not free if it still runs at
// the end of the process.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcrypto.so\n"; }
#endif

namespace {

std::string XmlEscaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML 1.0 forbids most control characters, even when they are escaped.
        out += (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') ? '?' : c;
    }
  }
  return out;
}

// Writes the file that Bazel shows and tools/test counts: one <testcase> for each Catch2 test case,
// in the file that XML_OUTPUT_FILE names. Catch2 2 runs only one reporter, so the console reporter
// stays and this class listens.
class BazelXmlListener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  bool assertionEnded(const Catch::AssertionStats& stats) override {
    if (!stats.assertionResult.isOk()) {
      const auto& info = stats.assertionResult.getSourceInfo();
      failure_ += std::string(info.file) + ":" + std::to_string(info.line) + ": " +
                  stats.assertionResult.getExpressionInMacro() + "\n";
    }
    return true;
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    cases_.push_back({stats.testInfo.name, failure_, stats.totals.assertions.allOk()});
    failure_.clear();
  }

  void testRunEnded(const Catch::TestRunStats& stats) override {
    const char* path = std::getenv("XML_OUTPUT_FILE");
    if (path == nullptr) return;
    std::ofstream xml(path);
    xml << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\""
        << XmlEscaped(stats.runInfo.name) << "\" tests=\"" << cases_.size() << "\">\n";
    for (const Case& c : cases_) {
      xml << "<testcase name=\"" << XmlEscaped(c.name) << "\"";
      if (c.passed) {
        xml << "/>\n";
      } else {
        xml << "><failure message=\"failed\">" << XmlEscaped(c.failure)
            << "</failure></testcase>\n";
      }
    }
    xml << "</testsuite>\n</testsuites>\n";
  }

 private:
  struct Case {
    std::string name;
    std::string failure;
    bool passed;
  };
  std::vector<Case> cases_;
  std::string failure_;
};

CATCH_REGISTER_LISTENER(BazelXmlListener)

}  // namespace
