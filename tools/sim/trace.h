// Requests for the simulated programs: reads them from files in public formats of traces, or
// generates requests in the shape of such a trace.
//
//   azure-llm             TIMESTAMP,ContextTokens,GeneratedTokens (2023 and 2024); one service
//   burstgpt              Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type;
//                         a service for each model and log type
//   azure-functions-2019  HashOwner,HashApp,HashFunction,Trigger,1,...,1440: the number of
//                         invocations in each minute of a day; the seed decides at which moments of
//                         its minute they come, and how long they take
//   azure-functions-2021  app,func,end_timestamp,duration
//
// The first line of a file is its header, and the header says which format it is. Requests of
// language models without output tokens have failed and are left out.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace detshare::sim {

struct Request {
  double at = 0;                    // seconds since the first request
  uint32_t service = 0;             // the application or model that gets the request
  uint32_t prompt = 0, output = 0;  // tokens; both 0: no request of a language model
  double seconds = 0;               // device time, if it is no request of a language model
};

struct Trace {
  std::string format;
  uint32_t services = 0;
  std::vector<Request> requests;  // in the order of their times
  bool tokens = false;            // true: the services are language models
};

// InvalidArgument, as "NAME:LINE: reason", for a row that is wrong; `name` stands for the file in
// this message. `seed` decides about moments and durations that the format does not give.
absl::StatusOr<Trace> ReadTrace(std::istream& in, const std::string& name, uint64_t seed);
// The same for a file. NotFound if it cannot be read.
absl::StatusOr<Trace> ReadTraceFile(const std::string& path, uint64_t seed);

struct GenerateOptions {
  std::string format;  // one of GeneratedFormats()
  double hours = 1;
  double rate = 1;  // mean number of requests in a second, of all services together
  uint32_t services = 1;
  uint64_t seed = 1;
};
// Generates bursty arrivals: each service has quiet and busy periods. Tokens and durations are
// distributed as in the trace of that name. Services differ in popularity (Zipf). InvalidArgument
// for options that are not possible.
absl::StatusOr<Trace> GenerateTrace(const GenerateOptions& options);
std::vector<std::string> GeneratedFormats();

}  // namespace detshare::sim
