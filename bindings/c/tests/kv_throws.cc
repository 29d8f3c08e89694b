/* An exception leaves the function that compares keys: tests/kv.rs compiles and runs this. */
#include "imbrex.h"

#include <stdexcept>

static int throws(void *, const void *, size_t, const void *, size_t) { throw std::runtime_error("no such luck"); }

int main() {
  const imbrex_kv_order order = {"throws", throws, nullptr};
  imbrex_kv *kv = nullptr;
  if (imbrex_kv_open("imbrex://mem:?profile=tiny&survivor-size=1M", "s", &order, IMBREX_KV_CREATE, &kv) != nullptr) return 2;
  try {
    for (char key = 'a'; key < 'z'; key++) imbrex_error_free(imbrex_kv_put(kv, &key, 1, &key, 1, false));
  } catch (...) {
    return 3;
  }
  return 4;
}
