// Sums over ranks on the host, outside training steps: counts for reports.
#pragma once
#include "comm/comm.h"

// The sum of all ranks' numbers, on every rank; every rank calls it.
int64_t rank_sum(Comm *comm, int64_t mine);
