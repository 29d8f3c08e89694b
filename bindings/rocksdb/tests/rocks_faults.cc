// RocksDB at work on a drive that fails. fault_runs runs it, once for each kind of work and fault.
//
//   rocks_faults --list
//   rocks_faults --work=W --fault=F [--skip=N] [--times=N] [--conventional=N]
//
// Makes a database, begins a kind of background work (rocks_works.cc), and has the drive's commands of that moment fail. Then: what
// reads does is right or an error; after Resume, or where that is refused after opening again, everything that was acknowledged as
// synced is there and nothing else; the drive is in order. Exit code 1: something was wrong, and stderr says what.

#include <cstdio>

#include "rocks_works.h"

namespace faults {
namespace {

void Run(const Case& one, Work* work) {
  Rocks rocks(one);
  imbrex_faults_make(one.conventional);
  rocks.Mount();
  rocks.Configure(*work);
  Check(rocks.Open(), "opening a new database");
  work->prepare(&rocks);
  rocks.ReadAll("before the fault", /*errors_allowed=*/false);

  rocks.Aim(*work);
  const rocksdb::Status status = work->run(&rocks);
  const uint64_t hits = rocks.Disarm();
  const bool surfaced = !status.ok() || rocks.BackgroundErrors() > 0;
  std::string story = status.ok() ? "work=ok" : "work=" + status.ToString().substr(0, 60);
  if (hits == 0 && surfaced) {
    Die("without a fault the work failed: " + status.ToString());
  }
  if (one.fault == IMBREX_FAULT_FLUSH && hits > 0 && rocks.IsOpen() && rocks.Write(0, 1, /*sync=*/true).ok()) {
    // Whoever asked for it, and if nobody did: what was acknowledged may be gone, so nothing may be acknowledged any more.
    Die("a flush of the drive failed, and a synced write after it did not");
  }
  rocks.ReadAll("after the fault", /*errors_allowed=*/hits > 0);

  bool resumed = true;
  if (rocks.IsOpen()) {
    resumed = !surfaced || rocks.Resume();
    if (resumed && one.fault != IMBREX_FAULT_FLUSH && one.Passing()) {
      rocks.Exercise("after Resume", /*must_work=*/!surfaced);
    }
  }
  story += resumed ? " resumed" : " reopened";
  rocks.Close();
  const bool damaged = !one.Passing();
  const bool in_order = DriveIsInOrder("after the fault", damaged);

  // The fault is gone, and so is the process that met it, as far as the drive can tell.
  rocks.Mount();
  const rocksdb::Status opened = rocks.Open();
  if (!opened.ok()) {
    if (one.Passing()) {
      Die("opening again: " + opened.ToString());
    }
    story += " lost: " + opened.ToString().substr(0, 60);
  } else if (!one.Passing() && (!in_order || work->copies || one.fault == IMBREX_FAULT_OFFLINE)) {
    // A zone that went offline took its bytes with it, and a copy may have copied what the drive lied: errors, but nothing wrong.
    rocks.ReadAll("after opening again", /*errors_allowed=*/true, /*losses_allowed=*/!in_order);
  } else {
    rocks.ReadAll("after opening again", /*errors_allowed=*/false);
    Check(rocks.Db()->VerifyChecksum(), "VerifyChecksum after opening again");
    rocks.Exercise("after opening again", /*must_work=*/true);
  }
  rocks.Close();
  DriveIsInOrder("in the end", damaged);
  Report(hits, surfaced, story);
}

int Main(int argc, char** argv) {
  std::vector<Work> works = AllWorks();
  std::vector<std::string> names;
  for (const Work& work : works) {
    names.push_back(work.name);
  }
  const Case one = Parse(argc, argv, names);
  for (Work& work : works) {
    if (work.name == one.work) {
      Run(one, &work);
    }
  }
  return 0;
}

}  // namespace
}  // namespace faults

int main(int argc, char** argv) { return faults::Main(argc, argv); }
