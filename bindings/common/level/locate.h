// What the loaders of both LevelDB plug-ins share: which LevelDB a caller uses, and the plug-in that was built for it.
//
// LevelDB's classes are an interface of C++: a plug-in of another version would not fail, it would call the wrong functions; and merely
// loading a second libleveldb before the program's mixes the two, since each name is found in whichever comes first (PyPI's plyvel, which
// brings a LevelDB, crashes then). So a loader defines the functions that it takes the place of, and refers to nothing of LevelDB. A
// LevelDB need not be there when it is loaded: a Python program loads it later, with names that only its own module sees. Therefore the
// one in question is found from the address of the caller, as the dynamic linker would have found it for that caller without us.

#pragma once

#include <string>

namespace imbrex {

// The LevelDB that some code uses.
struct LevelDb {
  // Its own function of the name that was looked for; nullptr where there is none.
  void* function = nullptr;
  std::string file;
  // As "1.23"; empty where it does not tell.
  std::string version;
};

// The LevelDB of the code at `caller`. `name`: a function of it, mangled; `own`: the loader's function of that name.
LevelDb Locate(const void* caller, const char* name, const void* own);

struct PluginFile {
  // Why there is none, or empty.
  std::string mismatch;
  void* handle = nullptr;

  // A function of the plug-in.
  template <typename Function>
  void Find(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(Symbol(name));
  }
  void* Symbol(const char* name) const;
};

// Loads `<stem>-<version>.so` from beside the loader. `ask` names its function (const void* original, std::string* mismatch), which says why
// it cannot be used in this process.
PluginFile LoadPlugin(const LevelDb& leveldb, const std::string& stem, const char* ask);

// The drive that the environment names; nullptr where it names none.
const char* DriveOfEnvironment();

// Ends the process with a sentence. Whoever set the variable wants the drive: without it the database would go somewhere else, unnoticed.
[[noreturn]] void Refuse(const std::string& why);

}  // namespace imbrex
