#include "training/run_time.h"
#include "base/clock.h"

void run_time_add(RunTime *t, RunActivity activity, double start) { t->spent[activity] += now_seconds() - start; }

static void add_part(RecordList *list, const char *name, double seconds) {
  record_begin(&list->item);
  record_str(&list->item, "name", name);
  record_num(&list->item, "seconds", seconds);
  record_list_add(list);
}

void run_time_record(Record *j, const RunTime *t) {
  static const char *const names[] = {
      [RUN_STARTING] = "start", [RUN_EVALUATING] = "evaluations", [RUN_SAVING] = "checkpoints and weights"};
  double training = now_seconds() - t->began;
  for (int i = 0; i < RUN_ACTIVITIES; i++) training -= t->spent[i];
  RecordList list = {0};
  add_part(&list, "training steps", training > 0 ? training : 0);
  for (int i = 0; i < RUN_ACTIVITIES; i++) add_part(&list, names[i], t->spent[i]);
  record_list_end(&list, j, "time");
}
