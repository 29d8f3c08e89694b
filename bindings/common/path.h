// Paths as databases build them and as the C API wants them.

#pragma once

#include <algorithm>
#include <cstring>
#include <string>

namespace imbrex {

// Databases join names to directories with a slash whether or not the directory ends with one, and users write `--db=x`. The C API
// wants absolute paths. Here they have no empty components and no "." or ".." either; the root's ".." is itself.
inline std::string Absolute(const std::string& path) {
  std::string result = "/";
  result.reserve(path.size() + 1);
  for (size_t start = 0; start < path.size();) {
    size_t end = path.find('/', start);
    if (end == std::string::npos) {
      end = path.size();
    }
    if (path.compare(start, end - start, "..") == 0) {
      result.resize(std::max<size_t>(result.rfind('/'), 1));
    } else if (end > start && path.compare(start, end - start, ".") != 0) {
      if (result.size() > 1) {
        result.push_back('/');
      }
      result.append(path, start, end - start);
    }
    start = end + 1;
  }
  return result;
}

// An error's message without the path that many of them begin with: databases put it in front themselves.
inline const char* WithoutPath(const char* message, const std::string& path) {
  if (strncmp(message, path.data(), path.size()) != 0 || message[path.size()] != ':') {
    return message;
  }
  message += path.size() + 1;
  return *message == ' ' ? message + 1 : message;
}

}  // namespace imbrex
