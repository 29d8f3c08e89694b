// Whether a plug-in fits the process that has loaded it.

#pragma once

#include <string>

namespace imbrex {

// Why the plug-in `name` cannot be used in this process, of whose LevelDB `original` is a function; empty when it can.
std::string Mismatch(const void* original, const std::string& name);

}  // namespace imbrex
