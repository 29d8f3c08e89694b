// What the crash programs of all engines share: their arguments, how they die, and which operation a database must be at.

#pragma once

#include <cstdint>
#include <string>

#include "crash_model.h"

namespace crash {

// Says what is wrong on stderr and ends the process with exit code 1, at once: a background thread must not hide the failure.
[[noreturn]] void Die(const std::string& what);

// Dies unless the status, of whichever engine, is OK.
template <typename Status>
void Check(const Status& status, const std::string& what) {
  if (!status.ok()) {
    Die(what + ": " + status.ToString());
  }
}

struct Arguments {
  // "write" or "verify".
  std::string command;
  std::string log;
  std::string db;
  std::string uri;
  // "kill" or "power".
  std::string after;
  uint64_t seed = 0;
  uint64_t operations = 1000;
  uint64_t die_operation = 0;
  uint64_t die_microseconds = 0;
};

// False, with the usage on stderr, when they make no sense.
bool Parse(int argc, char** argv, Arguments* arguments);

// Kills the process after so many microseconds, as if from outside.
void DieIn(uint64_t microseconds);

// The operation that left the database whose marker this is; dies when that breaks a promise: after a kill, everything acknowledged must
// be there, after a power loss everything synced, and never what was not issued.
uint64_t FindOperation(const Arguments& arguments, const Journal& journal, const std::string& marker);

// Dies unless both are the same. `what` names them.
void CompareStates(const State& expected, const State& got, int families, const std::string& what);

}  // namespace crash
