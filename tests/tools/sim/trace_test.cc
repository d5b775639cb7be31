#include "tools/sim/trace.h"

#include <catch2/catch.hpp>
#include <set>
#include <sstream>

namespace detshare::sim {
namespace {

absl::StatusOr<Trace> Read(const std::string& text) {
  std::istringstream in(text);
  return ReadTrace(in, "t.csv", 1);
}

std::string ErrorOf(const std::string& text) { return std::string(Read(text).status().message()); }

const std::string kAzure = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
const std::string kBurst = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
const std::string k2021 = "app,func,end_timestamp,duration\n";

std::string Minutes(const std::string& first) {
  std::string header = "HashOwner,HashApp,HashFunction,Trigger", row = "o,a,f,http";
  for (int minute = 1; minute <= 1440; ++minute) {
    header += "," + std::to_string(minute);
    row += minute == 1 ? "," + first : ",0";
  }
  return header + "\n" + row + "\n";
}

TEST_CASE("A trace of language-model requests is read with its dates") {
  const auto trace = Read(kAzure +
                          "2023-11-16 18:15:46.6805900,374,44\r\n"
                          "2023-11-16 18:15:50.1805900,10,0\n"
                          "2023-11-16 18:15:48.6805900,0,7\n");
  REQUIRE(trace.ok());
  CHECK(trace->format == "azure-llm");
  CHECK(trace->tokens);
  REQUIRE(trace->requests.size() == 2);
  CHECK(trace->requests[0].prompt == 374);
  CHECK(trace->requests[0].output == 44);
  CHECK(trace->requests[1].at == Approx(2.0));
  CHECK(trace->requests[1].prompt == 1);
  // With the time zone of the trace of 2024.
  CHECK(Read(kAzure + "2024-05-10 00:00:00.009930+00:00,2162,5\n").ok());
}

TEST_CASE("A trace with models has a service for each") {
  const auto trace = Read(kBurst +
                          "5,ChatGPT,472,18,490,Conversation log\n"
                          "45,GPT-4,1087,230,1317,API log\n"
                          "118,ChatGPT,417,276,693,Conversation log\n");
  REQUIRE(trace.ok());
  CHECK(trace->format == "burstgpt");
  CHECK(trace->services == 2);
  CHECK(trace->requests[2].service == trace->requests[0].service);
  CHECK(trace->requests[2].at == 113);
}

TEST_CASE("Traces of functions are read by minute and by end") {
  const auto minutes = Read(Minutes("7"));
  REQUIRE(minutes.ok());
  CHECK(minutes->format == "azure-functions-2019");
  CHECK(minutes->requests.size() == 7);
  for (const Request& request : minutes->requests) {
    CHECK((request.at >= 0 && request.at < 60));
    CHECK((request.seconds > 0 && request.seconds <= 60));
  }
  const auto ends = Read(k2021 + "a,f,12.5,2.5\nb,f,11,0.25\n");
  REQUIRE(ends.ok());
  CHECK(ends->services == 2);
  CHECK(ends->requests[1].at == Approx(0.75));
  CHECK(ends->requests[0].seconds == 2.5);
}

TEST_CASE("Malformed rows are errors with file and line") {
  CHECK(ErrorOf("a,b\n1,2\n") == "t.csv:1: no known format has this header");
  CHECK(ErrorOf(kAzure + "2023-11-16 18:15:46,1,2\nyesterday,1,2\n")
            .rfind("t.csv:3: a timestamp", 0) == 0);
  for (const char* tokens : {"-1", "1.5", "many", "", "1e99", "nan", "99999999"}) {
    INFO(tokens);
    CHECK(ErrorOf(kAzure + "1," + tokens + ",2\n").rfind("t.csv:2: a number of tokens", 0) == 0);
  }
  CHECK(ErrorOf(kAzure + "1,2\n") == "t.csv:2: 2 columns, where the header has 3");
  CHECK(ErrorOf(k2021 + "a,f,1,2\n").rfind("t.csv:2: an invocation begins", 0) == 0);
  CHECK(ErrorOf(k2021 + "a,f,inf,2\n").rfind("t.csv:2: a time", 0) == 0);
  CHECK(ErrorOf(Minutes("-3")).rfind("t.csv:2: a number of invocations", 0) == 0);
  CHECK(ErrorOf("HashOwner,HashApp,HashFunction,Trigger,1,2\n").rfind("t.csv:1: the header", 0) ==
        0);
  CHECK(ErrorOf(kAzure) == "t.csv: no requests");
  CHECK(ErrorOf("") == "t.csv: no requests");
  CHECK(ReadTraceFile("/nowhere.csv", 1).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("Generated traces have the requested rate, and the same requests for a seed") {
  for (const std::string& format : GeneratedFormats()) {
    GenerateOptions options;
    options.format = format;
    options.hours = 5;
    options.rate = 2;
    options.services = 20;
    const Trace trace = *GenerateTrace(options);
    INFO(format);
    CHECK(trace.requests.size() == Approx(2 * 5 * 3600).epsilon(0.15));
    std::set<uint32_t> services;
    double before = 0;
    for (const Request& request : trace.requests) {
      CHECK((request.at >= before && request.at < 5 * 3600));
      before = request.at;
      services.insert(request.service);
      CHECK((request.output > 0) == trace.tokens);
      CHECK((request.seconds > 0) != trace.tokens);
    }
    CHECK(services.size() == 20);
    const Trace again = *GenerateTrace(options);
    REQUIRE(again.requests.size() == trace.requests.size());
    CHECK(again.requests.back().at == trace.requests.back().at);
    options.seed = 2;
    CHECK(GenerateTrace(options)->requests.back().at != trace.requests.back().at);
  }
}

TEST_CASE("Impossible generated traces are refused") {
  GenerateOptions options;
  CHECK(GenerateTrace(options).status().code() == absl::StatusCode::kNotFound);
  options.format = "azure-llm";
  options.rate = 0;
  CHECK_FALSE(GenerateTrace(options).ok());
  options.rate = 1e9;
  CHECK_FALSE(GenerateTrace(options).ok());
}

}  // namespace
}  // namespace detshare::sim
