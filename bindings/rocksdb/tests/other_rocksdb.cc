// Stands for a librocksdb of another version, as far as the plug-in looks before it refuses it. Without OTHER_VERSION it has no version,
// like those before 6.16.

#include <memory>
#include <string>

namespace rocksdb {

struct __attribute__((visibility("default"))) ObjectLibrary {
  static std::shared_ptr<ObjectLibrary>& Default();
};

std::shared_ptr<ObjectLibrary>& ObjectLibrary::Default() {
  static std::shared_ptr<ObjectLibrary> none;
  return none;
}

#ifdef OTHER_VERSION
__attribute__((visibility("default"))) std::string GetRocksVersionAsString(bool /*with_patch*/) { return OTHER_VERSION; }
#endif

}  // namespace rocksdb
