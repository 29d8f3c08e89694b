// What the fault programs of both engines share: which case is run, what a database must hold, and the drive.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "faults.h"

namespace faults {

// Says what is wrong on stderr and ends the process with exit code 1, at once: a background thread must not hide the failure.
[[noreturn]] void Die(const std::string& what);

template <typename Status>
void Check(const Status& status, const std::string& what) {
  if (!status.ok()) {
    Die(what + ": " + status.ToString());
  }
}

// One run: what the database does, and which of the drive's commands fail meanwhile.
struct Case {
  std::string work;
  uint32_t fault = 0;
  uint64_t skip = 0;
  uint64_t times = 1;
  uint32_t conventional = 16;

  // Whether the fault takes away nothing that was promised.
  bool Passing() const { return fault != IMBREX_FAULT_OFFLINE && fault != IMBREX_FAULT_BIT_FLIP; }
};

// Of `program --work=W --fault=F [--skip=N] [--times=N] [--conventional=N]`; with --list, prints `works` and ends the process.
Case Parse(int argc, char** argv, const std::vector<std::string>& works);

// What a database must hold: every key that was written, with the values that it may have.
class Model {
 public:
  // A value that is about to be written. It may be there or not.
  const std::string& Begin(const std::string& key);
  // The database took what was begun last for this key; it may still be gone after a crash.
  void Acknowledge(const std::string& key);
  // What was acknowledged up to now is durable: it must be there.
  void Settle();
  // What was written up to now may be gone, but not be anything else (FIFO).
  void AllowAbsence();

  // How many keys must be there.
  size_t Certain() const;
  std::vector<std::string> Keys() const;

  // Dies where the database says something else than it may: `found` false is "not found". With `losses_allowed`
  // the key may be gone, or as it was at any time before.
  void CheckValue(const std::string& stage, const std::string& key, bool found, const std::string& value,
                  bool losses_allowed = false) const;

 private:
  struct Entry {
    // All that were ever begun; those before `first` must not be seen any more.
    std::vector<std::string> values;
    size_t first = 0;
    // Behind the last one that was acknowledged.
    size_t acknowledged = 0;
    bool may_be_absent = true;
  };
  std::map<std::string, Entry> entries_;
  uint64_t versions_ = 0;
};

std::string Key(int number);

// Dies where the drive is not in order, unless `damaged`; returns whether it was.
bool DriveIsInOrder(const std::string& stage, bool damaged);

// The line that the driver of all runs (fault_runs) reads.
void Report(uint64_t hits, bool surfaced, const std::string& story);

}  // namespace faults
