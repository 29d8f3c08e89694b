// imbrex_leveldb.h where the plug-in is compiled into the program, as for the sanitizers: no loader in between.

#include "imbrex_leveldb.h"
#include "plugin.h"

namespace imbrex {

leveldb::Env* NewLevelDbEnv(const std::string& uri, std::string* error) {
  return imbrex_leveldb_open(leveldb::Env::Default(), uri.c_str(), error);
}

leveldb::Env* NewLevelDbEnv(const imbrex_fs* fs, std::string* error) { return imbrex_leveldb_new(leveldb::Env::Default(), fs, error); }

bool AdviseLevelDbOptions(const imbrex_fs* fs, leveldb::Options* options, std::string* error) {
  return imbrex_leveldb_advise(fs, options, error);
}

}  // namespace imbrex
