// What the command lines of the daemon and all tools have in common: --version, help that names the options of all
// commands, errors that name the next step, and output that is complete or an error. One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "proto/version.h"

namespace detshare {

// Adds --version to `app`, which prints the program's name and `version`, then parses `arguments`, which
// lack the program's name. Returns the exit code with which the program ends after it has printed help or
// its version (0), or an error (`usage_code`); nothing if the program goes on.
std::optional<int> ParseCommandLine(CLI::App& app, std::vector<std::string> arguments,
                                    int usage_code, const std::string& version = kVersion);

// Checks that an option's value is a number of `least` to `most`. CLI::Range takes "nan" for any
// number, this validator refuses it. `least` and `most` are finite.
CLI::Validator NumberIn(double least, double most);

// Checks that the value of an option without negative numbers has no sign. CLI11 takes "-1" for the
// largest number of an unsigned type.
CLI::Validator NotNegative();

// Makes an error of an empty value of any option or argument of `command` and of its commands, as a
// script with an unset variable has it (--memory ""). Call it after these were added.
void RefuseEmptyValues(CLI::App& command);

// A tool's last step. Writes what stdout still has in its buffer. If what `tool` has printed there
// could not be written, says so on stderr, and returns 1 in place of 0. A reader that has left, as
// `head` does, is no error. Otherwise returns `code`.
int EndOutput(const char* tool, int code);

// The one of `names` that a person who wrote `word` has probably meant; "" if none is close.
// Counts letters that are missing, too many, wrong or swapped with the next one.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& names);

}  // namespace detshare
