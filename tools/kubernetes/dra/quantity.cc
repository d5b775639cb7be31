#include "tools/kubernetes/dra/quantity.h"

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace detshare::kubernetes {
namespace {

// The factor is base^exponent.
struct Suffix {
  const char* text;
  int base, exponent;
};
constexpr Suffix kSuffixes[] = {{"", 10, 0},   {"n", 10, -9}, {"u", 10, -6}, {"m", 10, -3},
                                {"k", 10, 3},  {"M", 10, 6},  {"G", 10, 9},  {"T", 10, 12},
                                {"P", 10, 15}, {"E", 10, 18}, {"Ki", 2, 10}, {"Mi", 2, 20},
                                {"Gi", 2, 30}, {"Ti", 2, 40}, {"Pi", 2, 50}, {"Ei", 2, 60}};

// Longer numbers are none that the API server writes.
constexpr size_t kLongest = 40;
constexpr int kLargestExponent = 30;

using Wide = unsigned __int128;
constexpr Wide kMax = std::numeric_limits<int64_t>::max();
// Digits are added only while the mantissa is below this, so no product overflows.
constexpr Wide kMantissaMax = kMax * 1'000'000'000;

std::optional<Suffix> SuffixOf(absl::string_view text) {
  for (const Suffix& suffix : kSuffixes) {
    if (text == suffix.text) return suffix;
  }
  if (text.size() < 2 || (text[0] != 'e' && text[0] != 'E')) return std::nullopt;
  int exponent = 0;
  if (!absl::SimpleAtoi(text.substr(1), &exponent) || exponent > kLargestExponent ||
      exponent < -kLargestExponent || absl::ascii_isspace(static_cast<unsigned char>(text[1])) ||
      absl::ascii_isspace(static_cast<unsigned char>(text.back())))
    return std::nullopt;
  return Suffix{"", 10, exponent};
}

}  // namespace

std::optional<int64_t> ParseQuantity(absl::string_view text) {
  if (text.size() > kLongest) return std::nullopt;
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  Wide mantissa = 0;
  int decimals = 0;
  bool digits = false, point = false;
  size_t end = 0;
  for (; end < text.size(); ++end) {
    const char c = text[end];
    if (c == '.' && !point) {
      point = true;
    } else if (absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      digits = true;
      if (mantissa > kMantissaMax) return std::nullopt;
      mantissa = mantissa * 10 + static_cast<unsigned>(c - '0');
      decimals += point ? 1 : 0;
    } else {
      break;
    }
  }
  const std::optional<Suffix> suffix = SuffixOf(text.substr(end));
  if (!digits || !suffix.has_value()) return std::nullopt;
  int tens = -decimals;
  if (suffix->base == 2) {
    for (int i = 0; i < suffix->exponent && mantissa != 0; ++i) {
      mantissa *= 2;
      // It is too large even after the decimals.
      if (mantissa > std::numeric_limits<Wide>::max() / 4) return std::nullopt;
    }
  } else {
    tens += suffix->exponent;
  }
  for (; tens > 0 && mantissa != 0; --tens) {
    mantissa *= 10;
    if (mantissa > kMax) return std::nullopt;
  }
  bool rest = false;
  for (; tens < 0; ++tens) {
    rest = rest || mantissa % 10 != 0;
    mantissa /= 10;
  }
  mantissa += rest ? 1 : 0;
  if (mantissa > kMax) return std::nullopt;
  return static_cast<int64_t>(mantissa);
}

std::string BinaryQuantity(int64_t value) {
  const char* suffix = "";
  for (const char* larger : {"Ki", "Mi", "Gi", "Ti"}) {
    if (value == 0 || value % 1024 != 0) break;
    value /= 1024;
    suffix = larger;
  }
  return absl::StrCat(value, suffix);
}

}  // namespace detshare::kubernetes
