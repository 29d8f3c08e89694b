#include "fault_case.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace faults {

namespace {

const char* const kNames[] = {"read", "write", "torn-write", "flush", "zone-op", "no-space", "read-only", "offline", "bit-flip"};

bool Value(const std::string& argument, const char* name, std::string* value) {
  const std::string prefix = std::string("--") + name + "=";
  if (argument.compare(0, prefix.size(), prefix) != 0) {
    return false;
  }
  *value = argument.substr(prefix.size());
  return true;
}

}  // namespace

void Die(const std::string& what) {
  fprintf(stderr, "%s\n", what.c_str());
  fflush(stderr);
  _exit(1);
}

Case Parse(int argc, char** argv, const std::vector<std::string>& works) {
  Case one;
  bool has_fault = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    std::string value;
    if (argument == "--list") {
      for (const std::string& work : works) {
        printf("%s\n", work.c_str());
      }
      exit(0);
    } else if (Value(argument, "work", &value)) {
      one.work = value;
    } else if (Value(argument, "fault", &value)) {
      const auto found = std::find(std::begin(kNames), std::end(kNames), value);
      has_fault = found != std::end(kNames);
      one.fault = static_cast<uint32_t>(found - std::begin(kNames));
    } else if (Value(argument, "skip", &value)) {
      one.skip = strtoull(value.c_str(), nullptr, 10);
    } else if (Value(argument, "times", &value)) {
      one.times = strtoull(value.c_str(), nullptr, 10);
    } else if (Value(argument, "conventional", &value)) {
      one.conventional = static_cast<uint32_t>(strtoul(value.c_str(), nullptr, 10));
    } else {
      Die("unknown argument " + argument);
    }
  }
  if (std::find(works.begin(), works.end(), one.work) == works.end() || !has_fault) {
    Die("usage: --work=W (--list says which) --fault=read|write|torn-write|flush|zone-op|no-space|read-only|offline|bit-flip [--skip=N] [--times=N]");
  }
  return one;
}

std::string Key(int number) {
  char text[16];
  snprintf(text, sizeof(text), "key%06d", number);
  return text;
}

const std::string& Model::Begin(const std::string& key) {
  std::string value = key + "=" + std::to_string(++versions_) + ":";
  // Of no block's length, and different everywhere, so that pieces of two values are none.
  uint64_t state = versions_ * 0x9e3779b97f4a7c15u;
  while (value.size() < 700) {
    state ^= state >> 29;
    state *= 0xbf58476d1ce4e5b9u;
    value += static_cast<char>('a' + state % 26);
  }
  Entry& entry = entries_[key];
  entry.values.push_back(value);
  return entry.values.back();
}

void Model::Acknowledge(const std::string& key) {
  Entry& entry = entries_[key];
  entry.acknowledged = entry.values.size();
}

void Model::Settle() {
  for (auto& [key, entry] : entries_) {
    // What was refused after that may be there all the same, or not.
    if (entry.acknowledged > 0) {
      entry.first = entry.acknowledged - 1;
      entry.may_be_absent = false;
    }
  }
}

void Model::AllowAbsence() {
  for (auto& [key, entry] : entries_) {
    entry.may_be_absent = true;
  }
}

size_t Model::Certain() const {
  size_t count = 0;
  for (const auto& [key, entry] : entries_) {
    count += entry.may_be_absent ? 0 : 1;
  }
  return count;
}

std::vector<std::string> Model::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, entry] : entries_) {
    keys.push_back(key);
  }
  return keys;
}

void Model::CheckValue(const std::string& stage, const std::string& key, bool found, const std::string& value,
                       bool losses_allowed) const {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) {
    Die(stage + ": " + key + " is there, which was never written");
  }
  if (!found) {
    if (!entry->second.may_be_absent && !losses_allowed) {
      Die(stage + ": " + key + " is not there");
    }
    return;
  }
  const std::vector<std::string>& values = entry->second.values;
  const auto first = values.begin() + (losses_allowed ? 0 : static_cast<ptrdiff_t>(entry->second.first));
  if (std::find(first, values.end(), value) == values.end()) {
    Die(stage + ": " + key + " reads as " + value.substr(0, 40) + ", not " + values.back().substr(0, 40));
  }
}

bool DriveIsInOrder(const std::string& stage, bool damaged) {
  const uint64_t problems = imbrex_faults_check();
  if (problems != 0 && !damaged) {
    Die(stage + ": the drive is not in order");
  }
  return problems == 0;
}

void Report(uint64_t hits, bool surfaced, const std::string& story) {
  printf("hits=%llu surfaced=%d %s\n", static_cast<unsigned long long>(hits), surfaced ? 1 : 0, story.c_str());
  fflush(stdout);
}

}  // namespace faults
