// What some tests have another process do, because the drive must be opened, killed or refused there.

#pragma once

#include <string>

namespace contract {

// Does it; returns the exit code. IMBREX_DRIVE names the drive, WORK a directory of the host.
int Act(const std::string& name);

}  // namespace contract
