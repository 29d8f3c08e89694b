// Stands for a library with a LevelDB inside that Imbrex was not built for, as far as the plug-in looks before it refuses it. It asks for
// its default Env as soon as it is loaded, and ends the process with 3 if it gets another one that it knows nothing of. With
// OTHER_MAJOR and OTHER_MINOR it tells that version, otherwise none.

#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

namespace leveldb {

class VISIBLE Env {
 public:
  static Env* Default();
};

Env* Env::Default() {
  static Env own;
  return &own;
}

}  // namespace leveldb

#ifdef OTHER_MAJOR
extern "C" VISIBLE int leveldb_major_version() { return OTHER_MAJOR; }
extern "C" VISIBLE int leveldb_minor_version() { return OTHER_MINOR; }
#endif

namespace {

__attribute__((constructor)) void Open() {
  if (leveldb::Env::Default() == nullptr) {
    _exit(3);
  }
}

}  // namespace
