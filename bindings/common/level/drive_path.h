// Which paths of a LevelDB program are on the drive.

#pragma once

#include <string>

#include "path.h"

namespace imbrex {

constexpr const char* kDriveVariable = "IMBREX_DRIVE";
constexpr const char* kDrivePrefix = "/imbrex";
constexpr const char* kScheme = "imbrex://";

// Whether a path leads to the drive; then what it is called there. The directory /imbrex itself is the drive's root. Relative paths are the
// host's.
inline bool IsOnDrive(const std::string& path, std::string* inside) {
  if (path.empty() || path[0] != '/') {
    return false;
  }
  const std::string absolute = Absolute(path);
  const std::string prefix = kDrivePrefix;
  if (absolute.compare(0, prefix.size(), prefix) != 0 || (absolute.size() > prefix.size() && absolute[prefix.size()] != '/')) {
    return false;
  }
  *inside = absolute.size() > prefix.size() ? absolute.substr(prefix.size()) : "/";
  return true;
}

// The URI of a drive that is named by one, or by the locator in one.
inline std::string DriveUri(const std::string& drive) { return drive.rfind(kScheme, 0) == 0 ? drive : kScheme + drive; }

}  // namespace imbrex
