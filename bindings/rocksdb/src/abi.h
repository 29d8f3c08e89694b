// Whether the librocksdb and the libimbrex of this process are those that the plug-in was built for.

#pragma once

#include <string>

namespace imbrex {

// One sentence that says what does not fit and what to do; empty when all is well. Looked at once a process.
const std::string& CheckedAbi();

}  // namespace imbrex
