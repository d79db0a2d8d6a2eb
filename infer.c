// infer: runs a detector or classifier on images or a data set; writes results, overlays, scores, speed.
#include <stdlib.h>
#include "base/interrupt.h"
#include "base/mapped.h"
#include "base/output.h"
#include "base/threads.h"
#include "engine/state.h"
#include "inference/annotation_choices.h"
#include "inference/data_set.h"
#include "inference/named_images.h"
#include "inference/network_options.h"
#include "inference/orientation.h"
#include "page/page_draw.h"

static JobOptions job_options(const InferOptions *o) {
  return (JobOptions){.gpus = o->gpus,
                      .device = o->device,
                      .rendezvous = o->rendezvous,
                      .timeout = o->timeout,
                      .rendezvous_timeout = o->rendezvous_timeout};
}

// Named images are not distributed over ranks.
static void refuse_ranks(const Job *job) {
  if (job->launch.world == 1) return;
  if (job->launch.rank > 0) comm_barrier(job->comm); // ends with the first rank
  die(EXIT_USAGE, "%s has started %d ranks, but several ranks need --data DIR; for named images, start one process",
      job->launch.by, job->launch.world);
}

// All ranks exit with the status for which the first one has printed the reason, not with that of a rank that failed.
static void end_job(Job *job, int status) {
  Crew *crew = job->launch.crew;
  if (status) comm_barrier(job->comm); // a claim ends every rank: the first one still writes the results
  if (status && crew) crew_claim(crew, status);
  job_end(job);
}

// The model as it was trained, except for the options, which are adapted to it.
static const InferTask *read_config(InferOptions *o, const Checkpoint *c, ModelConfig *config, Category **category,
                                    float *scored_from) {
  Err err;
  if (!state_config(c, config, category, &err)) die(EXIT_USAGE, "%s: %s", o->weights, err.msg);
  const InferTask *task = model_of(config)->infer;
  task->fit(o, config);
  *scored_from = config->min_score;
  config->min_score = o->eval ? MIN(infer_reported_from(o), *scored_from) : infer_reported_from(o);
  const ModelChanges changes = network_changes(o);
  if (!model_change(config, &changes, &err)) die(EXIT_USAGE, "%s", err.msg);
  SampleRange range;
  if (o->range && !sample_range_parse(&range, o->range, &err)) die(EXIT_USAGE, "--range %s", err.msg);
  if (o->range) {
    config->range_low = range.low;
    config->range_high = range.high;
  }
  return task;
}

int main(int argc, char **argv) {
  threads_wait_briefly(argv);
  interrupt_by_writing();
  mapped_guard();
  threads_limit();
  InferOptions o = infer_options(argc, argv);
  Err err;
  Job job;
  const JobOptions wanted = job_options(&o);
  job_begin(&job, &wanted);
  if (!o.data) refuse_ranks(&job);
  Checkpoint c;
  ModelConfig config;
  Category *category;
  float scored_from;
  if (!state_open(&c, o.weights, &err)) die(EXIT_USAGE, "%s", err.msg);
  const InferTask *task = read_config(&o, &c, &config, &category, &scored_from);
  orientation_settle(&o, &c);
  annotation_choices_settle(&o, &c);
  const InferRun run = {.o = &o,
                        .config = &config,
                        .scored_from = scored_from,
                        .category = category,
                        .weights = &c,
                        .job = &job,
                        .draw = page_draw_scores};
  if (job.launch.rank == 0) state_note(&c, o.weights);
  const int status = o.data ? data_set_run(&run, task, &wanted) : named_images_run(&run, task);
  free((char *)o.json);
  free(category);
  ckpt_close(&c);
  stdout_close();
  end_job(&job, status);
  return status;
}
