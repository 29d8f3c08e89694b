// Stands for Google's library of this name, which LevelDB's db_test.cc uses for one benchmark of LevelDB's internals: it is compiled and not run.

#pragma once

#include <cstdint>

namespace benchmark {

class State {
 public:
  int64_t range(int) const { return 0; }
  int64_t iterations() const { return 0; }
  int* begin() { return nullptr; }
  int* end() { return nullptr; }
};

struct Registered {
  Registered* Arg(int64_t) { return this; }
};

inline Registered* Register(void (*)(State&)) {
  static Registered registered;
  return &registered;
}

inline void RunSpecifiedBenchmarks() {}

}  // namespace benchmark

#define BENCHMARK(function) static ::benchmark::Registered* function##_registered = ::benchmark::Register(function)
