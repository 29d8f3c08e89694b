// A store that another program drives, one operation after the other: so several stores can be given the very same operations, and whoever looks at their drive
// between two of them knows what the drive did for each. The experiments kv-ycsb, kv-smrdb and kv-workloads do.
//
// An operation is a line at standard input, and its answer is a line at standard output. Keys are in hexadecimal digits.
//
//   put KEY BYTES SYNC    puts a value of so many bytes that cannot be compressed, then waits until the store has nothing left to do in the background
//   rm KEY SYNC           deletes the key, then waits as put does
//   get KEY               "none" if it is not there
//   scan KEY COUNT        reads so many pairs from the first key on that is not smaller
//   all                   reads all pairs in order
//   rest                  waits until the store has nothing left to do in the background
//
// The answer is "ok NUMBER WAITS": bytes of the value that was read, or pairs; and 1 if something waits for the next "put", "rm" or "rest". Nothing goes on in the
// background while keys are read. With `beside` neither put nor rm waits: background work goes on beside them until the next "rest". An error is "error: …", and ends the program. The end of the input closes the store.

#ifndef IMBREX_COMMON_DRIVEN_H_
#define IMBREX_COMMON_DRIVEN_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>

namespace driven {

// What a store does. An error is what comes back, if it is not empty.
class Store {
 public:
  virtual ~Store() = default;
  virtual std::string Put(const std::string& key, const char* value, size_t bytes, bool sync) = 0;
  virtual std::string Delete(const std::string& key, bool sync) = 0;
  // -1: it is not there.
  virtual std::string Get(const std::string& key, int64_t* bytes) = 0;
  // From the first pair on where there is no key.
  virtual std::string Scan(const std::string* from, uint64_t most, uint64_t* pairs) = 0;
  virtual std::string Rest() = 0;
  virtual bool Waits() = 0;
};

inline bool FromHex(const std::string& text, std::string* bytes) {
  bytes->clear();
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    char* end = nullptr;
    const std::string digits = text.substr(i, 2);
    bytes->push_back(static_cast<char>(strtoul(digits.c_str(), &end, 16)));
    if (*end != '\0') {
      return false;
    }
  }
  return text.size() % 2 == 0;
}

// splitmix64.
class Random {
 public:
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  void Fill(std::string* bytes) {
    for (size_t i = 0; i < bytes->size(); i += 8) {
      const uint64_t bits = Next();
      std::memcpy(&(*bytes)[i], &bits, std::min<size_t>(8, bytes->size() - i));
    }
  }

 private:
  uint64_t state_ = 1;
};

// One operation. `number` is what the answer has.
inline std::string One(Store* store, bool beside, const std::string& line, Random* random, int64_t* number) {
  std::istringstream words(line);
  std::string what;
  std::string text;
  std::string key;
  uint64_t count = 0;
  words >> what;
  *number = 0;
  if (what == "all" || what == "rest") {
    uint64_t pairs = 0;
    const std::string wrong = what == "all" ? store->Scan(nullptr, UINT64_MAX, &pairs) : store->Rest();
    *number = static_cast<int64_t>(pairs);
    return wrong;
  }
  if (!(words >> text) || !FromHex(text, &key)) {
    return "no operation: " + line;
  }
  if (what == "get") {
    return store->Get(key, number);
  }
  if (!(words >> count)) {
    return "no operation: " + line;
  }
  if (what == "scan") {
    uint64_t pairs = 0;
    const std::string wrong = store->Scan(&key, count, &pairs);
    *number = static_cast<int64_t>(pairs);
    return wrong;
  }
  std::string wrong;
  int sync = 0;
  if (what == "rm") {
    wrong = store->Delete(key, count != 0);
  } else if (what == "put" && words >> sync) {
    std::string value(count, '\0');
    random->Fill(&value);
    wrong = store->Put(key, value.data(), value.size(), sync != 0);
  } else {
    return "no operation: " + line;
  }
  return wrong.empty() && !beside ? store->Rest() : wrong;
}

// Does what it is told until the input ends. Returns what the program ends with.
inline int Serve(Store* store, bool beside) {
  Random random;
  std::string line;
  while (std::getline(std::cin, line)) {
    int64_t number = 0;
    const std::string wrong = One(store, beside, line, &random, &number);
    if (!wrong.empty()) {
      printf("error: %s\n", wrong.c_str());
      fflush(stdout);
      return 1;
    }
    if (number < 0) {
      printf("none 0 %d\n", store->Waits() ? 1 : 0);
    } else {
      printf("ok %lld %d\n", static_cast<long long>(number), store->Waits() ? 1 : 0);
    }
    fflush(stdout);
  }
  return 0;
}

}  // namespace driven

#endif  // IMBREX_COMMON_DRIVEN_H_
