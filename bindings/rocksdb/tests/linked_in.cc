// imbrex_rocksdb.h where the plug-in is compiled into the program, as for the sanitizers: no loader in between.

#include "imbrex_rocksdb.h"
#include "plugin.h"

namespace imbrex {

const std::string& AbiMismatch() {
  static const std::string mismatch = imbrex_plugin_mismatch();
  return mismatch;
}

std::shared_ptr<rocksdb::FileSystem> NewFileSystem(const imbrex_fs* fs) {
  std::shared_ptr<rocksdb::FileSystem> result;
  imbrex_plugin_new_file_system(fs, &result);
  return result;
}

rocksdb::IOStatus AdviseOptions(const imbrex_fs* fs, rocksdb::Options* options) {
  rocksdb::IOStatus status;
  imbrex_plugin_advise(fs, options, &status);
  return status;
}

}  // namespace imbrex
