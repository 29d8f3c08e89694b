#include "crash_model.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace crash {

const std::array<const char*, kFamilies> kFamilyNames = {"default", "small", "blobs"};
const char* const kMarker = "~marker";

namespace {

constexpr uint64_t kKeys = 300;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string Key(uint64_t number) {
  char buffer[16];
  snprintf(buffer, sizeof(buffer), "key%04u", static_cast<unsigned>(number));
  return buffer;
}

std::string Value(Random* random, bool bulky) {
  const uint64_t size = bulky ? random->Below(30000) : random->OneIn(20) ? random->Below(6000) : random->Below(300);
  std::string value;
  value.reserve(size + 8);
  while (value.size() < size) {
    const uint64_t bits = random->Next();
    for (int i = 0; i < 8; ++i) {
      value.push_back(static_cast<char>('!' + ((bits >> (8 * i)) & 63)));
    }
  }
  value.resize(size);
  return value;
}

// A bulky run does little else but write, and syncs seldom.
Kind KindOf(Random* random, bool bulky) {
  if (bulky && random->Below(4) != 0) {
    return Kind::kBatch;
  }
  static const std::pair<Kind, unsigned> kWeights[] = {
      {Kind::kBatch, 910},     {Kind::kIngest, 10}, {Kind::kFlushAll, 8}, {Kind::kFlushOne, 12},  {Kind::kCompact, 4}, {Kind::kSyncWal, 20},
      {Kind::kCheckpoint, 10}, {Kind::kBackup, 6},  {Kind::kReadOnly, 8}, {Kind::kSecondary, 4}, {Kind::kReopen, 8},
  };
  uint64_t number = random->Below(1000);
  for (const auto& [kind, weight] : kWeights) {
    if (number < weight) {
      return kind;
    }
    number -= weight;
  }
  return Kind::kBatch;
}

}  // namespace

Random::Random(uint64_t seed, uint64_t stream, uint64_t index) : state_(Mix(Mix(Mix(seed + 1) + stream) + index)) {}

uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15u;
  return Mix(state_);
}

std::string MarkerValue(uint64_t epoch, uint64_t index) { return std::to_string(epoch) + ":" + std::to_string(index); }

bool IsBulky(uint64_t seed) { return Random(seed, 0x0b1c, 0).OneIn(3); }

Operation MakeOperation(uint64_t seed, uint64_t epoch, uint64_t index) {
  Random random(seed, epoch, index);
  const bool bulky = IsBulky(seed);
  Operation operation;
  operation.kind = KindOf(&random, bulky);
  operation.flag = random.OneIn(bulky ? 40 : 8);
  operation.family = static_cast<int>(random.Below(kFamilies));
  if (operation.kind == Kind::kBatch) {
    const uint64_t count = 1 + random.Below(bulky ? 2 : 8);
    for (uint64_t i = 0; i < count; ++i) {
      const int family = static_cast<int>(random.Below(kFamilies));
      const uint64_t key = random.Below(kKeys);
      const uint64_t what = random.Below(100);
      if (what < 75) {
        operation.updates.push_back({Update::kPut, family, Key(key), Value(&random, bulky)});
      } else if (what < 98) {
        operation.updates.push_back({Update::kDelete, family, Key(key), std::string()});
      } else {
        operation.updates.push_back({Update::kDeleteRange, family, Key(key), Key(key + 1 + random.Below(20))});
      }
    }
  } else if (operation.kind == Kind::kIngest) {
    // In order, as a table file wants them.
    const uint64_t first = random.Below(kKeys - 40);
    const uint64_t step = 1 + random.Below(4);
    for (uint64_t i = 0; i < 10; ++i) {
      operation.updates.push_back({Update::kPut, 0, Key(first + i * step), Value(&random, bulky)});
    }
  }
  return operation;
}

void Apply(const Operation& operation, uint64_t epoch, uint64_t index, State* state) {
  if (!Changes(operation.kind)) {
    return;
  }
  for (const Update& update : operation.updates) {
    auto& family = (*state)[update.family];
    switch (update.kind) {
      case Update::kPut:
        family[update.key] = update.value;
        break;
      case Update::kDelete:
        family.erase(update.key);
        break;
      case Update::kDeleteRange:
        family.erase(family.lower_bound(update.key), family.lower_bound(update.value));
        break;
    }
  }
  (*state)[0][kMarker] = MarkerValue(epoch, index);
}

bool Journal::Load() {
  std::ifstream in(path_);
  std::string line;
  uint64_t number = 0;
  while (std::getline(in, line)) {
    ++number;
    std::istringstream fields(line);
    std::string tag;
    uint64_t value = 0;
    std::string rest;
    fields >> tag;
    if (tag == "X") {
      fields >> rest;
      checkpoints_.erase(std::remove_if(checkpoints_.begin(), checkpoints_.end(), [&](const Copy& c) { return c.path == rest; }),
                         checkpoints_.end());
      continue;
    }
    if (tag == "O") {
      was_open_ = true;
      continue;
    }
    if (!(fields >> value)) {
      fprintf(stderr, "%s:%llu: not a record: %s\n", path_.c_str(), static_cast<unsigned long long>(number), line.c_str());
      return false;
    }
    if (tag == "E") {
      uint64_t base = 0;
      if (!(fields >> base) || value != bases_.size()) {
        fprintf(stderr, "%s:%llu: epochs out of order\n", path_.c_str(), static_cast<unsigned long long>(number));
        return false;
      }
      bases_.push_back(base);
      issued_ = base;
      acknowledged_ = base;
      synced_ = std::min(synced_, base);
    } else if (tag == "W") {
      issued_ = value;
    } else if (tag == "A") {
      acknowledged_ = value;
    } else if (tag == "S") {
      synced_ = value;
    } else if (tag == "C" && (fields >> rest)) {
      checkpoints_.push_back({bases_.size() - 1, value, rest, 0});
    } else if (tag == "B" && (fields >> rest)) {
      backups_.push_back({bases_.size() - 1, value, std::string(), std::strtoull(rest.c_str(), nullptr, 10)});
    } else if (tag == "P") {
      backups_.erase(std::remove_if(backups_.begin(), backups_.end(), [&](const Copy& c) { return c.backup <= value; }), backups_.end());
    } else if (tag == "R") {
      recovered_ = value;
    } else {
      fprintf(stderr, "%s:%llu: not a record: %s\n", path_.c_str(), static_cast<unsigned long long>(number), line.c_str());
      return false;
    }
  }
  return true;
}

void Journal::Write(const std::string& record) {
  if (file_ < 0) {
    file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  }
  const std::string line = record + "\n";
  if (file_ < 0 || write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    perror(path_.c_str());
    exit(3);
  }
}

State Journal::StateAt(uint64_t epoch, uint64_t index) const {
  State state;
  uint64_t at = 0;
  for (uint64_t e = 0; e <= epoch; ++e) {
    const uint64_t end = e == epoch ? index : bases_[e + 1];
    for (at = bases_[e] + 1; at <= end; ++at) {
      Apply(MakeOperation(seed_, e, at), e, at, &state);
    }
  }
  return state;
}

uint64_t Journal::LastChange(uint64_t epoch, uint64_t index, uint64_t* its_epoch) const {
  for (uint64_t e = epoch + 1; e-- > 0;) {
    for (; index > bases_[e]; --index) {
      if (Changes(MakeOperation(seed_, e, index).kind)) {
        *its_epoch = e;
        return index;
      }
    }
  }
  *its_epoch = 0;
  return 0;
}

}  // namespace crash
