// Calls every method of rocksdb::FileSystem and its files on a drive and compares with what RocksDB's headers promise and RocksDB
// relies on (DESIGN §9).
//
//   fs_contract_test imbrex://LOCATOR     the drive must be formatted and may be in use by nobody else; the test works in /contract
//   fs_contract_test posix:DIRECTORY      RocksDB's own file system, to show that the tests ask for nothing else
//   fs_contract_test URI --only=WORD      tests whose name contains WORD
//
// Exit code 0 when every test passed.

#include "contract.h"

#include <algorithm>
#include <cstdio>

#include "rocksdb/convenience.h"

namespace contract {

using rocksdb::FileOptions;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

std::shared_ptr<rocksdb::FileSystem> g_fs;
std::string g_uri;
std::string g_base;

// Removes a directory and what is in it; what is missing is fine.
void Remove(const std::string& path) {
  bool is_directory = false;
  if (!g_fs->IsDirectory(path, IOOptions(), &is_directory, nullptr).ok()) {
    return;
  }
  if (is_directory) {
    std::vector<std::string> children;
    g_fs->GetChildren(path, IOOptions(), &children, nullptr).PermitUncheckedError();
    for (const std::string& child : children) {
      if (child != "." && child != "..") {
        Remove(path + "/" + child);
      }
    }
    EXPECT_OK(g_fs->DeleteDir(path, IOOptions(), nullptr));
  } else {
    EXPECT_OK(g_fs->DeleteFile(path, IOOptions(), nullptr));
  }
}

}  // namespace

rocksdb::FileSystem* Fs() { return g_fs.get(); }
const std::string& Uri() { return g_uri; }

IOStatus Create(const std::string& path, std::unique_ptr<rocksdb::FSWritableFile>* file) {
  return g_fs->NewWritableFile(path, FileOptions(), file, nullptr);
}
IOStatus Reopen(const std::string& path, std::unique_ptr<rocksdb::FSWritableFile>* file) {
  return g_fs->ReopenWritableFile(path, FileOptions(), file, nullptr);
}
IOStatus OpenSequential(const std::string& path, std::unique_ptr<rocksdb::FSSequentialFile>* file) {
  return g_fs->NewSequentialFile(path, FileOptions(), file, nullptr);
}
IOStatus OpenRandomAccess(const std::string& path, std::unique_ptr<rocksdb::FSRandomAccessFile>* file) {
  return g_fs->NewRandomAccessFile(path, FileOptions(), file, nullptr);
}
IOStatus Append(rocksdb::FSWritableFile* file, const std::string& data) { return file->Append(data, IOOptions(), nullptr); }
IOStatus Sync(rocksdb::FSWritableFile* file) { return file->Sync(IOOptions(), nullptr); }
IOStatus Close(rocksdb::FSWritableFile* file) { return file->Close(IOOptions(), nullptr); }

IOStatus Put(const std::string& path, const std::string& content) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  IOStatus status = Create(path, &file);
  if (status.ok()) {
    status = Append(file.get(), content);
  }
  if (status.ok()) {
    status = Sync(file.get());
  }
  if (status.ok()) {
    status = Close(file.get());
  }
  return status;
}

std::string Get(const std::string& path) {
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  IOStatus status = OpenSequential(path, &file);
  if (!status.ok()) {
    return "cannot open: " + status.ToString();
  }
  std::string content;
  std::string scratch(8192, '\0');
  for (;;) {
    Slice piece;
    status = file->Read(scratch.size(), IOOptions(), &piece, scratch.data(), nullptr);
    if (!status.ok()) {
      return "cannot read: " + status.ToString();
    }
    content.append(piece.data(), piece.size());
    if (piece.size() < scratch.size()) {
      return content;
    }
  }
}

uint64_t SizeOf(const std::string& path) {
  uint64_t size = ~uint64_t{0};
  EXPECT_OK(g_fs->GetFileSize(path, IOOptions(), &size, nullptr));
  return size;
}

bool Exists(const std::string& path) { return g_fs->FileExists(path, IOOptions(), nullptr).ok(); }

void ExpectSays(const char* file, int line, const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) {
      Fail(file, line, "\"" + part + "\" is not in: " + text);
    }
  }
}

std::vector<std::string> Sorted(const std::string& directory) {
  std::vector<std::string> names;
  EXPECT_OK(g_fs->GetChildren(directory, IOOptions(), &names, nullptr));
  names.erase(std::remove_if(names.begin(), names.end(), [](const std::string& n) { return n == "." || n == ".."; }), names.end());
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

int Main(int argc, char** argv) {
  const std::string usage = "usage: fs_contract_test imbrex://LOCATOR|posix:DIRECTORY [--only=WORD]\n";
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--only=", 0) == 0) {
      only = argument.substr(7);
    } else if (g_uri.empty() && argument.rfind("--", 0) != 0) {
      g_uri = argument;
    } else {
      fputs(usage.c_str(), stderr);
      return 2;
    }
  }
  const bool posix = g_uri.rfind("posix:", 0) == 0;
  if (posix) {
    g_fs = rocksdb::FileSystem::Default();
    g_base = g_uri.substr(6) + "/contract";
    g_uri.clear();
  } else if (g_uri.empty()) {
    fputs(usage.c_str(), stderr);
    return 2;
  } else {
    const rocksdb::Status status = rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(), g_uri, &g_fs);
    if (!status.ok()) {
      fprintf(stderr, "fs_contract_test: %s\n", status.ToString().c_str());
      return 1;
    }
    g_base = "/contract";
  }

  Runner runner;
  runner.base = g_base;
  runner.only = only;
  runner.posix = posix;
  runner.make = [](const std::string& path) { return EXPECT_OK(g_fs->CreateDir(path, IOOptions(), nullptr)); };
  runner.remove = Remove;
  const int code = RunTests(runner);
  g_fs.reset();
  return code;
}

}  // namespace
}  // namespace contract

int main(int argc, char** argv) { return contract::Main(argc, argv); }
