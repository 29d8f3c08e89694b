// libimbrex_faults.so (bindings/c/faults): the C API, and a drive in memory that fails when it is told to. For tests.

#pragma once

#include <imbrex.h>

#include <cstdint>

extern "C" {

// What happens to a command of the drive.
enum imbrex_fault : uint32_t {
  IMBREX_FAULT_READ = 0,
  IMBREX_FAULT_WRITE = 1,
  IMBREX_FAULT_TORN_WRITE = 2,
  IMBREX_FAULT_FLUSH = 3,
  IMBREX_FAULT_ZONE_OP = 4,
  IMBREX_FAULT_NO_SPACE = 5,
  IMBREX_FAULT_READ_ONLY = 6,
  IMBREX_FAULT_OFFLINE = 7,
  IMBREX_FAULT_BIT_FLIP = 8,
};

// See bindings/c/faults/src/lib.rs.
void imbrex_faults_make(uint32_t conventional);
imbrex_fs* imbrex_faults_mount();
void imbrex_faults_arm(uint32_t kind, uint64_t skip, uint64_t times);
uint64_t imbrex_faults_disarm();
uint64_t imbrex_faults_hits();
uint64_t imbrex_faults_check();

}  // extern "C"
