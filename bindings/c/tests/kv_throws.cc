/* An exception leaves the function that compares keys, or with an argument the one that says what is over, or with two the one that merges operands: tests/kv.rs compiles and runs this. */
#include "imbrex.h"

#include <stdexcept>

static int throws(void *, const void *, size_t, const void *, size_t) { throw std::runtime_error("no such luck"); }

static bool over(void *, const void *, size_t, const void *, size_t) { throw std::runtime_error("no such luck"); }

static void merges(void *, const void *, size_t, const void *, size_t, const imbrex_kv_bytes *, size_t, imbrex_kv_value *) {
  throw std::runtime_error("no such luck");
}

int main(int count, char **) {
  const imbrex_kv_order order = {"throws", throws, nullptr};
  imbrex_kv *kv = nullptr;
  imbrex_kv_value *value = nullptr;
  if (imbrex_kv_open("imbrex://mem:?profile=tiny&survivor-size=1M", "s", &order, IMBREX_KV_CREATE, &kv) != nullptr) return 2;
  try {
    if (count > 1) {
      imbrex_kv *plain = nullptr;
      imbrex_error_free(imbrex_kv_space(kv, "plain", nullptr, IMBREX_KV_CREATE, &plain));
      imbrex_error_free(imbrex_kv_put(plain, "k", 1, "v", 1, false));
      const imbrex_kv_merge_operator merger = {merges, nullptr, nullptr};
      if (count > 2) {
        imbrex_error_free(imbrex_kv_set_merge_operator(plain, &merger));
        imbrex_error_free(imbrex_kv_merge(plain, "k", 1, "v", 1, false));
      } else {
        imbrex_error_free(imbrex_kv_expire(plain, over, nullptr));
      }
      imbrex_error_free(imbrex_kv_get(plain, nullptr, "k", 1, &value));
      return 5;
    }
    for (char key = 'a'; key < 'z'; key++) imbrex_error_free(imbrex_kv_put(kv, &key, 1, &key, 1, false));
  } catch (...) {
    return 3;
  }
  return 4;
}
