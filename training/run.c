#include "training/run.h"

bool run_leads(const TrainingRun *r) { return comm_rank(r->comm) == 0; }

bool run_as_first(const TrainingRun *r, bool decision) {
  comm_broadcast_bytes(r->comm, &decision, sizeof decision);
  return decision;
}
