#include "crash_run.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace crash {

void Die(const std::string& what) {
  fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
  fflush(stderr);
  _exit(1);
}

namespace {

bool ParseWords(int argc, char** argv, Arguments* arguments) {
  if (argc < 2) {
    return false;
  }
  arguments->command = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      return false;
    }
    const std::string name = text.substr(0, equals);
    const std::string value = text.substr(equals + 1);
    const uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--log") {
      arguments->log = value;
    } else if (name == "--db") {
      arguments->db = value;
    } else if (name == "--uri") {
      arguments->uri = value;
    } else if (name == "--after") {
      arguments->after = value;
    } else if (name == "--seed") {
      arguments->seed = number;
    } else if (name == "--operations") {
      arguments->operations = number;
    } else if (name == "--die-operation") {
      arguments->die_operation = number;
    } else if (name == "--die-microseconds") {
      arguments->die_microseconds = number;
    } else {
      return false;
    }
  }
  const bool verify = arguments->command == "verify";
  return !arguments->log.empty() && !arguments->db.empty() && (verify || arguments->command == "write") &&
         (!verify || arguments->after == "kill" || arguments->after == "power");
}

}  // namespace

bool Parse(int argc, char** argv, Arguments* arguments) {
  if (ParseWords(argc, argv, arguments)) {
    return true;
  }
  fprintf(stderr,
          "usage: %s write  --log=FILE --seed=N --db=PATH [--uri=URI] [--operations=N] [--die-operation=N] [--die-microseconds=N]\n"
          "       %s verify --log=FILE --seed=N --db=PATH [--uri=URI] --after=kill|power\n",
          program_invocation_short_name, program_invocation_short_name);
  return false;
}

void DieIn(uint64_t microseconds) {
  std::thread([microseconds] {
    usleep(static_cast<useconds_t>(microseconds));
    kill(getpid(), SIGKILL);
  }).detach();
}

uint64_t FindOperation(const Arguments& arguments, const Journal& journal, const std::string& marker) {
  const uint64_t epoch = journal.Epochs() - 1;
  const bool after_kill = arguments.after == "kill";
  const uint64_t must = after_kill ? journal.Acknowledged() : journal.Synced();
  // Each operation between what must be there and what may be there is a candidate, told by its marker.
  for (uint64_t index = must; index <= journal.Issued(); ++index) {
    uint64_t its_epoch = 0;
    const uint64_t change = journal.LastChange(epoch, index, &its_epoch);
    if (marker == (change == 0 ? std::string() : MarkerValue(its_epoch, change))) {
      return index;
    }
  }
  uint64_t its_epoch = 0;
  const uint64_t change = journal.LastChange(epoch, must, &its_epoch);
  Die(std::string(after_kill ? "acknowledged" : "synced") + " writes are lost, or there are writes that were never made: the database is at " +
      (marker.empty() ? "the beginning" : marker) + ", it must be between " + MarkerValue(its_epoch, change) + " and " +
      MarkerValue(epoch, journal.Issued()));
}

void CompareStates(const State& expected, const State& got, int families, const std::string& what) {
  for (int family = 0; family < families; ++family) {
    const std::string name = what + ", family " + kFamilyNames[family] + ", key ";
    for (const auto& [key, value] : expected[family]) {
      const auto found = got[family].find(key);
      if (found == got[family].end()) {
        Die(name + key + " is missing, its value was " + value.substr(0, 40));
      }
      if (found->second != value) {
        Die(name + key + " has the value " + found->second.substr(0, 40) + ", not " + value.substr(0, 40));
      }
    }
    for (const auto& [key, value] : got[family]) {
      if (expected[family].count(key) == 0) {
        Die(name + key + " should not be there, its value is " + value.substr(0, 40));
      }
    }
  }
}

}  // namespace crash
