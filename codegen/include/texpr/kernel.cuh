#line 2 "/texpr/include/texpr/kernel.cuh"
// What an emitted kernel includes. With TX_HOST (host/host.hpp, forced in by the host build) the CPU stands in for the
// device: the text of the kernel is the same.
#pragma once
#include "texpr/update.cuh"
#if defined(TX_HOST)
#include "texpr/host/launch.hpp"
#include "texpr/host/memory.hpp"
#else
#include "texpr/memory.cuh"
#include "texpr/sync.cuh"
#endif
