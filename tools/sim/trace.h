// Requests: read from the public formats of traces, or generated in the same shape.
//
//   azure-llm             TIMESTAMP,ContextTokens,GeneratedTokens (2023 and 2024); one service
//   burstgpt              Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type;
//                         a service for each model and log type. A failed request (no response
//                         tokens) is left out
//   azure-functions-2019  HashOwner,HashApp,HashFunction,Trigger,1,...,1440: invocations of each
//                         minute of a day, put at fixed random places within their minute
//   azure-functions-2021  app,func,end_timestamp,duration
//
// The first line is the header, by which the format is recognised.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace detshare::sim {

struct Request {
  double at = 0;                    // seconds since the first one
  uint32_t service = 0;             // who is asked: an application, a model
  uint32_t prompt = 0, output = 0;  // tokens; 0 and 0: not of a language model
  double seconds = 0;               // of device time, when it is not
};

struct Trace {
  std::string format;
  uint32_t services = 0;
  std::vector<Request> requests;  // in the order of their times
  bool tokens = false;            // of language models
};

// `name` is what errors call the file: "NAME:LINE: reason", InvalidArgument. `seed` places what the
// format gives only by minute, and durations that it does not give.
absl::StatusOr<Trace> ReadTrace(std::istream& in, const std::string& name, uint64_t seed);
absl::StatusOr<Trace> ReadTraceFile(const std::string& path, uint64_t seed);

struct GenerateOptions {
  std::string format;  // one of GeneratedFormats()
  double hours = 1;
  double rate = 1;  // mean requests a second, of all services together
  uint32_t services = 1;
  uint64_t seed = 1;
};
// Bursty arrivals: each service has quiet and busy periods; with tokens and durations distributed
// as in the trace of that name. Services differ in how much is asked of them (Zipf).
absl::StatusOr<Trace> GenerateTrace(const GenerateOptions& options);
std::vector<std::string> GeneratedFormats();

}  // namespace detshare::sim
