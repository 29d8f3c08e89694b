// What a database must hold: an endless list of operations that a seed alone decides, and a log, kept outside the database, of how far
// a writer came before it was killed.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace crash {

// A generator whose stream never changes (splitmix64).
class Random {
 public:
  // Independent streams for different arguments.
  Random(uint64_t seed, uint64_t stream, uint64_t index);
  uint64_t Next();
  // Less than `bound`, which is not 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

constexpr int kFamilies = 3;
extern const std::array<const char*, kFamilies> kFamilyNames;
// Written by every operation that changes the database; its value names the operation. In the first family.
extern const char* const kMarker;

struct Update {
  enum Kind { kPut, kDelete, kDeleteRange } kind;
  int family;
  std::string key;
  // The value, or the end of the range.
  std::string value;
};

enum class Kind {
  kBatch,
  kIngest,
  kFlushAll,
  kFlushOne,
  kCompact,
  kSyncWal,
  kCheckpoint,
  kBackup,
  kReadOnly,
  kSecondary,
  kReopen,
};

struct Operation {
  Kind kind;
  // A batch that is synced; a checkpoint or backup that flushes first.
  bool flag;
  int family;
  std::vector<Update> updates;
};

// Whether the operation changes what the database holds.
inline bool Changes(Kind kind) { return kind == Kind::kBatch || kind == Kind::kIngest; }

// Whether a run's values are so large that logs fill the file system's buffers before they are synced: what a power loss finds on the
// drive is then more than what was synced, and in pieces.
bool IsBulky(uint64_t seed);

// Operation number `index` (from 1) of a run. Each run of the writer has an epoch of its own, and other values: were a lost operation of
// an earlier run to come back, it would be seen.
Operation MakeOperation(uint64_t seed, uint64_t epoch, uint64_t index);
std::string MarkerValue(uint64_t epoch, uint64_t index);

using State = std::array<std::map<std::string, std::string>, kFamilies>;

void Apply(const Operation& operation, uint64_t epoch, uint64_t index, State* state);

// What the writers of a round said about themselves. One line a record, in the order of events, each written with one system call so
// that a killed writer leaves whole records:
//   E epoch base    a writer starts with what the database held after operation `base` of the epoch before
//   O               the database is open
//   W index         is about to do operation `index`
//   A index         the database acknowledged it
//   S index         everything up to it was synced
//   C index path    a checkpoint of what was there at operation `index` is complete
//   X path          that checkpoint is about to be deleted
//   B index id      likewise a backup
//   P id            backups up to `id` are about to be deleted
//   R index         a verifier found what operation `index` left, and opened the database for writing
class Journal {
 public:
  struct Copy {
    uint64_t epoch;
    uint64_t index;
    std::string path;
    uint64_t backup;
  };

  Journal(std::string path, uint64_t seed) : path_(std::move(path)), seed_(seed) {}
  // False, with a sentence on stderr, when the log cannot be read or makes no sense.
  bool Load();
  // Appends a record; ends the process when that fails.
  void Write(const std::string& record);

  uint64_t Epochs() const { return bases_.size(); }
  // Since the current epoch began: issued, acknowledged, synced (each at least the epoch's base, the last at most).
  uint64_t Issued() const { return issued_; }
  uint64_t Acknowledged() const { return acknowledged_; }
  uint64_t Synced() const { return synced_; }
  // Where the next writer goes on.
  uint64_t Recovered() const { return recovered_; }
  bool WasOpen() const { return was_open_; }
  const std::vector<Copy>& Checkpoints() const { return checkpoints_; }
  const std::vector<Copy>& Backups() const { return backups_; }

  // What the database holds after operation `index` of `epoch`.
  State StateAt(uint64_t epoch, uint64_t index) const;
  // The number of the last operation that changed the database, up to and with `index`; 0 for none. Sets its epoch.
  uint64_t LastChange(uint64_t epoch, uint64_t index, uint64_t* its_epoch) const;

 private:
  const std::string path_;
  const uint64_t seed_;
  int file_ = -1;
  // Where each epoch begins.
  std::vector<uint64_t> bases_;
  uint64_t issued_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t synced_ = 0;
  uint64_t recovered_ = 0;
  bool was_open_ = false;
  std::vector<Copy> checkpoints_;
  std::vector<Copy> backups_;
};

}  // namespace crash
