// Prints the evaluator's metrics as text and as JSON.
#include "base/output.h"
#include "data/coco/cocoeval.h"

// Metrics that use a limit are named after it. COCO's limits give the names of eval_stats.
const char *eval_stat_key(const EvalSummary *s, int stat, char key[EVAL_KEY]) {
  const EvalStat *e = &eval_stats[stat];
  if (e->recall && e->area == AREA_ALL)
    snprintf(key, EVAL_KEY, "AR_%d", s->max_dets[e->limit]);
  else
    snprintf(key, EVAL_KEY, "%s", e->key);
  return key;
}

int eval_stat_limit(const EvalSummary *s, int stat) {
  const int limit = eval_stats[stat].limit;
  return limit == EVAL_AT_100 ? 100 : s->max_dets[limit];
}

static bool has_ap_last(const EvalSummary *s) { return s->max_dets[EVAL_LIMITS - 1] != 100; }

static void print_stat(FILE *f, const EvalStat *e, int max_dets, double value, const char *undefined) {
  static const char *const area_name[EVAL_AREAS] = {"all", "small", "medium", "large"};
  char iou[16] = "0.50:0.95";
  if (e->iou) snprintf(iou, sizeof iou, "0.%02d", e->iou);
  fprintf(f, " %-18s %s @[ IoU=%-9s | area=%6s | maxDets=%3d ] = ", e->recall ? "Average Recall" : "Average Precision",
          e->recall ? "(AR)" : "(AP)", iou, area_name[e->area], max_dets);
  if (value < 0 && undefined)
    fprintf(f, "%s\n", undefined);
  else
    fprintf(f, "%0.3f\n", value);
}

void cocoeval_print(FILE *f, const EvalSummary *s, const char *undefined) {
  for (int i = 0; i < EVAL_STATS; i++) print_stat(f, &eval_stats[i], eval_stat_limit(s, i), s->stats[i], undefined);
  if (has_ap_last(s)) print_stat(f, &eval_stats[0], s->max_dets[EVAL_LIMITS - 1], s->ap_last, undefined);
}

static void print_cell(FILE *f, double value) {
  if (value < 0)
    fprintf(f, "%8s", "-");
  else
    fprintf(f, "%8.3f", value);
}

void cocoeval_print_categories(FILE *f, const EvalSummary *s) {
  char ar[EVAL_KEY];
  snprintf(ar, sizeof ar, "AR_%d", s->max_dets[EVAL_LIMITS - 1]);
  fprintf(f, "%10s  %-24s%8s%8s%8s\n", "id", "category", "AP", "AP50", ar);
  for (int k = 0; k < s->num_categories; k++) {
    const EvalCategory *c = &s->categories[k];
    text_print(f, "%10lld  %-24s", (long long)c->id, c->name ? c->name : "");
    print_cell(f, c->ap);
    print_cell(f, c->ap50);
    print_cell(f, c->ar);
    fputc('\n', f);
  }
}

void cocoeval_print_json(FILE *f, const EvalSummary *s) {
  const int last = s->max_dets[EVAL_LIMITS - 1];
  char key[EVAL_KEY];
  fputs("{\n", f);
  for (int i = 0; i < EVAL_STATS; i++) fprintf(f, "  \"%s\": %.17g,\n", eval_stat_key(s, i, key), s->stats[i]);
  if (has_ap_last(s)) fprintf(f, "  \"AP_at_%d\": %.17g,\n", last, s->ap_last);
  fputs("  \"per_category\": {", f);
  for (int k = 0; k < s->num_categories; k++) {
    const EvalCategory *c = &s->categories[k];
    fprintf(f, "%s\n    \"%lld\": {\"AP\": %.17g, \"AP50\": %.17g, \"AR_%d\": %.17g}", k ? "," : "", (long long)c->id,
            c->ap, c->ap50, last, c->ar);
  }
  fputs(s->num_categories ? "\n  }\n}\n" : "}\n}\n", f);
}
