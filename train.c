// train: trains a model, or runs one of the benchmarks.
#include "base/interrupt.h"
#include "base/mapped.h"
#include "base/output.h"
#include "base/threads.h"
#include "page/page_draw.h"
#include "training/benchmarks/loading.h"
#include "training/benchmarks/nets.h"
#include "training/sessions.h"
#include "training/spec.h"

int main(int argc, char **argv) {
  bool stopped = false;
  LogFacts *log_facts = NULL; // what the page has read of the run's log
  threads_wait_briefly(argv);
  interrupt_by_writing();
  mapped_guard();
  threads_limit();
  TrainSpec o = train_spec(argc, argv);
  if (o.benchmark_loader)
    benchmark_loading(&o);
  else if (o.made_up)
    benchmark_net(&o);
  else
    stopped = sessions_run(&o, (DrawFolder){page_draw, &log_facts});
  log_facts_free(log_facts);
  train_spec_free(&o);
  stdout_close();
  return stopped ? EXIT_RUN : 0;
}
