// Loads every record of a machine's apt package lists into RocksDB and reads all of it back.
//
//   apt_lists [--fs_uri=imbrex://DRIVE] [--db=/apt] FILE...
//
// FILE is plain text as apt keeps it in /var/lib/apt/lists: records of lines, an empty line between two. A record's key is its
// package, version and architecture, and its number, so that no two are the same. Without --fs_uri the database is on the
// host's file system. The program ends with 0 only if a new opening of the database gives back every byte.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include "releases.h"

namespace {

struct Record {
  std::string key;
  std::string text;
};

std::string FieldOf(const std::string& line, const char* name) {
  const std::string prefix = std::string(name) + ": ";
  return line.rfind(prefix, 0) == 0 ? line.substr(prefix.size()) : std::string();
}

bool ReadRecords(const std::string& path, std::vector<Record>* records) {
  std::ifstream in(path);
  if (!in) {
    std::fprintf(stderr, "apt_lists: cannot read %s\n", path.c_str());
    return false;
  }
  std::string line, text, package, version, architecture;
  auto end_record = [&] {
    if (!text.empty()) {
      char number[16];
      std::snprintf(number, sizeof(number), "%08zu", records->size());
      records->push_back({package + "/" + version + "/" + architecture + "/" + number, text});
    }
    text.clear();
    package.clear();
    version.clear();
    architecture.clear();
  };
  while (std::getline(in, line)) {
    if (line.empty()) {
      end_record();
      continue;
    }
    text += line + "\n";
    if (package.empty()) package = FieldOf(line, "Package");
    if (version.empty()) version = FieldOf(line, "Version");
    if (architecture.empty()) architecture = FieldOf(line, "Architecture");
  }
  end_record();
  return true;
}

int Fail(const char* what, const rocksdb::Status& status) {
  std::fprintf(stderr, "apt_lists: %s: %s\n", what, status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string uri, path = "/apt";
  std::vector<std::string> files;
  for (int i = 1; i < argc; i++) {
    const std::string argument = argv[i];
    if (argument.rfind("--fs_uri=", 0) == 0) {
      uri = argument.substr(9);
    } else if (argument.rfind("--db=", 0) == 0) {
      path = argument.substr(5);
    } else if (argument.rfind("--", 0) == 0) {
      std::fprintf(stderr, "usage: apt_lists [--fs_uri=URI] [--db=PATH] FILE...\n");
      return 2;
    } else {
      files.push_back(argument);
    }
  }
  if (files.empty()) {
    std::fprintf(stderr, "apt_lists: name at least one file, as /var/lib/apt/lists/*_Packages\n");
    return 2;
  }
  std::vector<Record> records;
  for (const std::string& file : files) {
    if (!ReadRecords(file, &records)) return 1;
  }

  rocksdb::Env* env = rocksdb::Env::Default();
  std::shared_ptr<rocksdb::Env> guard;
  if (!uri.empty()) {
    const rocksdb::Status made = rocksdb::Env::CreateFromUri(rocksdb::ConfigOptions(), "", uri, &env, &guard);
    if (!made.ok()) return Fail("opening the drive", made);
  }
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = true;
  options.error_if_exists = true;
  std::unique_ptr<rocksdb::DB> db;
  rocksdb::Status status = rocksdb::DB::Open(options, path, imbrex::Into(&db));
  if (!status.ok()) return Fail("making the database", status);
  uint64_t bytes = 0;
  for (const Record& record : records) {
    status = db->Put(rocksdb::WriteOptions(), record.key, record.text);
    if (!status.ok()) return Fail("writing", status);
    bytes += record.key.size() + record.text.size();
  }
  status = db->Flush(rocksdb::FlushOptions());
  if (!status.ok()) return Fail("flushing", status);
  db.reset();

  options.error_if_exists = false;
  options.paranoid_checks = true;
  status = rocksdb::DB::Open(options, path, imbrex::Into(&db));
  if (!status.ok()) return Fail("opening the database again", status);
  uint64_t wrong = 0;
  std::string value;
  for (const Record& record : records) {
    status = db->Get(rocksdb::ReadOptions(), record.key, &value);
    if (!status.ok() || value != record.text) wrong++;
  }
  rocksdb::ReadOptions scan;
  scan.verify_checksums = true;
  uint64_t scanned = 0;
  std::unique_ptr<rocksdb::Iterator> all(db->NewIterator(scan));
  for (all->SeekToFirst(); all->Valid(); all->Next()) scanned++;
  if (!all->status().ok()) return Fail("scanning", all->status());
  all.reset();
  db.reset();
  std::printf("records loaded      %zu (%.1f MB from %zu lists)\n", records.size(), static_cast<double>(bytes) / 1e6, files.size());
  std::printf("records read back   %zu by key, %llu by scan\n", records.size(), static_cast<unsigned long long>(scanned));
  std::printf("records that differ %llu\n", static_cast<unsigned long long>(wrong));
  return wrong == 0 && scanned == records.size() && !records.empty() ? 0 : 1;
}
