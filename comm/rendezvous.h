// Rendezvous: how the ranks of a run find each other. Rank 0 listens at a given address and accepts two connections,
// for data and for control, from every rank of this run. Anybody can connect, so input is untrusted until the hello has
// been checked: its size is bounded, and it cannot block others.
#pragma once
#include <stdbool.h>
#include "comm/meeting.h"

// False, with a message, after `seconds` at the latest, or when this process is asked to stop. *others_say: another
// process prints the message for all. Call meeting_close in any case.
bool rendezvous(Meeting *m, const Launch *l, double seconds, bool *others_say, Err *err);
