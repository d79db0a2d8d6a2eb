// Numbers of ranks, added up on the host, outside of any step: counts for reports.
#pragma once
#include "comm/comm.h"

// The sum of every rank's number, on every rank; all of them call it.
int64_t rank_sum(Comm *comm, int64_t mine);
