// Rendezvous: how the ranks of a run find each other. Rank 0 listens where it was told to and takes whoever proves to
// be a rank of this run, twice: once for data, once for control. Anybody can connect: what comes is a stranger's until
// its hello is checked, is bounded, and holds nobody up.
#pragma once
#include <stdbool.h>
#include "comm/meeting.h"

// False with a line after `seconds` at the latest, or when this process is asked to stop. *others_say: another process
// says that line, for all. Afterwards, meeting_close in any case.
bool rendezvous(Meeting *m, const Launch *l, double seconds, bool *others_say, Err *err);
